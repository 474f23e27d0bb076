"""Reading on and on: committed records of many partitions, in the order of each, by one consumer.

The caller says where each partition begins and keeps the positions: the offset of the last record taken + 1. Nothing
is stored in Kafka, and no group is joined. Partitions come and go while it runs, and the others do not notice; one that
cannot be read any more leaves by itself, with an error that names it.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

from confluent_kafka import Consumer, Message, TopicPartition

from lmerge.errors import UsageError
from lmerge.kafka.closing import Closing
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import BrokerError, RetryError, is_partition_end
from lmerge.kafka.record import Record, to_record
from lmerge.kafka.settings import KafkaSettings

BATCH_RECORDS: Final = 1_000
"""The most that one poll returns. From 100 to 5,000 the speed is the same."""

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""


class Batch(NamedTuple):
    """Consecutive committed records of one partition: offsets and values side by side, for those who need no more."""

    offsets: list[int]
    values: list[bytes | None]
    first_timestamp: int
    """Kafka's timestamp of the first of them, in milliseconds."""


class PartitionReader(Closing):
    """Reads committed records of many partitions; for one thread.

    What waits in its queue is bounded by `KafkaSettings` (16 MB, and per partition about 10,000 records); when nobody
    polls, fetching pauses.

    Args:
        settings: the cluster.
        batch_records: the most that one poll returns.
    """

    def __init__(self, settings: KafkaSettings, *, batch_records: int = BATCH_RECORDS) -> None:
        if batch_records < 1:
            raise UsageError(f"batch_records {batch_records}: a poll must be able to return a record")
        self._batch_records = batch_records
        self._edge = Edge(settings.bootstrap_servers)
        config = {**settings.consumer("lmerge-reader"), "error_cb": self._edge.note}
        with self._edge.calling("reader cannot be made", _serve_nothing):
            self._consumer = Consumer(config)
        self._partitions: set[Partition] = set()
        # Partitions that were removed and not added again: a record of theirs may be on its way still.
        self._removed: set[Partition] = set()
        # Partitions that left by themselves, until they are added again or removed.
        self._failed: dict[Partition, BrokerError] = {}
        # By partition, the end that a poll has met last since it was added.
        self._ended: dict[Partition, int] = {}
        # Failures that no poll has raised yet.
        self._failures: deque[BrokerError] = deque()

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
        return dict(self._ended)

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
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        with self._edge.calling(f"cannot begin to read {_show(offsets)}", _serve_nothing):
            self._consumer.incremental_assign(wanted)
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
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in gone])
        self._partitions -= gone
        self._removed |= gone
        for partition in partitions:
            self._failed.pop(partition, None)

    def poll(self, timeout_seconds: float) -> list[Record]:
        """Wait for records and return what is there, each partition's in order; empty if none came in time.

        A broker that is away is waited for, in silence: then nothing comes.

        Raises:
            RecordsGone: a partition's position is not in the log. That partition is not read any more and is in
                `failed`; the others go on with the next poll. Nothing that was read is lost.
            StopError: another reason why one partition, or none at all, can be read.
        """
        return [to_record(message) for message in self._poll(timeout_seconds)]

    def poll_batches(self, timeout_seconds: float) -> dict[Partition, Batch]:
        """Wait as `poll` does and return the same records, by partition, without what few need. Half the cost.

        Raises:
            RecordsGone: as `poll`.
            StopError: as `poll`.
        """
        batches: dict[Partition, Batch] = {}
        for message in self._poll(timeout_seconds):
            partition = cast("Partition", (message.topic(), message.partition()))
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = Batch([], [], message.timestamp()[1])
            batch.offsets.append(cast("int", message.offset()))
            batch.values.append(message.value())
        return batches

    def _poll(self, timeout_seconds: float) -> "list[Message[Any, Any]]":
        deadline = Deadline(timeout_seconds)
        while True:
            if self._failures:
                raise self._failures.popleft()
            taken = self._take(deadline.slice())
            plain = not self._removed  # then what carries no error is a record: no call for each of them
            messages = [m for m in taken if (plain and m.error() is None) or self._is_record(m)]
            if messages or (deadline.passed and not self._failures):
                return messages

    def _close(self) -> None:
        self._consumer.close()

    def _take(self, timeout_seconds: float) -> "list[Message[Any, Any]]":
        """Wait for the first message, then take what is there: `consume` alone would wait for all of them."""
        self._require_open()
        with self._edge.calling(f"cannot read {len(self._partitions)} partitions", _serve_nothing):
            first = self._consumer.poll(timeout_seconds)
            if first is None:
                return []
            return [first, *self._consumer.consume(self._batch_records - 1, 0)] if self._batch_records > 1 else [first]

    def _is_record(self, message: "Message[Any, Any]") -> bool:
        """Tell whether a message is a record that is wanted; what else it may be is dealt with here."""
        error = message.error()
        if error is None:
            return not self._removed or (message.topic(), message.partition()) not in self._removed
        topic, partition = message.topic(), message.partition()
        if topic is None or partition is None:
            self._note_failure(self._edge.translate(error, f"cannot read {_show(self._partitions)}"))
        elif is_partition_end(error):
            self._ended[topic, partition] = cast("int", message.offset())
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
        self._failures.append(failure)


def _show(partitions: "Mapping[Partition, int] | set[Partition] | frozenset[Partition]") -> str:
    """Name partitions, the first few of many."""
    names = [f"{topic}/{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _serve_nothing(_timeout_seconds: float) -> None:
    """Do not poll after a failed call: that would swallow a record. The next poll runs the callbacks."""
