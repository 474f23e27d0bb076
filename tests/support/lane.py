"""The lane that production runs, between in-memory logs: enough of a service to crash it and let it recover.

    lane = MemoryLane("R3")
    lane.attach("r1")
    lane.feed("r1", ins("A", 6, 20))
    lane.commit()
    lane.crash()
    lane.feed("r1", stb(10))
    lane.commit()
    assert lane.merged == [ins("A", 6, 20), stb(10)]

Elements have payloads that a person can read; on the logs they are canonical JSON, as on a topic.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from lmerge import MINUS_INFINITY, Adjust, Element, Hello, Insert, OutputPolicy
from lmerge.codec import decode_batch, encode_batch
from lmerge.signals import Signal
from services.merge.definitions import Attachment, InputDefinition
from services.merge.lane import POSITIONS_MS, Lane, Prepared
from services.merge.lane_config import LaneConfig
from services.merge.lane_record import LaneRecord, decode, encode
from services.merge.recovery import Recovery
from tests.support.logical import on_the_wire


class MemoryLane:
    """One production lane with its inputs' logs, its merged log and its last record."""

    def __init__(
        self, algorithm: Any, policy: OutputPolicy | None = None, origin: int = MINUS_INFINITY, **config: Any
    ) -> None:
        self.config = LaneConfig(
            merge="m", algorithm=algorithm, policy=policy or OutputPolicy(), origin=origin, **config
        )
        self.logs: dict[str, list[bytes]] = {}
        self.wanted: dict[str, Attachment] = {}
        self.log: list[bytes] = []
        """What is committed of the merged topic."""
        self.signals: list[Signal] = []
        """What is committed of the feedback topic."""
        self.lane = Lane(self.config)
        self._record: bytes | None = None
        self._now_ms = 0
        self._attachments = 0
        self._lows: dict[str, int] = {}
        self._decoded: list[Element] = []
        self._read_upto = 0

    @property
    def record(self) -> LaneRecord | None:
        """The committed lane record."""
        return None if self._record is None else decode(self._record)

    @property
    def merged(self) -> list[Element]:
        """What is committed."""
        self._decoded += elements_of(self.log[self._read_upto :])
        self._read_upto = len(self.log)
        return self._decoded

    @property
    def output(self) -> list[Element]:
        """Everything put out so far, committed or not."""
        return self.merged + elements_of(encode_batch(self.lane._pending))

    def attach(self, name: str, *elements: Element, joins_at: int | None = None, low: int = 0) -> None:
        """Attach an input, of whose log the records below `low` are gone, and feed it elements."""
        self._attachments += 1
        definition = InputDefinition(topic=name, joins_at=joins_at)
        self.wanted[name] = Attachment(attachment=f"{name}/{self._attachments}", definition=definition)
        self.logs.setdefault(name, [])
        self._lows[name] = low
        self.follow()
        if elements:
            self.feed(name, *elements)

    def detach(self, name: str) -> None:
        """Detach an input; its log stays."""
        del self.wanted[name]
        self.follow()

    def follow(self) -> None:
        """Let the lane have what is wanted."""
        for name in self.lane.follow(self.wanted):
            self.lane.attach(name, self.wanted[name], low=self._lows[name], until=len(self.logs[name]))

    def feed(self, name: str, *elements: Element) -> None:
        """Append elements to the log of an input and process them, one batch each."""
        self.feed_wire(name, self.wire(*elements))

    def feed_wire(self, name: str, values: list[bytes]) -> None:
        """Append records to the log of an input and process them, one batch each."""
        self.logs[name] += values
        self.run(name)

    @staticmethod
    def wire(*elements: Element) -> list[bytes]:
        """Return elements as they are on a topic."""
        return encode_batch(on_the_wire(elements))

    def run(self, name: str) -> None:
        """Process what the log of an input has, as far as the lane takes it."""
        while name in self.wanted and (read := self.lane.reads().get(name)) is not None and read < len(self.logs[name]):
            self.take(name, read + 1)

    def take(self, name: str, upto: int) -> None:
        """Give the lane what it has not read of an input, up to an offset, as one batch."""
        read = self.lane.inputs[name].cursor
        self.lane.begin_batch(merged_end=len(self.log), now_ms=0)
        self.lane.take(name, range(read, upto), self.logs[name][read:upto])
        self.lane.moved.clear()

    def prepare(self) -> Prepared | None:
        """Write a transaction and leave it open; None if there is nothing to write."""
        self._now_ms += POSITIONS_MS  # what is to wait has waited
        return self.lane.prepare(now_ms=self._now_ms)

    def commit(self) -> None:
        """Make the output and the lane record durable together."""
        prepared = self.prepare()
        if prepared is not None:
            self.log += prepared.values
            self.signals += prepared.signals
            self._record = encode(prepared.record)
            self.lane.committed(now_ms=self._now_ms)

    def joined(self, name: str) -> bool:
        """Tell whether the *committed* state has the input joined: what the outside may see (E21)."""
        return self.record is not None and name in self.record.inputs and self.record.inputs[name].joined

    def crash(self, *, refeed: Iterable[str] | None = None) -> None:
        """Lose everything that is not committed and recover; re-feed the named inputs at once (default: all)."""
        record = self.record
        if record is None:
            self.lane = Lane(self.config)
        else:
            recovery = Recovery(self.config, record, self.wanted)
            elements, error = decode_batch(self.log[record.merged_safe :])
            assert error is None
            recovery.merged(elements)
            self.lane = recovery.lane()
        self.follow()
        for name in list(self.wanted) if refeed is None else refeed:
            self.refeed(name)

    def refeed(self, name: str, upto: int | None = None) -> None:
        """Go on re-feeding an input, as far as `upto`, or to where it had come."""
        end = self.lane.inputs[name].position if upto is None else upto
        if self.lane.inputs[name].cursor < end:
            self.take(name, end)


def elements_of(values: Sequence[bytes | None]) -> list[Element]:
    """Decode elements, with payloads as the tests write them, and without the hello that opens a merged topic."""
    elements, error = decode_batch(values)
    assert error is None
    return [
        msgspec.structs.replace(element, payload=msgspec.json.decode(cast("bytes", element.payload)))
        if isinstance(element, Insert | Adjust)
        else element
        for element in elements
        if not isinstance(element, Hello)
    ]
