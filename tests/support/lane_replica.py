"""What a simulated lane merges: one logical stream, and replicas that write it to their topics."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lmerge import INFINITY, MINUS_INFINITY, TDB, Element, Event, Hello, Insert, OutputPolicy, Stable
from lmerge.canonical import payload
from lmerge.codec import encode_batch
from lmerge.normal_form import json_pair, normal_form
from services.merge.lane_config import LaneConfig
from tests.support.logical import events, on_the_wire, present
from tests.support.memory_log import Log

HORIZON = 30
ORDERED = ("R0", "R1", "R2")


class Reference:
    """A logical stream, the merge that is to be made of it, and what has to come out."""

    def __init__(self, rng: random.Random, algorithm: str, policy: str, *, formed: bool) -> None:
        self._rng = rng
        self._kind = "R4" if formed else algorithm  # what the inputs are like: the normal form takes anything
        self.origin = rng.choice([MINUS_INFINITY, MINUS_INFINITY, rng.randrange(5, 20)])
        horizon = HORIZON if algorithm == "R0" else rng.choice([6, HORIZON])  # so that there are many with equal vs
        self.events = events(rng, self._kind, count=rng.randrange(3, 10), horizon=horizon)
        if formed or (self.origin > MINUS_INFINITY and algorithm in ORDERED):
            self.events = [Event(e.payload, e.vs, e.vs + 9) if e.ve == INFINITY else e for e in self.events]
        self.config = LaneConfig(
            merge="m",
            algorithm=cast("Any", algorithm),
            policy=OutputPolicy.parse(policy),
            origin=self.origin,
            normal_form=formed,
            cut_every_ms=rng.choice([4, 10]) if formed else None,
            lag_ms=rng.choice([None, 3]),
            signal_interval_ms=1000,
            longest_lifetime_ms=max((event.ve - event.vs for event in self.events), default=0),
        )

    def present(self, joins_at: int) -> list[Element]:
        """Return a physical stream of it."""
        return on_the_wire(present(self._kind, self.events, self._rng, joins_at))

    def void(self) -> list[Element]:
        """Return a part of a physical stream of something else."""
        other = events(self._rng, self._kind, count=4, horizon=HORIZON)
        stream = on_the_wire(present(self._kind, other, self._rng, self._rng.choice([MINUS_INFINITY, 7])))
        return stream[: self._rng.randrange(1, len(stream) + 1)]

    @property
    def complete_from(self) -> int:
        """From where the output has to be right."""
        complete_from = self.config.complete_from
        assert complete_from is not None
        return complete_from

    def is_shown_by(self, tdb: TDB) -> bool:
        """Tell whether an output is right, from where it has to be."""
        wire: list[Element] = [Insert(payload(e.payload), e.vs, e.ve) for e in self.events]
        if self.config.normal_form:
            cut_every = self.config.cut_every_ms
            wire = list(normal_form([*wire, Stable(INFINITY)], cut_every, label=json_pair))
        expected = TDB()
        for element in wire:
            expected.apply(element)
        return self._shown(tdb) == self._shown(expected)

    def _shown(self, events: Iterable[Event]) -> TDB:
        floor = self.complete_from
        begin = floor if self.config.algorithm in ORDERED else MINUS_INFINITY  # they put out nothing before (RS 5.6)
        return TDB(event for event in events if event.ve >= floor and event.vs >= begin)


@dataclass
class Replica:
    """One replica: its topic, and what it will still write."""

    topic: str
    log: Log
    pending: list[Element]
    joins_at: int | None = None
    """What the attach call has to say."""
    incarnation: int = 1
    stable: int = MINUS_INFINITY
    """The last one written of this incarnation."""
    sure_from: int = -1
    """Until the lane has read past this offset, what it says of the input is out of date."""
    lost_below: int = -1
    """Retention has removed what the lane had not read: only an incarnation that begins later counts."""
    broken: bool = False
    """It has written something that it must not,"""
    bad_at: int = -1
    """and there."""
    tainted: bool = False
    """So its incarnation cannot be read from the start, unless the lane knows what to skip."""
    must_stop: bool = False
    """The lane cannot miss that. An adjust of nothing is settled like any other where the output is past it."""

    @property
    def is_silent(self) -> bool:
        """Whether its topic is empty."""
        return self.log.until <= self.log.low

    def write(self, elements: Sequence[Element], *, markers: int = 0) -> None:
        """Write elements to the topic."""
        for element in elements:
            if isinstance(element, Stable):
                self.stable = element.vc
            elif isinstance(element, Hello):
                self.stable = MINUS_INFINITY
        self.log.append(encode_batch(elements), markers=markers)

    def write_pending(self, count: int | None = None, *, markers: int = 0) -> None:
        """Write the next elements of its stream; all if no number is given."""
        count = len(self.pending) if count is None else count
        some, self.pending = self.pending[:count], self.pending[count:]
        self.write(some, markers=markers)

    def begin_anew(self, joins_at: int, body: list[Element], *, markers: int = 0) -> None:
        """Begin a new incarnation: the hello is written now, the rest is to come."""
        self.incarnation += 1
        self.broken = self.must_stop = self.tainted = False
        self.write([Hello(replica=self.topic, incarnation=self.incarnation, joins_at=joins_at)], markers=markers)
        self.sure_from = self.log.until - 1
        self.pending = body[1:] if isinstance(body[0], Hello) else body

    def write_bad(self, record: bytes | None, *, must_stop: bool) -> None:
        """Write a record that breaks the contract."""
        self.log.append([record])
        self.bad_at = self.log.until - 1
        self.broken = self.tainted = True
        self.must_stop = must_stop
