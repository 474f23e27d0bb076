"""A lane on a real broker, without the loop around it: in which order it is taken over, and what is seen of it when.

The simulation has an owner of its own in its place (`tests/support/lane_owner.py`). The inputs' topics are in memory:
the runner reads nothing of them itself.
"""

import uuid
from collections.abc import Sequence
from contextlib import closing
from operator import gt
from typing import Final

import pytest

from lmerge import Element, Hello
from lmerge.codec import encode_batch
from lmerge.kafka import Batch, Fenced, KafkaSettings, TailReader, TransactionalWriter
from services.merge import desired as decide
from services.merge import lane_runner
from services.merge.attaching import Extent
from services.merge.definitions import Desired, FeedbackDefinition, InputDefinition, MergeDefinition
from services.merge.lane_runner import LaneRunner
from services.merge.setup import make_topics
from tests.support.kafka import log_end, wait_until, wait_until_decided
from tests.support.merge_service import merged
from tests.support.streams import ins, stb

A, B = b'"A"', b'"B"'
LANE: Final = 0


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


class World:
    """A merge of one lane, with the topics of its inputs in memory."""

    def __init__(self, settings: KafkaSettings, inputs: Sequence[str]) -> None:
        self.settings = settings
        self.name = f"m{uuid.uuid4().hex[:8]}"
        definition = MergeDefinition(feedback=FeedbackDefinition(lag_ms=100))
        self.desired: Desired = decide.put_merge(None, self.name, definition, lambda: self.name)
        self._topics: dict[str, list[bytes]] = {f"{self.name}.{each}": [] for each in inputs}
        for each in inputs:
            wanted = InputDefinition(topic=f"{self.name}.{each}")
            self.desired = decide.put_input(self.desired, self.name, each, wanted, lambda each=each: f"{each}/1")  # type: ignore[misc]
        make_topics(settings, self.name, self.desired)

    def take_over(self) -> LaneRunner:
        """Take the lane over, and attach the inputs that it does not have."""
        runner = LaneRunner(
            self.settings,
            owner="test",
            merge=self.name,
            partition=LANE,
            desired=self.desired,
            wanted_at=lambda _: self.desired,
        )
        for each in runner.lane.follow(self.desired.inputs):
            runner.attach(each, self.desired.inputs[each], Extent("", 0, 0))
        return runner

    def say(self, name: str, *elements: Element) -> None:
        """Let an input say something."""
        self._topics[f"{self.name}.{name}"] += encode_batch(elements)

    def read(self, runner: LaneRunner) -> None:
        """Let the lane have all that it wants to read: an input that was sought, or re-fed, is read once more."""
        while left := {t: start for t, start in runner.lane.reads().items() if start < len(self._topics[t])}:
            for topic, start in left.items():
                values = self._topics[topic][start:]
                runner.take({topic: Batch(range(start, start + len(values)), [*values], 0)})

    @property
    def topics(self) -> list[str]:
        """The merged topic, that of the lane records, and that of the signals."""
        return [f"{self.name}.{role}" for role in ("merged", "state", "feedback")]

    def log_ends(self) -> list[int]:
        """Give where each of them ends, undecided records included."""
        found = []
        for topic in self.topics:
            with log_end(self.settings, topic, LANE) as end:
                found.append(end())
        return found

    def ends(self) -> list[int]:
        """Give where what can be read of each of them ends."""
        with TailReader(self.settings) as reader:
            return [reader.watermarks(topic, LANE).end for topic in self.topics]


def test_what_the_owner_commits_just_before_it_is_fenced_is_known_to_its_successor(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who read first and fenced then would put it out once more (recovery-and-sink 1.2, 10: read before fence)."""
    world = World(settings, ["r1"])
    with closing(world.take_over()) as owner:
        world.say("r1", ins(A, 5, 20), stb(10))
        world.read(owner)
        owner.commit(control_offset=0)
        world.say("r1", ins(B, 12, 15), stb(20))
        world.read(owner)

        class Late(TransactionalWriter):
            def fence(self, timeout_seconds: float = 30) -> None:
                owner.commit(control_offset=0)
                super().fence(timeout_seconds)

        monkeypatch.setattr(lane_runner, "TransactionalWriter", Late)
        with closing(world.take_over()) as successor:
            world.say("r1", stb(30))
            world.read(successor)
            successor.commit(control_offset=0)
        world.say("r1", stb(40))
        world.read(owner)
        with pytest.raises(Fenced):
            owner.commit(control_offset=0)
    hello, *elements = merged(settings, f"{world.name}.merged")
    assert isinstance(hello, Hello)
    assert elements == [ins(A, 5, 20), stb(10), ins(B, 12, 15), stb(20), stb(30)]


def test_merged_elements_the_lane_record_and_signals_are_seen_together_or_not_at_all(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laggard that is told of a stable which is not committed skips what nobody may have (10: before from memory)."""
    before: list[int] = []
    at_commit: list[list[int]] = []

    class Looking(TransactionalWriter):
        def commit(self) -> None:
            if before:
                wait_until(lambda: all(map(gt, world.log_ends(), before)), "all that is written has come to the broker")
            at_commit.append(world.ends())
            super().commit()

    monkeypatch.setattr(lane_runner, "TransactionalWriter", Looking)
    world = World(settings, ["fast", "slow"])
    with closing(world.take_over()) as runner:
        world.say("slow", ins(A, 5, 8), stb(6))
        world.read(runner)
        runner.commit(control_offset=0)
        for topic in world.topics:
            wait_until_decided(settings, topic, LANE)
        before += world.ends()
        world.say("fast", ins(A, 5, 8), stb(1_000))
        world.read(runner)
        prepared = runner.commit(control_offset=0)
    assert prepared is not None
    assert [signal.input for signal in prepared.signals] == ["slow"]
    assert at_commit[-1] == before
    wait_until(lambda: all(map(gt, world.ends(), before)), "all three are seen")
