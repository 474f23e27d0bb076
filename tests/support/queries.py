"""The shipped queries on a small NEXMark: rows with many ties, the true answers by DuckDB, and replicas to run.

The rows are the workload's, changed in two ways that make what is rare common: times are whole quarters of a second, so
that several rows share an instant, and there are seven prices, so that the highest bid is tied.

The answers are batch SQL over the rows. They know nothing of heartbeats, watermarks, panes or elements.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from lmerge import TDB, Element, Event, Hello, Insert, Stable, StreamProperties, choose, create
from lmerge.canonical import payload
from replicas.loader import load_query
from replicas.query import Query
from replicas.settings import FIRST
from replicas.start import Start
from services.workload import nexmark
from tests.support.replica import DISORDER_MS, FeedWorld, Written
from tests.support.running_replica import RunningReplica, settings_in

PARTITIONS: Final = 3
TOPICS: Final = ("bids", "auctions")
WIDTH_MS: Final = 10_000
AHEAD_MS: Final = 10_000
"""How far ahead of the wall clock, which goes with event time, a row may be."""
_TICK_MS: Final = 250
_RATE: Final = 25
_DEAREST: Final = 980
"""A price above all others, which `classified_bids` selects."""
_MOVED: Final = ("bids", 0, 1)
"""Topic, partition and parity of the ids of rows that go to a new partition."""


class Case(NamedTuple):
    """What is expected of a query."""

    algorithm: str
    plans: tuple[str, str]
    answer: str
    """The batch SQL: columns of the payload, vs and ve."""
    complete: Callable[[int], int]
    """From the last tau to the largest stable that is sound."""


def _tumbled(tau: int) -> int:
    return tau // WIDTH_MS * WIDTH_MS


_JOINED: Final = """
    from bids, auctions
    where bids.auction = auctions.id and bids.ts - auctions.ts >= 0 and bids.ts - auctions.ts < 20000
"""

CASES: Final = {
    "highest_bid": Case(
        "R0",
        ("direct", "by_auction"),
        """
        select price, id as bid, auction, bidder, ts - ts % 10000 as vs, ts - ts % 10000 + 10000 as ve
        from bids
        qualify row_number() over (partition by ts // 10000 order by price desc, id asc) = 1
        """,
        _tumbled,
    ),
    "top_bids": Case(
        "R1",
        ("direct", "panes"),
        """
        select row_number() over (partition by ts // 10000 order by price desc, id asc) as rank,
               price, id as bid, auction, bidder, ts - ts % 10000 as vs, ts - ts % 10000 + 10000 as ve
        from bids
        qualify rank <= 3
        """,
        _tumbled,
    ),
    "hot_items": Case(
        "R2",
        ("direct", "panes"),
        """
        select auction, count(*) as count, start as vs, start + 10000 as ve
        from bids, (select distinct unnest(range(ts // 2000 * 2000 - 8000, ts + 1, 2000)) as start from bids)
        where start <= ts and ts < start + 10000
        group by auction, start
        """,
        lambda tau: (tau - WIDTH_MS) // 2_000 * 2_000 + 2_000,
    ),
    "bids_with_auction": Case(
        "R4",
        ("bids_first", "auctions_first"),
        f"select category, item_name, greatest(bids.ts, auctions.ts) as vs, vs + 1 as ve {_JOINED}",
        lambda tau: tau + 1,
    ),
    "category_prices": Case(
        "R2",
        ("direct", "by_auction"),
        # Hundredths: the whole part of the division, and one more if twice the remainder reaches the divisor.
        f"""
        select category, n as bids, printf('%d.%02d', hundredths // 100, hundredths % 100) as average,
               vs, vs + 10000 as ve
        from (
            select category, vs, n, scaled // n + (case when scaled % n * 2 >= n then 1 else 0 end) as hundredths
            from (
                select category, count(*) as n, bids.ts - bids.ts % 10000 as vs,
                       cast(sum(price) as bigint) * 100 as scaled
                {_JOINED}
                group by category, vs
            )
        )
        """,  # noqa: S608
        lambda tau: _tumbled(tau - 20_000),
    ),
    "classified_bids": Case(
        "R3",
        ("udf0", "udf1"),
        "select id as bid, auction, price, ts as vs, ts + 1 as ve from bids join selected using (price)",
        lambda tau: tau + 1,
    ),
}
"""By the query's name. The answers are written for the default windows."""


class NexmarkRow(NamedTuple):
    """A row of a source."""

    topic: str
    partition: int
    fields: dict[str, int | str]

    def encode(self) -> bytes:
        """Give the record's value."""
        return msgspec.json.encode(self.fields)


def nexmark_rows(seed: int, *, seconds: int) -> list[NexmarkRow]:
    """Make bids and auctions in the order of their arrival."""
    parameters = nexmark.Parameters(
        seed=seed, rows=seconds * _RATE, event_rate=_RATE, partitions=PARTITIONS, disorder_ms=DISORDER_MS
    )
    made = []
    for row in nexmark.rows(parameters):
        if row.topic in TOPICS:
            fields = {**row.fields, "date_time": row.ts - row.ts % _TICK_MS}
            if row.topic == "bids":
                fields["price"] = 100 + 37 * (int(fields["price"]) % 7)
            made.append(NexmarkRow(row.topic, row.partition, fields))
    return made


def write(world: FeedWorld, rows: Sequence[NexmarkRow], *, cuts: int, lag_ms: int) -> None:
    """Write rows and their cuts."""
    for topic in TOPICS:
        world.write_rows(topic, [row for row in rows if row.topic == topic])
    world.cut(steps=cuts, lag_ms=lag_ms)


class Strays(NamedTuple):
    """Copies of rows that do not count. Counted, the late or the early ones would change every answer."""

    late: list[NexmarkRow]
    early: list[NexmarkRow]


def strays(rows: Sequence[NexmarkRow], *, tau: int, ceiling: int) -> Strays:
    """Copy each row to an instant that is too late, the first to tau itself, and to one that is too early."""
    return Strays(
        [_stray(row, tau - number * _TICK_MS) for number, row in enumerate(rows)],
        [_stray(row, ceiling + 1 + number * _TICK_MS) for number, row in enumerate(rows)],
    )


def _stray(row: NexmarkRow, ts: int) -> NexmarkRow:
    dearest = {"price": _DEAREST} if row.topic == "bids" else {}
    return row._replace(fields={**row.fields, **dearest, "date_time": ts})


def write_with_strays(world: FeedWorld, rows: Sequence[NexmarkRow]) -> None:
    """Write rows, each followed by its two strays, and one cut, whose ceiling is the time of the latest row.

    The ceilings of later cuts are above the strays that are early here.
    """
    assert world.last.tau is not None
    ceiling = max(int(row.fields["date_time"]) for row in rows)
    planted = strays(rows, tau=world.last.tau, ceiling=ceiling)
    mixed = [row for three in zip(rows, planted.late, planted.early, strict=True) for row in three]
    for topic in TOPICS:
        world.write_rows(topic, [row for row in mixed if row.topic == topic])
    in_new = sum(row.partition >= PARTITIONS for row in rows)
    assert 0 < in_new < len(rows)
    world.cut(
        steps=1,
        now_ms=ceiling - AHEAD_MS,
        leaves_out={"late": len(rows) - in_new, "late_in_new": in_new, "early": len(rows)},
    )


def with_a_new_partition(rows: Sequence[NexmarkRow]) -> list[NexmarkRow]:
    """Move some bids to a partition that the topic does not have at first."""
    return [
        row._replace(partition=PARTITIONS) if (row.topic, row.partition, int(row.fields["id"]) % 2) == _MOVED else row
        for row in rows
    ]


def answers(rows: Sequence[NexmarkRow]) -> dict[str, list[Event]]:
    """Compute the true answer of every query."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as database:
        for topic in TOPICS:
            fields = [row.fields | {"ts": row.fields["date_time"]} for row in rows if row.topic == topic]
            database.register(topic, pa.Table.from_pylist(fields))
        database.register("selected", pa.table({"price": _selected_prices()}))
        return {name: [*_events(database, case.answer)] for name, case in CASES.items()}


def _selected_prices() -> list[int]:
    """Give the prices that `classified_bids` selects: from the whole sequence of 2,000 numbers, one for five cents."""
    numbers = [0x9E3779B97F4A7C15]
    for _ in range(2_000):
        folded = numbers[-1] ^ (numbers[-1] >> 33)
        numbers.append(folded * 0xFF51AFD7ED558CCD % 2**64)
    return [price for price in range(1_000) if numbers[price // 5] >= 2**63]


def _events(database: duckdb.DuckDBPyConnection, sql: str) -> Iterator[Event]:
    found = database.execute(sql)
    names = [column[0] for column in found.description]
    for values in found.fetchall():
        row: dict[str, Any] = dict(zip(names, values, strict=True))
        vs, ve = row.pop("vs"), row.pop("ve")
        yield Event(payload(row), vs, ve)


class RunningQuery(RunningReplica):
    """A replica of a shipped query, which its directory is named for."""

    def __init__(
        self,
        stack: ExitStack,
        spark: SparkSession,
        world: FeedWorld,
        directory: Path,
        *,
        max_cuts: int,
        start: Start = FIRST,
    ) -> None:
        query, plan = query_and_plan(directory)
        settings = settings_in(world, directory, query, plan, max_cuts=max_cuts)
        super().__init__(stack, msgspec.structs.replace(settings, start=start), spark)

    def wait_for_end(self, tau: int) -> None:
        """Wait until it has promised all that the last heartbeat allows."""
        self.topic.wait_for_stable(CASES[self.name].complete(tau), check=self.check)


def directory_name(query: str, plan: str, max_cuts: int) -> str:
    """Name the directory, and so the replica, of a plan."""
    return f"{query}--{plan}--{max_cuts}"


def query_and_plan(directory: Path) -> tuple[Query, str]:
    """Give what a directory is named for."""
    name, plan, *_ = directory.name.split("--")
    return load_query(name), plan


def assert_equals_the_answer(
    written: Written, name: str, answer: Sequence[Event], tau: int, *, revised: bool = False
) -> None:
    """Every prefix is legal, the promise is the largest sound one, and all that is frozen is what DuckDB says."""
    stable = CASES[name].complete(tau)
    assert written.stable == stable, name
    frozen = written.frozen(repeats=name == "bids_with_auction")
    assert len(frozen) > 0, name
    assert frozen == TDB(event for event in answer if event.ve < stable), name
    assert set(written.kinds()) - ({"adjust"} if revised else set()) == {"hello", "insert", "stable"}


def merge_lane(streams: Sequence[Sequence[Element]]) -> tuple[str, list[Element]]:
    """Merge a lane of several replicas by the algorithm that their hellos lead to, a few elements of each in turn."""
    hellos = [stream[0] for stream in streams]
    declared = [StreamProperties.from_dict(hello.properties) for hello in hellos if isinstance(hello, Hello)]
    algorithm = choose(*declared).algorithm
    merge = create(algorithm)
    for number in range(len(streams)):
        merge.attach(f"r{number}")
    merged: list[Element] = []
    for start in range(1, max(map(len, streams)), 5):
        for number, stream in enumerate(streams):
            some = stream[start : start + 5]
            merged += merge.process(f"r{number}", some)
            assert merge.consumed(f"r{number}") == len(some), merge.take_facts()
    return algorithm, merged


def assert_in_order(name: str, elements: Sequence[Element]) -> None:
    """A lane is in the order that its query's algorithm takes: one result per vs, by vs and rank, or by vs."""
    inserts = [element for element in elements if isinstance(element, Insert)]
    keys = [(element.vs, _rank(element) if name == "top_bids" else 0) for element in inserts]
    if CASES[name].algorithm in {"R0", "R1"}:
        assert all(before < after for before, after in pairwise(keys)), name
    elif CASES[name].algorithm == "R2":
        assert keys == sorted(keys), name


def _rank(insert: Insert) -> int:
    assert isinstance(insert.payload, bytes)
    return int(msgspec.json.decode(insert.payload)["rank"])


def last_stable(elements: Sequence[Element]) -> int:
    """Give the last stable of a stream."""
    return max(element.vc for element in elements if isinstance(element, Stable))
