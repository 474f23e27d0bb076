"""What only Spark can tell about a query file: mistakes in its statements, and what its plans promise. No broker."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lmerge.errors import UsageError
from replicas.describe import describe
from replicas.loader import load_query, shipped_queries
from replicas.session import make_session
from tests.support.queries import CASES

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()

HEADER = """\
-- @source bids: auction bigint, price double
-- @source auctions: id bigint
-- @key auction
-- @window 10 s
-- @plan p
"""
LIFETIME = "unix_millis(window.start) AS vs, unix_millis(window.end) AS ve"
RANGE = "b.event_time >= a.event_time AND b.event_time < a.event_time + INTERVAL 1 SECOND"
INSTANT = "unix_millis(b.event_time) AS vs, unix_millis(b.event_time) + 1 AS ve"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = make_session("lmerge-plans", master="local[2]", overrides={})
    yield session
    session.stop()


@pytest.mark.parametrize("name", shipped_queries())
def test_the_plans_of_a_shipped_query_promise_what_its_page_says(name: str, spark: SparkSession) -> None:
    said = [*describe(spark, load_query(name))]
    assert said[-2].startswith(f"merged by {CASES[name].algorithm}: ")
    assert re.search(rf"^\| `{name}` .* {CASES[name].algorithm} \|$", PAGE, re.MULTILINE)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    assert all(f"`{plan}`" in row for plan in CASES[name].plans)


@pytest.mark.parametrize("language", ["sql", "python"])
def test_the_example_of_the_page_is_as_the_page_says(language: str, spark: SparkSession, tmp_path: Path) -> None:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / f"bidders.{language.removesuffix('thon')}"
    file.write_text(text)
    query = load_query(str(file))
    assert (query.name, query.feed) == ("bidders", tmp_path / "auction.toml")
    expected = re.findall(r"^    ((?:plan|merged by|in the merge's) .*)$", PAGE, re.MULTILINE)
    said = [*describe(spark, query)]
    assert len(said) == len(expected)
    for line, shown in zip(said, expected, strict=True):
        assert line.startswith(shown.removesuffix(" …"))


@pytest.mark.parametrize(
    ("statement", "line", "said"),
    [
        ("SELECT auctn,\n1 AS vs FROM bids", 6, "with name `auctn` cannot be resolved. Did you mean"),
        ("SELECT auction,\n  prize FROM bids", 7, "with name `prize` cannot be resolved"),
        ("SELECT auction\nFRM bids b", 7, "Syntax error at or near 'bids'"),
        ("SELECT auction FROM asks", 6, "`asks` cannot be found"),
        ("SELECT auction FROM bids", 6, "needs a column vs of type bigint, milliseconds, not none"),
        ("SELECT price, {INSTANT} FROM bids b", 6, "has no column auction, which the query names as key"),
        ("SELECT auction, price, {INSTANT} FROM bids b", 6, "column price is double: a sum of floats"),
        (
            "SELECT auction, {INSTANT} FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND {RANGE}",
            6,
            "plan p: a join of type LeftOuter: only inner joins are known",
        ),
        (
            "SELECT auction, {INSTANT} FROM bids b JOIN auctions a ON b.auction = a.id",
            6,
            "plan p: a join without bounds on time on both sides",
        ),
        ("SELECT auction, {INSTANT} FROM bids b ORDER BY auction", 6, "plan p: the operator Sort is none of"),
        ("SELECT auction, uuid() AS u, {INSTANT} FROM bids b", 6, "plan p: the function uuid depends on chance"),
        ("SELECT auction, rand() > 0.5 AS u, {INSTANT} FROM bids b", 6, "plan p: the function rand depends on chance"),
        ("SELECT auction, {INSTANT} FROM bids b WHERE event_time < now()", 6, "the function now depends on the clock"),
        ("SELECT auction, {INSTANT} FROM bids b WHERE current_date() > '2026-01-01'", 6, "current_date depends on"),
        (
            "SELECT any_value(auction) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)",
            6,
            "the function any_value depends on the order of rows",
        ),
        (
            "SELECT first(auction) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)",
            6,
            "the function first depends on the order of rows",
        ),
        (
            "SELECT auction, count(*) AS vs, count(*) AS ve FROM bids GROUP BY auction",
            6,
            "plan p: an aggregate by 0 windows: it needs exactly one",
        ),
    ],
)
def test_a_mistake_that_spark_finds_is_named_with_its_file_and_line(
    statement: str, line: int, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "q.sql"
    file.write_text(HEADER + statement.format(INSTANT=INSTANT, LIFETIME=LIFETIME, RANGE=RANGE))
    with pytest.raises(UsageError) as caught:
        list(describe(spark, load_query(str(file))))
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("select", "algorithm"),
    [
        ("auction, count(*) AS n, {LIFETIME} FROM bids GROUP BY window(event_time, :width), auction", "R2"),
        ("auction % 7 AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width), auction % 7", "R2"),
        ("max(auction) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)", "R0"),
        ("max(auction) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width), auction", "R4"),
        ("DISTINCT auction, {INSTANT} FROM bids b", None),
        ("auction, {INSTANT} FROM bids b UNION ALL SELECT id, {INSTANT} FROM auctions b", "R4"),
    ],
)
def test_the_properties_of_a_statement_are_inferred(
    select: str, algorithm: str | None, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "q.sql"
    file.write_text(f"{HEADER}SELECT {select.format(INSTANT=INSTANT, LIFETIME=LIFETIME)}")
    if algorithm is None:
        with pytest.raises(UsageError, match="the operator Distinct is none of"):
            list(describe(spark, load_query(str(file))))
    else:
        assert [*describe(spark, load_query(str(file)))][-2].startswith(f"merged by {algorithm}: ")
