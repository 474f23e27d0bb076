"""Reading on and on: committed records of many partitions, in the order of each, the topics in turns.

The caller says where each partition begins and keeps the positions, such as the offset of the last record + 1. Nothing
is stored in Kafka, and no group is joined. Partitions come and go while it runs, and the others do not notice; one that
cannot be read any more leaves by itself, with an error that names it.

Each topic has a consumer of its own. Partitions of one consumer share one queue, and when it is full librdkafka fetches
whichever partition happens to be asked first when there is room again: one with a backlog starves the others until its
backlog is read (ADR 7).
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from confluent_kafka import Consumer, Message, TopicPartition

from lmerge.errors import UsageError
from lmerge.kafka.closing import Closing
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import BrokerError, RetryError, is_partition_end
from lmerge.kafka.record import Record, to_record
from lmerge.kafka.settings import KafkaSettings

BATCH_RECORDS: Final = 2_000
"""The most that one poll returns; the topics share it. From 100 to 5,000 the speed is the same."""

WAIT_SECONDS: Final = 0.005
"""How long a poll waits for one of several topics before it looks at the others again."""

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""

_Messages: TypeAlias = "list[Message[Any, Any]]"


class Batch(NamedTuple):
    """Consecutive committed records of one partition: offsets and values side by side, for those who need no more."""

    offsets: Sequence[int]
    values: list[bytes | None]
    first_timestamp: int
    """Kafka's timestamp of the first of them, in milliseconds."""


class PartitionReader(Closing):
    """Reads committed records of many partitions; for one thread.

    What waits is bounded by `KafkaSettings`: for each topic 16 MB and about 10,000 records. When nobody polls, fetching
    pauses.

    Args:
        settings: the cluster.
        batch_records: the most that one poll returns, shared by the topics; at least a record of each.
    """

    def __init__(self, settings: KafkaSettings, *, batch_records: int = BATCH_RECORDS) -> None:
        if batch_records < 1:
            raise UsageError(f"batch_records {batch_records}: a poll must be able to return a record")
        self._batch_records = batch_records
        self._edge = Edge(settings.bootstrap_servers)
        self._config = {**settings.consumer("lmerge-reader"), "error_cb": self._edge.note}
        # In the order of their turns: whoever was waited for last comes last.
        self._consumers: dict[str, Consumer] = {}
        self._partitions: set[Partition] = set()
        # Partitions that were removed and not added again: a record of theirs may be on its way still.
        self._removed: set[Partition] = set()
        # Partitions that left by themselves, until they are added again or removed.
        self._failed: dict[Partition, BrokerError] = {}
        # By partition, the end that a poll has met last since it was added, and when by the monotonic clock.
        self._ended: dict[Partition, tuple[int, float]] = {}
        self.left_some = False
        """Whether the last poll took of some topic all that it may take at once: then there is likely more."""
        # Failures that no poll has raised yet, and whose they are.
        self._failures: deque[tuple[BrokerError, Partition | None]] = deque()

    @property
    def partitions(self) -> frozenset[Partition]:
        """What is being read."""
        return frozenset(self._partitions)

    @property
    def failed(self) -> dict[Partition, BrokerError]:
        """The partitions that cannot be read any more, and why; each error was raised by a poll, or will be."""
        return dict(self._failed)

    @property
    def ended(self) -> dict[Partition, int]:
        """The partitions of which all was read, at least once, that was committed, with the end that they had then.

        They may have grown since. An end tells more than the last record: what is before it may be markers.
        """
        return {partition: end for partition, (end, _) in self._ended.items()}

    def settled(self, seconds: float) -> dict[Partition, int]:
        """Return of `ended` what was met so long ago, or longer."""
        latest = time.monotonic() - seconds
        return {partition: end for partition, (end, met) in self._ended.items() if met <= latest}

    def add(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to read partitions, each at its offset, which need not be that of a record.

        Look first whether the topics exist (`TopicAdmin.describe`): one that does not may stay silent for long.

        Raises:
            UsageError: one of them is being read already.
            StopError: the client library refuses.
        """
        self._require_open()
        if known := self._partitions.intersection(offsets):
            raise UsageError(f"partitions {_show(known)} are being read already; remove them first")
        with self._edge.calling(f"cannot begin to read {_show(offsets)}", _serve_nothing):
            for topic, numbers in _by_topic(offsets).items():
                consumer = self._consumers.get(topic)
                if consumer is None:
                    consumer = self._consumers[topic] = Consumer(self._config)
                consumer.incremental_assign([TopicPartition(topic, n, offsets[topic, n]) for n in numbers])
        self._partitions.update(offsets)
        self._removed.difference_update(offsets)
        for partition in offsets:
            self._ended.pop(partition, None)
            self._failed.pop(partition, None)

    def remove(self, *partitions: Partition) -> None:
        """Stop reading partitions; those that are not read are none already. No later poll returns records of them.

        Raises:
            StopError: the client library refuses.
        """
        self._require_open()
        gone = self._partitions.intersection(partitions)
        with self._edge.calling(f"cannot stop reading {_show(gone)}", _serve_nothing):
            for topic, numbers in _by_topic(gone).items():
                self._consumers[topic].incremental_unassign([TopicPartition(topic, number) for number in numbers])
        self._partitions -= gone
        self._removed |= gone
        for partition in partitions:
            self._failed.pop(partition, None)
            self._ended.pop(partition, None)
        # Whoever removes a partition that has failed knows of it: no poll need say so again.
        self._failures = deque(each for each in self._failures if each[1] not in partitions)

    def poll(self, timeout_seconds: float) -> list[Record]:
        """Wait for records and return what is there, each partition's in order; empty if none came in time.

        A broker that is away is waited for, in silence: then nothing comes.

        Raises:
            RecordsGone: a partition's position is not in the log. That partition is not read any more and is in
                `failed`; the others go on with the next poll. Nothing that was read is lost.
            StopError: another reason why one partition, or none at all, can be read.
        """
        return [to_record(message) for messages in self._poll(timeout_seconds).values() for message in messages]

    def poll_batches(self, timeout_seconds: float) -> dict[Partition, Batch]:
        """Wait as `poll` does and return the same records, by partition, without what few need. Half the cost.

        Raises:
            RecordsGone: as `poll`.
            StopError: as `poll`.
        """
        batches: dict[Partition, Batch] = {}
        for topic, messages in self._poll(timeout_seconds).items():
            for number, part in self._by_partition(topic, messages).items():
                values = [message.value() for message in part]
                batches[topic, number] = Batch(_offsets(part), values, part[0].timestamp()[1])
        return batches

    def _poll(self, timeout_seconds: float) -> dict[str, _Messages]:
        deadline = Deadline(timeout_seconds)
        self._close_unused()
        while True:
            if self._failures:
                raise self._failures.popleft()[0]
            taken = self._take() or self._wait(deadline)
            if taken or (deadline.passed and not self._failures):
                return taken

    def _take(self, first: Mapping[str, _Messages] = MappingProxyType({})) -> dict[str, _Messages]:
        """Take what is there, of each topic its share, `first` included."""
        self._require_open()
        share = max(1, self._batch_records // max(1, len(self._consumers)))
        taken = dict(first)
        with self._edge.calling(f"cannot read {len(self._partitions)} partitions", _serve_nothing):
            for topic, consumer in self._consumers.items():
                some = taken.setdefault(topic, [])
                if len(some) < share:
                    some += consumer.consume(share - len(some), 0)
        self.left_some = any(len(some) >= share for some in taken.values())
        return self._records(taken)

    def _wait(self, deadline: Deadline) -> dict[str, _Messages]:
        """Wait for a message: of the only topic, or for a moment of the one whose turn it is."""
        if not self._consumers:
            time.sleep(deadline.slice())
            return {}
        topic = next(iter(self._consumers))
        consumer = self._consumers[topic] = self._consumers.pop(topic)
        longest = {} if len(self._consumers) == 1 else {"longest": WAIT_SECONDS}
        with self._edge.calling(f"cannot read {topic}", _serve_nothing):
            first = consumer.poll(deadline.slice(**longest))
        return {} if first is None else self._take({topic: [first]})

    def _records(self, taken: dict[str, _Messages]) -> dict[str, _Messages]:
        """Leave the records; what else messages may be is dealt with here."""
        plain = not self._removed  # then what carries no error is a record: no further call for each of them
        records = {
            topic: [m for m in messages if (plain and m.error() is None) or self._is_record(m)]
            for topic, messages in taken.items()
        }
        return {topic: messages for topic, messages in records.items() if messages}

    def _by_partition(self, topic: str, messages: _Messages) -> dict[int, _Messages]:
        numbers = [number for name, number in self._partitions if name == topic]
        # A partition that failed in this poll has left already, and records that came before its error are in here.
        if len(numbers) == 1 and not self._failures:
            return {numbers[0]: messages}
        parts: dict[int, _Messages] = {}
        for message in messages:
            parts.setdefault(cast("int", message.partition()), []).append(message)
        return parts

    def _close_unused(self) -> None:
        for topic in self._consumers.keys() - {topic for topic, _ in self._partitions}:
            self._consumers.pop(topic).close()

    def _close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _is_record(self, message: "Message[Any, Any]") -> bool:
        """Tell whether a message is a record that is wanted; what else it may be is dealt with here."""
        error = message.error()
        if error is None:
            return not self._removed or (message.topic(), message.partition()) not in self._removed
        topic, partition = message.topic(), message.partition()
        if topic is None or partition is None:
            self._note_failure(self._edge.translate(error, f"cannot read {_show(self._partitions)}"))
        elif is_partition_end(error):
            if (topic, partition) in self._partitions:
                self._ended[topic, partition] = cast("int", message.offset()), time.monotonic()
        elif (topic, partition) in self._partitions:
            fact = f"cannot read {topic}/{partition} at offset {message.offset()}"
            self._note_failure(self._edge.translate(error, fact), (topic, partition))
        return False

    def _note_failure(self, failure: BrokerError, partition: Partition | None = None) -> None:
        if isinstance(failure, RetryError):
            return  # the client library tries again by itself
        if partition is not None:
            self.remove(partition)
            self._failed[partition] = failure
        self._failures.append((failure, partition))


def _offsets(messages: _Messages) -> Sequence[int]:
    """Return the offsets of records of one partition; those between two markers follow each other."""
    first, last = cast("int", messages[0].offset()), cast("int", messages[-1].offset())
    if last - first == len(messages) - 1:
        return range(first, last + 1)
    return cast("list[int]", [message.offset() for message in messages])


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _show(partitions: Iterable[Partition]) -> str:
    """Name partitions, the first few of many."""
    names = [f"{topic}/{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _serve_nothing(_timeout_seconds: float) -> None:
    """Do not poll after a failed call: that would swallow a record. The next poll runs the callbacks."""
