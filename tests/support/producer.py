"""A replica without Spark: it writes a physical stream to the lanes of its topic, crashes, goes on, and begins anew.

    producer = Producer(settings, "m.r1", partitions=2)
    producer.begin(stream)              # a foreign one: no hello
    producer.send(20)                   # the next 20 elements, in one transaction over all lanes
    producer.crash(5)                   # leaves a transaction open
    producer.restart()                  # warm: fences, and goes on with the very same elements
    producer.begin(other, hello)        # cold: another incarnation

An insert or adjust goes to the lane that the crc32 of its payload names, everything else to every lane.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from lmerge import INFINITY, Adjust, Element, Event, Hello, Insert, Skip, Stable
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TransactionalWriter
from tests.support.logical import on_the_wire


def lanes_of(elements: Iterable[Element], partitions: int) -> list[list[Element]]:
    """Put elements, as they are on the wire, into their lanes."""
    lanes: list[list[Element]] = [[] for _ in range(partitions)]
    for element in elements:
        if isinstance(element, Insert | Adjust):
            lanes[zlib.crc32(_bytes(element)) % partitions].append(element)
        else:
            for lane in lanes:
                lane.append(element)
    return lanes


class Producer:
    """Writes to one topic as a replica would."""

    def __init__(self, settings: KafkaSettings, topic: str, partitions: int) -> None:
        self.topic = topic
        self.incarnation = 0
        self.is_dead = False
        self._settings = settings
        self._partitions = partitions
        self._stream: list[Element] = []
        self._position = 0
        self._writers: list[TransactionalWriter] = []

    @property
    def is_done(self) -> bool:
        """Whether everything has been sent."""
        return self._position == len(self._stream)

    @property
    def progress(self) -> float:
        """The part of the stream that has been sent."""
        return self._position / max(1, len(self._stream))

    def begin(self, stream: Sequence[Element], hello: Hello | None = None) -> None:
        """Begin an incarnation with a stream that has no hello, and say hello if there is one."""
        self._stream = on_the_wire(stream)
        self._position = 0
        self.restart()
        if hello is not None:
            self.incarnation += 1
            hello = msgspec.structs.replace(hello, replica=self.topic, incarnation=self.incarnation)
            self._commit([hello])

    def restart(self) -> None:
        """Go on after a crash, where the last committed transaction ended."""
        writer = TransactionalWriter(self._settings, self.topic)
        self._writers.append(writer)
        writer.fence()
        self.is_dead = False

    def send(self, count: int) -> None:
        """Write the next elements in one transaction."""
        batch = self._stream[self._position : self._position + count]
        self._commit(batch)
        self._position += len(batch)

    def send_a_stable(self) -> None:
        """Write everything up to the next stable: after it, every lane has heard of this producer."""
        rest = self._stream[self._position :]
        self.send(1 + next(place for place, element in enumerate(rest) if isinstance(element, Stable)))

    def send_rest(self) -> None:
        """Write everything that is left."""
        while not self.is_done:
            self.send(500)

    def crash(self, count: int) -> None:
        """Die in the middle of a transaction with the next elements: readers wait behind it until a successor came."""
        self._writers[-1].begin()
        self._write(self._stream[self._position : self._position + count])
        self.is_dead = True

    def skip(self, before: int, reference: Sequence[Event]) -> None:
        """Fast-forward: say so, and leave out events that end before `before` and of which nothing was sent."""
        begun = {_key(e) for e in self._stream[: self._position] if isinstance(e, Insert)}
        ends: dict[tuple[bytes, int], int] = {}
        for element in on_the_wire(Insert(e.payload, e.vs, e.ve) for e in reference):
            assert isinstance(element, Insert)
            ends[_key(element)] = max(element.ve, ends.get(_key(element), 0))
        rest = [
            element
            for element in self._stream[self._position :]
            if not isinstance(element, Insert | Adjust)
            or _key(element) in begun
            or ends.get(_key(element), INFINITY) >= before
        ]
        self._stream[self._position :] = [Skip(before), *rest]
        self.send(1)

    def _commit(self, elements: Sequence[Element]) -> None:
        if elements:
            with self._writers[-1].transaction():
                self._write(elements)

    def _write(self, elements: Sequence[Element]) -> None:
        for partition, lane in enumerate(lanes_of(elements, self._partitions)):
            if lane:
                values = encode_batch(lane)
                self._writers[-1].write(self.topic, partition, [(None, value) for value in values])

    def close(self) -> None:
        """Drop all connections, those of the dead too."""
        for writer in self._writers:
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(element: Insert | Adjust) -> tuple[bytes, int]:
    return _bytes(element), element.vs


def _bytes(element: Insert | Adjust) -> bytes:
    assert isinstance(element.payload, bytes)  # as it is on the wire
    return element.payload
