"""Reading what is committed: the end of a partition, its last record, a range of records.

The end of a partition does not tell where its last record is. Each commit and each abort takes an offset of its own (a
marker), aborted records keep theirs, and records of an open transaction are there already. So `read_tail` reads: from
a few offsets before the end up to the event that says "all that is committed was read"; if nothing came, from eight
times as far back, until the start of the log. One such search takes 5 ms where the last transaction was committed,
16 ms behind 3,000 aborted records.

That event is believed only when it comes a second time, from where the first look ended. Once, on a busy machine,
a range that held records seems to have been told to be at its end at once; it could not be brought about again.
What rests on a tail, exactly once, is worth the 5 ms. Where the last record of a range stands at its very end, no event
is needed.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, Message, TopicPartition

from lmerge.errors import UsageError
from lmerge.kafka.closing import Closing
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import MissingTopic, RecordsGone, RetryError, Undecided, is_partition_end, translate
from lmerge.kafka.record import Record, to_record
from lmerge.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 1_000
"""Records per batch of a range. From 100 to 5,000 the speed is the same."""

TIMEOUT_SECONDS: Final = 30.0
"""How long a read may make no progress: a restarted broker is back in 2 s, one that loads a large log in 20."""

DECISION_SECONDS: Final = 10.0
"""How long a decision may take to reach a partition: milliseconds, or a restart of its broker."""

Serve: TypeAlias = Callable[[float], object]
"""Lets a client run its callbacks."""

_DECISION_WAIT: Final = 0.005
_LEADER_WAIT: Final = 0.02
_FIRST_LOOK: Final = 8
_LOOK_GROWTH: Final = 8


class Watermarks(NamedTuple):
    """What a partition holds for a read-committed reader: offsets in ``[low, end)``.

    `end` is the last stable offset: everything below it is decided, nothing at or above it is visible yet. It is not a
    count of records, and `end - 1` is usually a marker.
    """

    low: int
    end: int


class TailReader(Closing):
    """Reads committed records of any partition, by one kept connection; for one thread.

    Between calls it costs nothing. A range that is being iterated ends when the next call on the same reader begins.

    Args:
        settings: the cluster.
        timeout_seconds: how long to wait for a broker before a call fails with `RetryError`.
    """

    def __init__(self, settings: KafkaSettings, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._edge = Edge(settings.bootstrap_servers)
        with self._edge.calling("reader cannot be made", lambda _: None):
            self._consumer = Consumer({**settings.tail(), "error_cb": self._edge.note})
            # Sees undecided records too; it only asks for ends.
            self._log_reader = Consumer(
                {**settings.tail(), "isolation.level": "read_uncommitted", "error_cb": self._edge.note}
            )
        # Counts the reads: an older iterator sees by it that the consumer reads for somebody else now.
        self._reads = 0
        # What came while the client ran its callbacks, of the range that is being read.
        self._met: list[Message[Any, Any]] = []

    def watermarks(self, topic: str, partition: int) -> Watermarks:
        """Ask the broker for the start and the committed end of a partition (0.6 ms).

        Raises:
            MissingTopic: there is no such topic or partition.
            RetryError: nobody answered in time.
        """
        return self._watermarks(self._consumer, self._serve, topic, partition)

    def require_decided(self, topic: str, partition: int, *, timeout_seconds: float = DECISION_SECONDS) -> None:
        """Wait until every record that the log holds now is committed or aborted.

        For a takeover, between `fence()` and `read_tail()`, on partitions that have one writer at a time: there, what
        was fenced is decided, and this returns at once. It does not if a broker has lost the decision. A Kafka 4 broker
        does so when all replicas of the partition were down at the wrong moment (KAFKA-20734), as when the only broker
        is killed right after a commit. The tail then lacks a transaction whose commit has succeeded, and the next
        commit of the same id makes its records visible after all: who goes on by the tail writes them twice.

        Raises:
            Undecided: not decided in time.
            MissingTopic: there is no such topic or partition.
            RetryError: nobody answered in time.
        """
        log_end = self._watermarks(self._log_reader, self._log_reader.poll, topic, partition).end
        deadline = Deadline(timeout_seconds)
        while (end := self.watermarks(topic, partition).end) < log_end:
            if deadline.passed:
                raise Undecided(
                    f"records [{end}, {log_end}) of {topic}/{partition} are neither committed nor aborted after "
                    f"{deadline.seconds:g} s; {Undecided.advice}"
                )
            time.sleep(_DECISION_WAIT)

    def read_tail(self, topic: str, partition: int) -> Record | None:
        """Find the last committed record of a partition, or None if it holds none.

        Who must not miss a record fences its writer first: a commit is visible some milliseconds after it returned, an
        unfenced writer may commit at any moment.

        Raises:
            MissingTopic: there is no such topic or partition.
            RetryError: nobody answered in time.
        """
        back = _FIRST_LOOK
        while True:
            low, end = self.watermarks(topic, partition)
            start = max(low, end - back)
            last = None
            try:
                for batch in self.read_range(topic, partition, start=start, end=end):
                    last = batch[-1]
            except RecordsGone:
                continue  # deleted between the question and the read: ask again where the log begins
            if last is not None or start == low:
                return last
            back *= _LOOK_GROWTH

    def read_range(
        self,
        topic: str,
        partition: int,
        *,
        start: int,
        end: int | None = None,
        batch_records: int = BATCH_RECORDS,
    ) -> Iterator[list[Record]]:
        """Read the committed records with offsets in ``[start, end)``, in order, as batches that are never empty.

        Args:
            topic: which topic.
            partition: which of its partitions.
            start: the first offset; it need not be that of a record.
            end: the offset after the last; left out, the committed end at this moment.
            batch_records: the most that a batch holds.

        Raises:
            MissingTopic: there is no such topic or partition.
            RecordsGone: the log begins after `start`, or what is committed ends before `end`.
            RetryError: no progress in time. Read on from the last record's offset + 1.
            UsageError: `start` is behind `end`, or another read on this reader began.
        """
        low, committed = self.watermarks(topic, partition)
        end = committed if end is None else end
        name = f"{topic}/{partition}"
        if start > end:
            raise UsageError(f"range [{start}, {end}) of {name}: it begins after its end")
        if not low <= start or not end <= committed:
            raise RecordsGone(
                f"range [{start}, {end}) of {name} is not there: it holds [{low}, {committed}); {RecordsGone.advice}"
            )
        self._reads += 1
        return self._read(TopicPartition(topic, partition, start), name, end, batch_records, self._reads)

    def _close(self) -> None:
        self._consumer.close()
        self._log_reader.close()

    def _serve(self, timeout_seconds: float) -> None:
        """Let the client run its callbacks; a record that comes out of it belongs to the range that is being read."""
        message = self._consumer.poll(timeout_seconds)
        if message is not None:
            self._met.append(message)

    def _watermarks(self, consumer: Consumer, serve: Serve, topic: str, partition: int) -> Watermarks:
        """Ask, and ask again while the partition has no leader: just made, or on a broker that comes back."""
        deadline = Deadline(self._timeout_seconds)
        while True:
            try:
                return self._ask(consumer, serve, TopicPartition(topic, partition), max(deadline.left, _LEADER_WAIT))
            except MissingTopic:
                # The client library remembers for minutes that a topic is missing, also when it was made meanwhile, and
                # says so of one whose only broker is away for a moment. The cluster knows.
                if deadline.passed or not self._is_there(consumer, serve, topic, partition, deadline):
                    raise
                time.sleep(_LEADER_WAIT)
            except RetryError:
                if deadline.passed:
                    raise
                time.sleep(_LEADER_WAIT)

    def _is_there(self, consumer: Consumer, serve: Serve, topic: str, partition: int, deadline: Deadline) -> bool:
        with self._edge.calling(f"cannot look for topic {topic}", serve):
            found = consumer.list_topics(topic, max(deadline.left, _LEADER_WAIT))
        return partition in found.topics[topic].partitions

    def _ask(self, consumer: Consumer, serve: Serve, where: TopicPartition, timeout_seconds: float) -> Watermarks:
        self._require_open()
        with self._edge.calling(f"cannot ask for the end of {where.topic}/{where.partition}", serve):
            return Watermarks(*consumer.get_watermark_offsets(where, timeout_seconds))

    def _read(
        self, start: TopicPartition, name: str, end: int, batch_records: int, read: int
    ) -> Iterator[list[Record]]:
        place, looked = start.offset, False
        try:
            while place < end:
                before = place
                for batch in self._look(
                    TopicPartition(start.topic, start.partition, place), name, end, batch_records, read
                ):
                    place = batch[-1].offset + 1
                    yield batch
                if place == before and looked:
                    return  # there are only markers, or aborted records, up to the end
                if looked and place > before:
                    log.warning("%s at offset %d: its end was told too early", name, before)
                looked = True
        finally:
            # While it is assigned, the consumer asks the broker for more every millisecond.
            if not self._is_closed and self._reads == read:
                self._consumer.unassign()

    def _look(
        self, start: TopicPartition, name: str, end: int, batch_records: int, read: int
    ) -> Iterator[list[Record]]:
        """Read until a record at or behind ``end - 1``, or the event that tells the end of what is committed."""
        self._check_turn(name, read).assign([start])
        self._met.clear()
        place, ended = start.offset, False
        while not ended:
            messages = [
                message
                for message in self._poll(name, read, batch_records)
                if (message.topic(), message.partition()) == (start.topic, start.partition)
            ]
            ended = any(_is_end(message, end) for message in messages)
            records = [to_record(message) for message in messages if message.error() is None]
            batch = take(records, name, start=start.offset, place=place, end=end)
            if batch:
                place = batch[-1].offset + 1
                yield batch

    def _poll(self, name: str, read: int, most: int) -> "list[Message[Any, Any]]":
        """Wait for the first message, then take what is there: `consume` alone would wait for all of them."""
        deadline = Deadline(self._timeout_seconds)
        while not deadline.passed:
            consumer = self._check_turn(name, read)
            with self._edge.calling(f"cannot read {name}", consumer.poll):
                first = self._met.pop(0) if self._met else consumer.poll(deadline.slice())
                if first is None:
                    continue
                # What was met came before what the client still has.
                messages = [first, *self._met[: most - 1]]
                del self._met[: most - 1]
                if len(messages) < most:
                    messages += consumer.consume(most - len(messages), 0)
            for message in messages:
                error = message.error()
                if error is not None and not is_partition_end(error):
                    raise translate(error, f"cannot read {name} at offset {message.offset()}")
            return messages
        raise RetryError(f"no records of {name} for {deadline.seconds:g} s: {RetryError.advice}")

    def _check_turn(self, name: str, read: int) -> Consumer:
        if read != self._reads:
            raise UsageError(f"range of {name}: another read on this reader has begun; use two readers")
        self._require_open()
        return self._consumer


def take(records: Sequence[Record], name: str, *, start: int, place: int, end: int) -> list[Record]:
    """Return the records of a range that come next.

    A partition's records come in the order of their offsets, with gaps where there are markers. Those below `start`
    are what an earlier read has left behind. One that comes after a later one tells that one of the two is none of
    this read, and not which: then nothing of the read can be trusted.

    Args:
        records: what was read.
        name: of the partition.
        start: where the read began.
        place: behind the last record that was taken.
        end: behind the range.

    Raises:
        RetryError: an offset comes again, or goes back.
    """
    taken = []
    for record in records:
        offset = record.offset
        if place <= offset < end:
            taken.append(record)
            place = offset + 1
        elif start <= offset < place:
            raise RetryError(f"{name}: the record at offset {offset} came after that at {place - 1}; read it again")
    return taken


def _is_end(message: "Message[Any, Any]", end: int) -> bool:
    """Tell whether nothing below `end` can follow: the end of what is committed, or a record at or after end - 1."""
    offset = message.offset()
    assert offset is not None  # only messages with other errors lack it
    return offset >= end or (message.error() is None and offset == end - 1)
