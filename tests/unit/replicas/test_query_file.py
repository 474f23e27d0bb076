"""What a query file of Spark SQL says, and how its mistakes are named."""

from pathlib import Path

import pytest

from lmerge.errors import UsageError
from replicas.loader import load_query, shipped_queries
from replicas.query_file import Statement, parse
from replicas.windows import INSTANTS, Windows

WHOLE = """\
-- Counts of bids.
-- A comment may say anything, also e-mail@example.com.
-- @feed feeds/auctions.toml
-- @source bids: auction bigint, open boolean
-- @source auctions: id BIGINT, name string, weight double
-- @key auction, count
-- @rank count
-- @window 10 s every 2 s

-- @plan direct
SELECT 1 -- not the end
;
-- @plan panes
-- of its own
SELECT 2
"""


def test_a_file_is_read_whole() -> None:
    read = parse(WHOLE, "q.sql")
    assert read.feed == "feeds/auctions.toml"
    assert read.sources == {
        "bids": {"auction": int, "open": bool},
        "auctions": {"id": int, "name": str, "weight": float},
    }
    assert (read.key, read.rank) == (("auction", "count"), "count")
    assert read.windows == Windows(width_ms=10_000, slide_ms=2_000)
    assert read.plans == {
        "direct": Statement(11, "SELECT 1 -- not the end\n"),
        "panes": Statement(14, "-- of its own\nSELECT 2"),
    }


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("500 ms", Windows(width_ms=500, slide_ms=500)),
        ("1 min every 10 s", Windows(width_ms=60_000, slide_ms=10_000)),
        ("1 h", Windows(width_ms=3_600_000, slide_ms=3_600_000)),
        (None, INSTANTS),
    ],
)
def test_windows_tumble_or_slide_or_are_instants(window: str | None, expected: Windows) -> None:
    line = "" if window is None else f"-- @window {window}\n"
    assert parse(f"-- @source a: b bigint\n{line}-- @plan p\nSELECT 1", "q.sql").windows == expected


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        (3, "-- @feeed x", "3: unknown directive @feeed: choose one of feed, source, key, rank, window, plan"),
        (3, "-- @feed", "3: @feed needs the name of a file"),
        (4, "-- @source bids auction bigint", "4: @source bids auction bigint: it must be NAME: FIELD TYPE"),
        (4, "-- @source bids: auction int", "4: field auction is of type int: choose one of bigint, string, boolean"),
        (4, "-- @source bids: auction", "4: field 'auction': it must be FIELD TYPE"),
        (4, "-- @source bids: a bigint, a string", "4: field a again"),
        (5, "-- @source bids: id bigint", "5: source bids again"),
        (6, "-- @key auction count", "6: @key auction count: it must be FIELD, …"),
        (6, "-- @window 1 s", "8: @window again, after line 6"),
        (7, "-- @rank a, b", "7: @rank a, b: it must be one FIELD"),
        (8, "-- @window ten seconds", "8: @window ten seconds: it must be LENGTH or LENGTH every LENGTH"),
        (
            8,
            "-- @window 2 s every 10 s",
            "8: @window 2 s every 10 s: windows of 2000 ms every 10000 ms: needs 0 < slide",
        ),
        (8, "-- @window 10 s every 3 s", "no whole number of panes"),
        (9, "SELECT 0", "9: a statement before the first `-- @plan NAME`"),
        (10, "-- @plan", "10: @plan : it must be one name"),
        (11, "-- nothing", "10: plan direct has no statement"),
        (13, "-- @plan direct", "13: plan direct again"),
        (14, "-- @key count", "14: @key again, after line 6"),
        (14, "-- @source more: x bigint", "14: @source after the first plan: the header comes before the plans"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_line(line: int, wrong: str, said: str) -> None:
    lines = WHOLE.splitlines()
    lines[line - 1] = wrong
    if wrong == "-- nothing":
        del lines[11]
    with pytest.raises(UsageError) as caught:
        parse("\n".join(lines), "dir/q.sql")
    assert str(caught.value).startswith("dir/q.sql:")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "q.sql:1: no source"),
        ("-- @source a: b bigint\n", "q.sql:1: no plan"),
        ("-- @plan p\nSELECT 1\n", "q.sql:2: no source"),
    ],
)
def test_a_file_that_lacks_a_part_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(text, "q.sql")


def test_a_users_own_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "counts.sql"
    file.write_text(WHOLE)
    query = load_query(str(file))
    assert query.name == "counts"
    assert query.feed == tmp_path / "feeds/auctions.toml"
    assert sorted(query.plans) == ["direct", "panes"]
    assert query.plan("panes").place == f"{file}:14"


PYTHON = """\
from replicas.query import Plan, Query

def direct(sources, windows):
    return sources["bids"].selectExpr("auction", "unix_millis(event_time) as vs", "unix_millis(event_time) + 1 as ve")

QUERY = Query(name="mine", sources={"bids": {"auction": int}}, plans={"direct": Plan(build=direct)})
"""


def test_a_python_file_is_loaded_by_its_path_and_a_plan_knows_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PYTHON)
    query = load_query(str(file))
    assert (query.name, query.key, query.windows) == ("mine", (), INSTANTS)
    assert query.plan("direct").place == f"{file}:3"


MISTAKES = [
    ("def direct(", "def direct", "mine.py:3: SyntaxError"),
    ("Plan(build=direct)", "Plan(build=dirct)", "mine.py:6: NameError: name 'dirct' is not defined"),
    ('{"direct": Plan(build=direct)}', "{}", "mine.py:6: UsageError: query mine has no plan"),
    ('{"bids": {"auction": int}}', "{}", "mine.py:6: UsageError: query mine has no source"),
    ('{"auction": int}', '{"auction": complex}', "mine.py:6: UsageError: query mine: source bids: field 'auction'"),
    ("name=", "nmae=", "mine.py:6: TypeError"),
    ("from replicas.query", "from replicas.qery", "mine.py:1: ModuleNotFoundError: No module named 'replicas.qery'"),
]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [*MISTAKES, ("QUERY", "\0", "mine.py:1: SyntaxError"), ("QUERY", "ANSWER", "mine.py has no QUERY")],
)
def test_a_mistake_in_a_python_file_is_named_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PYTHON.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_query(str(file))
    assert said in str(caught.value)


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_a_mistake_in_a_module_is_named_as_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{tmp_path.name}_package").mkdir()
    file = tmp_path / f"{tmp_path.name}_package" / "mine.py"
    file.write_text(PYTHON.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_query(f"{file.parent.name}.mine")
    assert f"{file.parent}/{said}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cold_items", "query 'cold_items': none of that name is shipped, only bids_with_auction, category_prices"),
        ("no/such.sql", "query file no/such.sql"),
        ("no_such.module", "there is no module no_such.module"),
        ("replicas.windows", "replicas.windows has no QUERY"),
    ],
)
def test_what_is_not_there_is_named(name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_query(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", shipped_queries())
def test_every_shipped_query_has_two_plans_and_runs_in_its_own_windows(name: str) -> None:
    query = load_query(name)
    assert query.name == name
    assert len(query.plans) >= 2
    for plan in query.plans.values():
        plan.check(query.windows)


def test_a_python_query_is_known_by_all_that_is_in_its_file(tmp_path: Path) -> None:
    """A plan's text has the name of a function of Python's, not what it does."""
    codes = []
    for name, further in (("a", ""), ("b", ""), ("c", "FACTOR = 2\n")):
        file = tmp_path / f"{name}.py"
        file.write_text(PYTHON + further)
        codes.append(load_query(str(file)).code)
    assert codes[0] == codes[1] != codes[2]
    assert load_query("hot_items").code
