"""The lane that production runs, on in-memory logs: crashes at random moments lose nothing and repeat nothing."""

import random

import pytest

from lmerge import MINUS_INFINITY, TDB, Element, Event, OutputPolicy, reconstitute
from lmerge.canonical import payload
from lmerge.codec import decode_batch, encode_batch
from lmerge.kafka import Record
from services.merge.definitions import Attachment, InputDefinition
from services.merge.lane import Lane
from services.merge.lane_record import LaneRecord, decode, encode
from services.merge.recovery import Recovery
from services.merge.status import lane_status
from tests.support.logical import events, on_the_wire, present
from tests.support.seeds import play_seeds
from tests.support.world import POLICIES


class World:
    """One lane between lists that stand for topics; offsets have gaps, as transaction markers make them."""

    def __init__(self, rng: random.Random, policy: str) -> None:
        self.rng = rng
        self.policy = OutputPolicy.parse(policy)
        self.reference = events(rng, "R3", count=15)
        self.logs: dict[str, list[Record]] = {}
        self.desired: dict[str, Attachment] = {}
        self.merged: list[bytes] = []
        self.record: bytes | None = None
        self.lane = Lane(self.policy, MINUS_INFINITY)
        for number in range(rng.randrange(1, 4)):
            self.attach(f"r{number}", MINUS_INFINITY)

    def attach(self, name: str, joins_at: int) -> None:
        offset, log = 0, []
        for value in encode_batch(on_the_wire(present("R3", self.reference, self.rng, joins_at))):
            offset += self.rng.choice([1, 1, 1, 3])
            log.append(Record(name, 0, offset, None, value, (), 0))
        self.logs[name] = log
        self.desired[name] = Attachment(
            attachment=f"{name}/{self.rng.random()}", definition=InputDefinition(topic=name)
        )
        self._reconcile()

    def _reconcile(self) -> None:
        for name, attachment in self.desired.items():
            if name not in self.lane.inputs:
                self.lane.attach(name, attachment.attachment, name, start=0, joins_at=MINUS_INFINITY)

    def step(self) -> bool:
        reads = self.lane.reads(0)
        unread = {topic: [r for r in self.logs[topic] if r.offset >= start] for (topic, _), start in reads.items()}
        unread = {topic: records for topic, records in unread.items() if records}
        if not unread:
            return False
        topic = self.rng.choice(sorted(unread))
        self.lane.begin_batch(merged_end=self.rng.randrange(len(self.merged) + 1), now_ms=0)
        self.lane.take(topic, unread[topic][: self.rng.choice([1, 2, 9])])
        return True

    def commit(self) -> None:
        prepared = self.lane.prepare(control_offset=0)
        if prepared is not None:
            self.merged += prepared.values
            self.record = encode(prepared.record)
            self.lane.committed()

    def crash(self) -> None:
        if self.record is None:
            self.lane = Lane(self.policy, MINUS_INFINITY)
        else:
            self._recover(decode(self.record))
        self._reconcile()

    def _recover(self, record: LaneRecord) -> None:
        recovery = Recovery(record, self.desired, self.policy)
        recovery.merged(_elements(self.merged[record.merged_safe :]))
        self.lane = recovery.lane()
        for name, each in recovery.to_refeed.items():
            again = [r.value for r in self.logs[each.topic] if each.safe <= r.offset < each.position]
            recovery.refeed(name, _elements(again), done=True)


def _elements(values: list[bytes] | list[bytes | None]) -> list[Element]:
    elements, error = decode_batch(values)
    assert error is None
    return elements


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lane_that_crashes_gives_the_same_tdb_legal_at_every_prefix(policy: str, long: bool) -> None:
    def play(rng: random.Random) -> int:
        world = World(rng, policy)
        steps = 0
        while world.step():
            steps += 1
            draw = rng.random()
            if draw < 0.3:
                world.commit()
            elif draw < 0.45:
                world.crash()
            elif draw < 0.48 and len(world.desired) < 5:
                world.attach(f"late{steps}", rng.randrange(5, 40))
        world.commit()
        assert reconstitute(_elements(world.merged)) == TDB(
            Event(payload(e.payload), e.vs, e.ve) for e in world.reference
        )
        assert not any(state.verdict for state in world.lane.inputs.values())
        assert world.record is not None
        assert lane_status(decode(world.record)).state == "running"
        return steps

    play_seeds(play, policy, until=20_000 if long else 1_500)
