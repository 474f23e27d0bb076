"""Inputs that cannot be read for a moment, or for good: what a broker says once is not believed, and nobody is held."""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lmerge import Element
from lmerge.kafka import (
    KafkaSettings,
    MissingTopic,
    PartitionReader,
    RetryError,
    TailReader,
    TopicAdmin,
    TopicDescription,
    TopicSpec,
)
from services.merge import attaching, loop, setup
from services.merge import desired as decide
from services.merge.attaching import Found
from services.merge.control import Control
from services.merge.definitions import InputDefinition, MergeDefinition
from services.merge.lane_record import InputRecord
from services.merge.loop import MergeLoop
from services.merge.metrics import Metrics
from services.merge.pace import Pace
from tests.support.kafka import delete_before, wait_until
from tests.support.merge_service import append
from tests.support.streams import hello, ins, stb

DEADLINE = 60


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(attaching, "AGAIN_SECONDS", 0.1)


class Running:
    """A merge of r1 and r2 that a loop in this process runs."""

    def __init__(self, settings: KafkaSettings, control: Control, stack: ExitStack) -> None:
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self._settings = settings
        self._control = control
        TopicAdmin(settings).ensure(*(TopicSpec(self.topic(name), 1) for name in ("r1", "r2")))
        self.change(lambda now: decide.put_merge(now, self.name, MergeDefinition(), lambda: self.name))
        stack.callback(self.change, lambda _: None)
        for name in ("r1", "r2"):
            self.attach(name)
            self.write(name, ins(b"1", 1, 5), stb(3))
        self.loop = MergeLoop(settings, control, Metrics().of(self.name), self.name, owner="test", pace=Pace())
        thread = threading.Thread(target=self.loop.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self.loop.stop)
        self.wait(lambda: self.stable == 3 and self.joined == {"r1", "r2"}, "both are merged")

    def topic(self, name: str) -> str:
        return f"{self.name}.{name}"

    def change(self, decision: Callable[[Any], Any]) -> None:
        self._control.change(self.name, decision, by="test", what="test")

    def attach(self, name: str) -> None:
        definition = InputDefinition(topic=self.topic(name))
        self.change(lambda now: decide.put_input(now, self.name, name, definition, lambda: f"{name}/1"))

    def pause(self, name: str, *, paused: bool) -> None:
        self.change(lambda now: decide.set_paused(now, self.name, name, paused=paused))
        self.wait(lambda: self.of(name).paused is paused, f"{name} is paused: {paused}")

    def write(self, name: str, *elements: Element) -> None:
        append(self._settings, self.topic(name), [*elements])

    @property
    def stable(self) -> int | None:
        """The committed stable."""
        return self.loop.records[0].max_stable if 0 in self.loop.records else None

    @property
    def joined(self) -> set[str]:
        """The inputs that are joined, as committed."""
        return {name for name, each in self.loop.records[0].inputs.items() if each.joined}

    def of(self, name: str) -> InputRecord:
        """An input as committed."""
        return self.loop.records[0].inputs[name]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, seconds=DEADLINE)


@contextmanager
def running(settings: KafkaSettings) -> Iterator[Running]:
    with ExitStack() as stack:
        control = Control(settings)
        stack.callback(control.close)
        yield Running(settings, control, stack)


def test_while_nobody_says_what_is_left_of_an_input_the_others_go_on_and_it_is_asked_again(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def look(settings: KafkaSettings, admin: TopicAdmin, topic: str, partitions: Collection[int]) -> Found:
        if topic == lost and not answer.is_set():
            asked.set()
            answer.wait(DEADLINE)
            return dict.fromkeys(partitions, RetryError("nobody answers"))
        return attaching.look(settings, admin, topic, partitions)

    lost = ""
    monkeypatch.setattr(loop, "look", look)
    with running(settings) as it:
        it.pause("r2", paused=True)
        it.write("r2", ins(b"2", 12, 20), stb(15))
        it.write("r2", stb(30))
        with TailReader(settings) as reader:
            tail = reader.read_tail(it.topic("r2"), 0)
        assert tail is not None
        delete_before(settings, it.topic("r2"), tail.offset)
        lost = it.topic("r2")
        it.pause("r2", paused=False)
        it.wait(asked.is_set, "it is looked what is left of r2")
        it.write("r1", ins(b"2", 12, 20), stb(20))
        it.wait(lambda: it.stable == 20, "r1 goes on")
        assert (it.of("r2").stop, it.of("r2").seek) == (None, None)
        answer.set()
        it.wait(lambda: it.of("r2").seek is not None, "r2 waits for a hello")
        it.write("r2", hello(2, 18), ins(b"2", 12, 20), stb(40))
        it.wait(lambda: it.stable == 40, "r2 is back")


def test_a_topic_that_is_missed_once_is_read_on_and_one_that_stays_away_is_a_gap(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: dict[str, int] = {}
    told: list[str] = []

    def describe_topics(admin: TopicAdmin, topics: Iterable[str]) -> dict[str, TopicDescription | None]:
        found = setup.describe_topics(admin, topics)
        for topic in found.keys() & missed.keys():
            if missed[topic] > 0:
                missed[topic] -= 1
                found[topic] = None
        return found

    class Misled(PartitionReader):
        """Is told once that a topic is missing."""

        def _poll(self, timeout_seconds: float) -> Any:
            while told:
                self._note_failure(MissingTopic("told once"), (told.pop(), 0))
            return super()._poll(timeout_seconds)

    monkeypatch.setattr(loop, "describe_topics", describe_topics)
    monkeypatch.setattr(loop, "PartitionReader", Misled)
    with running(settings) as it:
        missed[it.topic("r2")] = 2
        told.append(it.topic("r2"))
        it.wait(lambda: not told and missed[it.topic("r2")] == 0, "r2 was missed")
        it.write("r2", ins(b"2", 12, 20), stb(20))
        it.wait(lambda: it.stable == 20, "r2 is read on")
        missed[it.topic("r2")] = 1_000_000
        it.wait(lambda: it.of("r2").stop is not None, "r2 is a gap")
        assert "does not exist any more" in str(it.of("r2").stop)
        it.write("r1", ins(b"2", 12, 20), stb(30))
        it.wait(lambda: it.stable == 30, "r1 goes on")
