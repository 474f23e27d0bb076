"""What only Spark can tell about a query file: mistakes in its statements, and what its plans promise. No broker."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.errors import UsageError
from replicas.build import build
from replicas.describe import TYPE_NAMES, describe, empty
from replicas.expression_reader import each
from replicas.loader import load_query, shipped_queries
from replicas.plan_reader import read_plan
from replicas.queries import category_prices
from replicas.query import EVENT_TIME, Schema
from replicas.reach import infer_reach_ms
from tests.support.queries import CASES

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()

HEADER = """\
-- @source bids: auction bigint, price double
-- @source auctions: id bigint
-- @key auction
-- @window 10 s
-- @plan p
"""
EARLY = """\
from replicas.early import early_plan
from replicas.operators import Mode, count, maximum, top
from replicas.query import Query
from replicas.windows import Windows

early = early_plan(Mode.EAGER, {plan})
sources={{"bids": {{"auction": int, "price": int}}}}
windows = Windows(width_ms=10_000, slide_ms=10_000)
QUERY = Query(name="q", sources=sources, key=("auction",), windows=windows, plans={{"p": early}})
"""
LIFETIME = "unix_millis(window.start) AS vs, unix_millis(window.end) AS ve"
RANGE = "b.event_time >= a.event_time AND b.event_time < a.event_time + INTERVAL 1 SECOND"
INSTANT = "unix_millis(b.event_time) AS vs, unix_millis(b.event_time) + 1 AS ve"


@pytest.mark.parametrize("name", shipped_queries())
def test_the_plans_of_a_shipped_query_promise_what_its_page_says(name: str, spark: SparkSession) -> None:
    query = load_query(name)
    (choice,) = [line for line in describe(spark, query) if line.startswith("merged by")]
    assert choice.startswith(f"merged by {CASES[name].algorithm}: ")
    assert re.search(rf"^\| `{name}` .* {CASES[name].algorithm} \|$", PAGE, re.MULTILINE)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    assert all(f"`{plan}`" in row for plan in query.plans)


@pytest.mark.parametrize("name", [*CASES])
def test_the_two_conservative_plans_of_a_shipped_query_do_different_work(name: str, spark: SparkSession) -> None:
    """As Spark optimises them: a plan that is only written in another way runs, and fails, as the other does."""
    query = load_query(name)
    sources = {source: _no_rows(spark, schema) for source, schema in query.sources.items()}
    frames = {plan: query.plan(plan).build(sources, query.windows) for plan in CASES[name].plans}
    assert all(query.plan(plan).operator is None for plan in frames), "an operator answers early"
    work = {plan: [*_work(_optimised(frame))] for plan, frame in frames.items()}
    assert len({*map(tuple, work.values())}) == len(work) == 2, f"{name}: Spark does the same for both: {work}"


def _no_rows(spark: SparkSession, schema: Schema) -> DataFrame:
    """Make a source that is not streamed, and of which Spark does not know that it is empty: else no plan is left."""
    columns = ", ".join(f"{field} {TYPE_NAMES[kind]}" for field, kind in schema.items())
    return spark.createDataFrame([], f"{columns}, {EVENT_TIME} timestamp")


def _work(plan: Any) -> Iterator[str]:
    """Tell what a plan does, from its result to its sources; projections and filters, which every plan has, apart."""
    below = [*each(plan.children())]
    match plan.nodeName():
        case "Aggregate":
            yield f"aggregate by {plan.groupingExpressions().size()}"
        case "BatchEvalPython" | "ArrowEvalPython":
            yield f"call {', '.join(function.name() for function in each(plan.udfs()))}"
        case kind if not below:
            yield f"{kind} of {', '.join(column.name() for column in each(plan.output()))}"
        case kind if kind not in {"Project", "Filter"}:
            yield str(kind)
    for each_below in below:
        yield from _work(each_below)


@pytest.mark.parametrize("plan", CASES["classified_bids"].plans)
def test_an_expensive_function_stands_once_in_the_plan_that_runs(plan: str, spark: SparkSession) -> None:
    """Spark copies a function that it takes for deterministic into the filter on its value: then it runs twice."""
    query = load_query("classified_bids")
    rows = _no_rows(spark, query.sources["bids"])
    frame = query.plan(plan).build({"bids": rows}, query.windows)
    assert _optimised(frame).toString().count(f"{plan}(price#") == 1
    copied = rows.withColumn("selected", F.udf(bool, "boolean", useArrow=False)("price")).where("selected")
    assert _optimised(copied).toString().count("bool(price#") > 1


def _optimised(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()


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


def test_the_query_of_the_readme_is_described(spark: SparkSession, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for language, name in (("toml", "auction.toml"), ("sql", "bidders.sql")):
        (text,) = re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)
        (tmp_path / name).write_text(text)
    plan, merged_by, *_ = describe(spark, load_query(str(tmp_path / "bidders.sql")))
    assert plan.startswith("plan direct: bidder bigint, bids bigint, vs bigint, ve bigint; ")
    assert merged_by.startswith("merged by R")


def test_the_early_plan_of_the_page_is_as_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    python, early = (
        re.findall(rf"^```{word}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0] for word in ("python", "py")
    )
    file = tmp_path / "bidders.py"
    file.write_text(early + python.replace("plans={", 'plans={"eager": eager, '))
    said = [*describe(spark, load_query(str(file)))]
    assert said[0] in re.sub(r"\s+", " ", PAGE)
    assert [line.partition(":")[0] for line in said[3::2]] == [
        "merged by R2",
        "with those that answer early, merged by R3",
    ]


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
            "SELECT max_by(auction, price) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)",
            6,
            "the function max_by depends on the order of rows",
        ),
        (
            "SELECT array_agg(auction) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)",
            6,
            "the function collect_list depends on the order of rows",
        ),
        (
            "SELECT cast(sum(price) AS bigint) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)",
            6,
            "plan p: the function sum adds up floats",
        ),
        (
            "SELECT cast(avg(auction) AS bigint) AS auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width)",
            6,
            "plan p: the function avg adds up floats",
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


def test_statements_of_several_threads_do_not_take_each_others_tables_away(spark: SparkSession) -> None:
    query = load_query("bids_with_auction")

    def built(number: int) -> bool:
        plan = [*query.plans][number % len(query.plans)]
        sources = {name: empty(spark, schema) for name, schema in query.sources.items()}
        return build(query, plan, sources, query.windows).shape.progress is not None

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(built, range(24)))
    assert not [table for table in spark.catalog.listTables() if table.isTemporary]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("count(), by=['auctn'], result=['auctn', 'answer']", "with name `auctn` cannot be resolved. Did you mean"),
        ("count(), by=['auction'], result=['answer AS n']", "`result` leaves auction out, without which two results"),
        ("top(2), of=['price'], result=['price', '0 AS auction']", "`result` leaves rank out"),
        ("count(), by=['auction'], result=['auction + 1 AS auction']", "`result` leaves auction out"),
        ("maximum(), by=['price'], of=['price'], result=['price']", "two columns of an answer are named price"),
        ("maximum(), of=['event_time'], result=['auction']", "column event_time is timestamp: an operator takes"),
        ("count(), result=['count(*) AS auction']", "The query does not include a GROUP BY clause"),
        ("count(), result=['explode(array(answer)) AS auction']", "`result` must have one row for each answer"),
        ("count(), by=['*'], result=['auction']", "each must be one column, and these are 8"),
        ("count(), by=['uuid() AS auction'], result=['auction']", "the function uuid depends on chance"),
        ("count(), result=['answer']", "has no column auction, which the query names as key"),
        ("count(), of=['price'], result=['auction']", "count counts rows and looks at no value: leave `of` out"),
    ],
)
def test_a_mistake_in_an_early_plan_is_named_with_its_file_and_line(
    plan: str, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "q.py"
    file.write_text(EARLY.format(plan=plan))
    with pytest.raises(UsageError) as caught:
        list(describe(spark, load_query(str(file))))
    assert str(caught.value).startswith(f"{file}:6: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_early_plan_of_two_sources_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "q.py"
    text = EARLY.format(plan="count(), by=['auction'], result=['auction']")
    file.write_text(text.replace("sources={", "sources={'auctions': {'id': int}, "))
    with pytest.raises(UsageError, match="takes the rows of one source, and the query has auctions, bids"):
        list(describe(spark, load_query(str(file))))


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


@pytest.mark.parametrize(
    ("select", "reach_ms"),
    [
        ("auction, {INSTANT} FROM bids b", 1),
        ("auction, {LATER} FROM bids b", 3_600_001),
        ("auction, {LIFETIME} FROM bids GROUP BY window(event_time, :width), auction", 10_000),
        ("auction, {NEXT} FROM bids GROUP BY window(event_time, '60 seconds', '10 seconds'), auction", 70_000),
        ("auction, {INSTANT} FROM bids b JOIN auctions a ON b.auction = a.id AND {RANGE}", 1_001),
        ("auction, {INSTANT} FROM bids b UNION ALL SELECT id, {INSTANT} FROM auctions b", 1),
        ("auction, auction AS vs, auction + 1 AS ve FROM bids", None),
        (
            "auction, max(unix_millis(event_time)) AS vs, max(unix_millis(event_time)) + 1 AS ve FROM bids {WINDOW}",
            None,
        ),
        ("auction, bigint(unix_seconds(event_time)) AS vs, unix_seconds(event_time) + 1 AS ve FROM bids", None),
    ],
)
def test_how_far_a_row_reaches_is_read_off_what_a_statement_computes(
    select: str, reach_ms: int | None, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "q.sql"
    statement = select.format(
        INSTANT=INSTANT,
        LIFETIME=LIFETIME,
        RANGE=RANGE,
        LATER="unix_millis(b.event_time) + 3600000 AS vs, unix_millis(b.event_time) + 3600001 AS ve",
        NEXT="unix_millis(window.end) AS vs, unix_millis(window.end) + 10000 AS ve",
        WINDOW="GROUP BY window(event_time, :width), auction",
    )
    file.write_text(f"{HEADER}SELECT {statement}")
    assert reach_of(spark, str(file), "p") == reach_ms


def reach_of(spark: SparkSession, query: str, plan: str) -> int | None:
    loaded = load_query(query)
    sources = {source: empty(spark, schema) for source, schema in loaded.sources.items()}
    frame = build(loaded, plan, sources, loaded.windows).frame
    return infer_reach_ms(read_plan(frame), frame.columns.index("ve"))


def test_a_deduplication_has_a_reach_only_if_its_keys_hold_the_time(spark: SparkSession) -> None:
    def inferred(*columns: str) -> int | None:
        rows = empty(spark, {"auction": int}).select("auction", EVENT_TIME, F.expr("unix_millis(event_time) + 1 AS ve"))
        frame = rows.dropDuplicates([*columns])
        return infer_reach_ms(read_plan(frame), 2)

    assert inferred("auction", "event_time", "ve") == inferred("event_time") == 1
    assert inferred("auction") is None


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        (name, plan)
        for name in shipped_queries()
        for plan, each in load_query(name).plans.items()
        if each.operator is None  # an operator's is that of its windows
    ],
)
def test_every_shipped_plan_has_a_reach_that_can_be_read_and_its_author_claims_no_more(
    name: str, plan: str, spark: SparkSession
) -> None:
    inferred, stated = reach_of(spark, name, plan), load_query(name).plan(plan).reach_ms
    assert inferred is not None
    assert stated is None or inferred - 10_000 < stated(load_query(name).windows) <= inferred


def test_what_a_function_of_a_python_plan_raises_is_named_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "q.py"
    file.write_text(
        "from replicas.query import Plan, Query\n"
        "def misspelt(sources, windows):\n    return sources['bids'].select('auctn')\n"
        "def broken(sources, windows):\n    return sources['asks']\n"
        "PLANS = {'misspelt': Plan(build=misspelt), 'broken': Plan(build=broken)}\n"
        "QUERY = Query(name='q', sources={'bids': {'auction': int}}, plans=PLANS)\n"
    )
    query = load_query(str(file))
    sources = {"bids": empty(spark, query.sources["bids"])}
    for plan, said in (
        ("misspelt", f"{file}:2: plan misspelt: A column, variable, or function parameter with name `auctn` cannot be"),
        ("broken", f"{file}:4: plan broken: KeyError: 'asks'"),
    ):
        with pytest.raises(UsageError) as caught:
            build(query, plan, sources, query.windows)
        assert str(caught.value).startswith(said)
        assert "\n" not in str(caught.value)


EXTREMES = (-(2**63), -7, 0, 2**63 - 1)


@pytest.mark.parametrize("name", [*CASES])
def test_no_integer_that_a_row_can_have_ends_a_plan_and_all_plans_agree_on_it(name: str, spark: SparkSession) -> None:
    """Over rows that are not streamed; one that ends a plan would end every replica, in every replay."""
    query = load_query(name)
    pairs = ", ".join(f"(cast('{one}' AS bigint), cast('{other}' AS bigint))" for one in EXTREMES for other in EXTREMES)
    time = F.expr("timestamp_millis(1000)").alias(EVENT_TIME)
    rows = spark.sql(f"FROM VALUES {pairs} AS t(one, other)").select("one", "other", time)
    sources = {
        source: rows.select(*(_field(name, kind) for name, kind in schema.items()), EVENT_TIME)
        for source, schema in query.sources.items()
    }
    first, second = (query.plan(plan).build(sources, query.windows).collect() for plan in CASES[name].plans)
    assert first
    assert sorted(map(str, first)) == sorted(map(str, second))


def _field(name: str, kind: type) -> Column:
    """Give a field of a row: auctions and categories are one of its numbers, all others the other."""
    return F.col("other" if name in {"auction", "category"} else "one").cast(TYPE_NAMES[kind]).alias(name)


def test_an_average_of_extreme_and_of_negative_prices_is_exact(spark: SparkSession) -> None:
    sums = [(-(2**63) * 3, 3), (2**63 - 1, 1), (-3, 2), (1, 3), (2, 3), (-1, 3), (-2, 3), (1, 200), (-1, 200)]
    values = ", ".join(f"({total}BD, {bids}L)" for total, bids in sums)
    window = F.expr("named_struct('start', timestamp_millis(0), 'end', timestamp_millis(10))").alias("window")
    total = F.col("total").cast("decimal(38, 0)").alias("total")
    summed = spark.sql(f"FROM VALUES {values} AS t(total, bids)").select(
        F.lit(1).alias("category"), total, "bids", window
    )
    assert [row["average"] for row in category_prices._result(summed).collect()] == [
        "-9223372036854775808.00",
        "9223372036854775807.00",
        *("-1.50", "0.33", "0.67", "-0.33", "-0.67", "0.01", "0.00"),
    ]
