"""Streams to be judged, from files and from topics: positions and elements, a batch at a time."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from lmerge.codec import decode, decode_batch
from lmerge.errors import MalformedRecord, UsageError
from lmerge.kafka import Closing, KafkaSettings, TailReader, TopicAdmin, Watermarks
from services.certify import Batch, Batches
from services.cli.lines import Lines

STANDARD_INPUT: Final = "-"

_CHUNK: Final = 1 << 18
"""Bytes of a file that are decoded together: about 2,500 elements, by which a judge may read ahead."""


def read_file(name: str, *, start: int = 1) -> Batches:
    """Read a file of elements, or standard input, from the line `start` on."""
    if name == STANDARD_INPUT:
        yield from _read_lines(name, sys.stdin.buffer, start)
        return
    with Path(name).open("rb") as stream:
        yield from _read_lines(name, stream, start)


def _read_lines(name: str, stream: BinaryIO, start: int) -> Iterator[Batch]:
    lines = Lines(name)
    more = True
    while more:
        chunk = stream.read(_CHUNK)
        more = bool(chunk)
        lines.add(chunk)
        values, numbers = lines.take()
        skipped = sum(number < start for number in numbers) if numbers and numbers[0] < start else 0
        yield from _decoded(values[skipped:], numbers[skipped:])


class Topics(Closing):
    """Topics whose partitions belong together, each topic read by a connection of its own.

    Args:
        settings: the cluster.
        names: the topics; where one follows from others it comes first, so that its end is asked for first.

    Raises:
        MissingTopic: one does not exist.
        UsageError: they do not have equally many partitions, so that partition p of one is not partition p of another.
    """

    def __init__(self, settings: KafkaSettings, names: Sequence[str]) -> None:
        counts = {name: topic.partitions for name, topic in TopicAdmin(settings).describe(*names).items()}
        if len(set(counts.values())) > 1:
            texts = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise UsageError(f"topics with different numbers of partitions cannot be judged together: {texts}")
        self.partitions = range(counts[names[0]])
        self._readers = {name: TailReader(settings) for name in names}

    def ranges(self, partition: int) -> dict[str, Watermarks]:
        """Ask what each topic holds, in the order in which they were named."""
        return {name: reader.watermarks(name, partition) for name, reader in self._readers.items()}

    def read(self, topic: str, partition: int, *, start: int, end: int) -> Batches:
        """Read the committed records with offsets in ``[start, end)``; of each topic one partition at a time."""
        for records in self._readers[topic].read_range(topic, partition, start=start, end=end):
            yield from _decoded([record.value for record in records], [record.offset for record in records])

    def _close(self) -> None:
        """Drop the connections."""
        for reader in self._readers.values():
            reader.close()


def _decoded(values: Sequence[bytes | None], positions: Sequence[int]) -> Iterator[Batch]:
    elements, error = decode_batch(values)
    if error is None:
        yield Batch(elements, positions)
        return
    yield Batch(elements, positions[: error.index + 1], error.reason)
    for value, position in zip(values[error.index + 1 :], positions[error.index + 1 :], strict=True):
        try:
            yield Batch([decode(value)], [position])
        except MalformedRecord as failure:
            yield Batch([], [position], failure.reason)
