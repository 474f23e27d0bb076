"""A feed for tests of replicas: rows on a real broker, heartbeats that the test writes itself, and the true answer.

    world = FeedWorld(settings, "feed-1", partitions=3)
    world.write_rows("bids", rows_of(seed=1, …))        in transactions, aborted ones in between
    world.cut("bids", steps=60, lag_ms=(0, 30_000))     cuts that read the partitions at different speeds
    world.beat(tau=…)                                   a heartbeat alone: tau rises, the ends stay

Every cut asserts which rows do not count: none, unless the test has planted some and says how many.

The truth is plain Python over the same rows, and shares nothing with the replicas.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from lmerge import TDB, Element, Event, reconstitute
from lmerge.canonical import payload
from lmerge.codec import decode_batch
from lmerge.feed import CutMaker, FeedDefinition, Heartbeat, Reason, Row, Source, read_timestamp
from lmerge.kafka import KafkaSettings, Record, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from replicas.windows import Windows
from tests.support.kafka import committed, committed_in, grow_topic

START_MS = 1_767_225_600_000
DISORDER_MS = 2_000


class Placed(Protocol):
    """A row for a partition of a source."""

    @property
    def partition(self) -> int: ...

    def encode(self) -> bytes: ...


class Bid(NamedTuple):
    """A row of a source."""

    partition: int
    auction: int
    ts: int

    def encode(self) -> bytes:
        """Give the record's value."""
        return msgspec.json.encode({"auction": self.auction, "bidder": 1, "price": 250, "date_time": self.ts})


def wait_seldom(condition: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Wait for what a replica does: a look every 0.1 s leaves the cores to Spark, every 2 ms took a third of them."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def bids(seed: int, *, count: int, partitions: int, seconds: int, start_ms: int = START_MS) -> list[Bid]:
    """Make bids in the order of each partition, out of order by less than the bound."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        ts = start_ms + number * seconds * 1000 // count
        made.append((ts + rng.randrange(DISORDER_MS), Bid(rng.randrange(partitions), 1_000 + rng.randrange(20), ts)))
    return [bid for _, bid in sorted(made)]


class FeedWorld:
    """The topics of one feed, and what was written to them. Without `max_ahead_ms` no row is early."""

    def __init__(
        self,
        settings: KafkaSettings,
        name: str,
        *,
        topics: Sequence[str] = ("bids",),
        partitions: int,
        max_ahead_ms: int | None = None,
    ) -> None:
        self.settings = settings
        self.name = name
        self.topics = {topic: f"{name}.{topic}" for topic in topics}
        self.definition = FeedDefinition(
            name=name,
            sources=tuple(
                Source(topic=topic, time="$.date_time", disorder_ms=DISORDER_MS) for topic in self.topics.values()
            ),
            max_ahead_ms=max_ahead_ms,
        )
        specs = [TopicSpec(topic, partitions) for topic in self.topics.values()]
        described = TopicAdmin(settings).ensure(*specs, TopicSpec(self.definition.heartbeats_topic, 1))
        self.feed_id = self.definition.feed_id({name: topic.topic_id for name, topic in described.items()})
        self.last = Heartbeat.start(self.feed_id, dict.fromkeys(self.topics.values(), (0,) * partitions))
        self._partitions = dict.fromkeys(self.topics.values(), partitions)
        self._writer = self._connect()
        self._write_heartbeats([self.last])

    def _connect(self) -> TransactionalWriter:
        writer = TransactionalWriter(self.settings, f"{self.name}/test")
        writer.fence()
        return writer

    def feed_file(self, directory: Path) -> Path:
        """Write the feed's definition as a user would."""
        lines = [f'name = "{self.name}"', f"max_ahead_ms = {self.definition.max_ahead_ms or repr('none')}"]
        for source in self.definition.sources:
            lines += ["[[sources]]", f'topic = "{source.topic}"', f'time = "{source.time}"']
            lines += [f"disorder_ms = {source.disorder_ms}"]
        path = directory / f"{self.name}.toml"
        path.write_text("\n".join(lines))
        return path

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions; the next cut knows them."""
        grow_topic(self.settings, self.topics[topic], partitions)
        self._partitions[self.topics[topic]] = partitions
        self._writer.close()
        self._writer = self._connect()  # the old one would learn of the new partition in minutes

    def write_rows(self, topic: str, rows: Sequence[Placed]) -> None:
        """Write rows in a few transactions, each followed by one that is aborted."""
        step = max(1, len(rows) // 5)
        for first in range(0, len(rows), step):
            by_partition: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
            for row in rows[first : first + step]:
                by_partition[row.partition].append((None, row.encode()))
            for aborts in (False, True):
                self._writer.begin()
                for partition, values in by_partition.items():
                    self._writer.write(self.topics[topic], partition, values[:3] if aborts else values)
                if aborts:
                    self._writer.abort()
                else:
                    self._writer.commit()

    @contextmanager
    def undecided(self, topic: str, rows: Sequence[Bid]) -> Iterator[None]:
        """Write rows in one transaction that is committed when the block ends: nobody can read them before."""
        patient = msgspec.structs.replace(self.settings, transaction_timeout_ms=300_000)
        with TransactionalWriter(patient, f"{self.name}/undecided") as writer:
            writer.fence()
            with writer.transaction():
                for row in rows:
                    writer.write(self.topics[topic], row.partition, [(None, row.encode())])
                yield

    def write_value(self, topic: str, partition: int, value: bytes) -> None:
        """Write one record as it is."""
        with self._writer.transaction():
            self._writer.write(self.topics[topic], partition, [(None, value)])

    def cut(
        self, *, steps: int, lag_ms: int = 0, now_ms: int | None = None, leaves_out: Mapping[Reason, int] | None = None
    ) -> None:
        """Cut what was written since the last heartbeat, in this many steps of event time.

        Partition p is read p times `lag_ms` of event time behind partition 0. The wall clock shows the event time that
        is read, unless `now_ms` says another. As many rows as `leaves_out` says do not count, and no others.
        """
        rows = [row for topic in self.topics.values() for row in self._unread(topic)]
        if not rows:
            return
        maker = CutMaker(self.definition, self.last)
        for topic, partitions in self._partitions.items():
            maker.grow(topic, partitions)
        times = [row.ts + row.partition * lag_ms for row in rows if row.ts is not None]
        low, high = min(times), max(times)
        waiting = {key: [row for row in rows if (row.topic, row.partition) == key] for key in maker.positions}
        made = []
        left_out: Counter[Reason] = Counter()
        for step in range(1, steps + 1):
            bound = low + (high - low) * step // steps
            now = bound if now_ms is None else now_ms
            for (_, partition), queue in waiting.items():
                taken = 0
                while taken < len(queue) and (step == steps or (queue[taken].ts or 0) + partition * lag_ms <= bound):
                    taken += 1
                left_out.update(each.reason for each in maker.add(queue[:taken], now_ms=now))
                del queue[:taken]
            made.append(maker.cut(now_ms=now).heartbeat)
        assert left_out == Counter(leaves_out or {})
        self._write_heartbeats(made)

    def beat(self, *, tau: int) -> None:
        """Write a heartbeat alone: only tau and the number move."""
        self._write_heartbeats([msgspec.structs.replace(self.last, n=self.last.n + 1, tau=tau)])

    def read_last(self) -> Heartbeat:
        """Read the last heartbeat, whoever wrote it."""
        with TailReader(self.settings) as reader:
            record = reader.read_tail(self.definition.heartbeats_topic, 0)
        assert record is not None
        return Heartbeat.decode(record.value)

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()

    def _unread(self, topic: str) -> Iterator[Row]:
        source = next(source for source in self.definition.sources if source.topic == topic)
        for partition in range(self._partitions[topic]):
            for record in committed(self.settings, topic, partition):
                if record.offset >= self.last.end(topic, partition):
                    yield Row(topic, partition, record.offset, read_timestamp(source, record.value, record.timestamp))

    def _write_heartbeats(self, heartbeats: Sequence[Heartbeat]) -> None:
        """Write each in a transaction of its own, as the service does; thousands in a hundred transactions."""
        step = 1 + len(heartbeats) // 100
        for first in range(0, len(heartbeats), step):
            values = [(None, heartbeat.encode()) for heartbeat in heartbeats[first : first + step]]
            with self._writer.transaction():
                self._writer.write(self.definition.heartbeats_topic, 0, values)
        self.last = heartbeats[-1]


def window_counts(rows: Iterable[Bid], windows: Windows, *, below: int) -> TDB:
    """Count by hand: how many bids each auction has in each window that ends before `below`."""
    counted: Counter[tuple[int, int]] = Counter()
    for row in rows:
        start = row.ts - row.ts % windows.slide_ms
        while start + windows.width_ms > row.ts:
            counted[start, row.auction] += 1
            start -= windows.slide_ms
    events = (
        Event(payload({"auction": auction, "count": count}), start, start + windows.width_ms)
        for (start, auction), count in counted.items()
    )
    return TDB(event for event in events if event.ve < below)


class Written:
    """What a replica, or a merge, has written until somebody read it: the elements of each lane."""

    def __init__(self, lanes: Sequence[Sequence[Element]]) -> None:
        self.lanes = lanes
        # A prefix that is not legal raises.
        self._tdbs = [reconstitute(lane) for lane in lanes]

    @property
    def stable(self) -> int:
        """The smallest stable over the lanes; below every instant if one has none."""
        return min(tdb.stable for tdb in self._tdbs)

    def frozen(self, *, repeats: bool = False) -> TDB:
        """Give the events of all lanes that end before the smallest stable; each comes once unless they may repeat."""
        events = [event for tdb in self._tdbs for event in tdb.frozen(self.stable)]
        repeated = [event for event, count in Counter(events).items() if count > 1]
        assert repeats or not repeated, f"repeated: {repeated[:3]}"
        return TDB(events)

    def kinds(self) -> Counter[str]:
        """Count the elements by kind."""
        return Counter(type(element).__name__.lower() for lane in self.lanes for element in lane)


class ReplicaTopic:
    """What a replica has written, read committed."""

    def __init__(self, settings: KafkaSettings, topic: str, lanes: int) -> None:
        self._settings = settings
        self.name = topic
        self._lanes = lanes

    def wait_for_stable(self, vc: int, *, check: Callable[[], object], seconds: float = 300) -> None:
        """Wait until every lane's last record is this stable; `check` raises if that cannot come any more."""
        expected = b'{"kind":"stable","vc":%d}' % vc
        with TailReader(self._settings) as reader:

            def is_there() -> bool:
                check()
                tails = [reader.read_tail(self.name, lane) for lane in range(self._lanes)]
                return all(tail is not None and tail.value == expected for tail in tails)

            wait_seldom(is_there, f"{self.name} is stable at {vc}", seconds=seconds)

    def records(self) -> list[list[Record]]:
        """Give the committed records of each lane."""
        return committed_in(self._settings, self.name, range(self._lanes))

    def written(self) -> Written:
        """Read what is committed."""
        lanes = []
        for records in self.records():
            elements, error = decode_batch([record.value for record in records])
            assert error is None, error
            lanes.append(elements)
        return Written(lanes)
