"""The true answer: a batch computation by DuckDB over the rows that the workload wrote.

SQL over a file. It shares no code with the replicas, which are Spark, nor with the merge; it does not know heartbeats,
watermarks or elements.
"""

from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import msgspec

_ROWS: Final = """
    create table bids as
    select cast(row ->> 'auction' as bigint) as auction, ts
    from read_json($file, format = 'newline_delimited',
                   columns = {topic: 'VARCHAR', partition: 'BIGINT', ts: 'BIGINT', row: 'JSON'})
    where topic = $topic
"""

# A row is in the windows that begin at the last multiple of the slide up to it, and k slides earlier.
_COUNTS: Final = """
    select auction, count(*) as bids, vs, vs + $width as ve
    from (select auction, ts, (ts // $slide - k) * $slide as vs
          from bids, range(($width + $slide - 1) // $slide) as steps(k))
    where ts < vs + $width
    group by auction, vs
"""

# Closing rows have negative ids: they only end the windows of the others.
_FIGURES: Final = "select count(*), max(ts) filter (where auction >= 0), max(ts) from bids"


class Result(NamedTuple):
    """How many bids an auction had in the window ``[vs, ve)``."""

    auction: int
    bids: int
    vs: int
    ve: int


class Answer(msgspec.Struct, frozen=True):
    """What the rows of a file say.

    Attributes:
        rows: how many there are.
        newest: the largest time of a row that is no closing row.
        closing: the time of the closing rows.
        results: the count of each auction in each of its windows.
    """

    rows: int
    newest: int
    closing: int
    results: list[Result]


def answer(file: Path, *, topic: str, width_ms: int, slide_ms: int) -> Answer:
    """Count the rows of a topic in a file of the workload, per auction and sliding window."""
    # Nothing is fetched: what is needed comes with the package.
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as database:
        database.execute(_ROWS, {"file": str(file), "topic": topic})
        rows, newest, closing = database.execute(_FIGURES).fetchall()[0]
        results = database.execute(_COUNTS, {"width": width_ms, "slide": slide_ms}).fetchall()
    return Answer(rows, newest or 0, closing or 0, [Result(*result) for result in results])
