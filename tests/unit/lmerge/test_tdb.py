from collections import Counter

import pytest

from lmerge import TDB, Element, Event, IllegalElement, reconstitute
from tests.support.streams import INF, adj, hello, ins, skip, stb


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ([stb(10), ins("A", 9, 20)], r"Insert\('A', 9, 20\) comes after Stable\(10\)"),
        ([ins("A", 6, 9), stb(10), adj("A", 6, 9, 12)], "comes after"),
        ([ins("A", 6, 12), stb(10), adj("A", 6, 12, 9)], "comes after"),
        ([ins("A", 6, 12), stb(10), adj("A", 6, 12, 6)], "comes after"),
        ([stb(10), stb(9)], r"Stable\(9\) comes after Stable\(10\)"),
        ([ins("A", 6, 12), adj("A", 6, 13, 14)], "does not exist"),
        ([ins("A", 6, 12), adj("B", 6, 12, 14)], "does not exist"),
        ([ins("A", 6, 12), adj("A", 6, 12, 6), adj("A", 6, 12, 14)], "does not exist"),
    ],
)
def test_an_element_that_its_stream_rules_out_is_refused_and_changes_nothing(stream: list[Element], why: str) -> None:
    tdb = reconstitute(stream[:-1])
    before, stable = TDB(tdb), tdb.stable
    with pytest.raises(IllegalElement, match=why):
        tdb.apply(stream[-1])
    assert (tdb, tdb.stable) == (before, stable)


@pytest.mark.parametrize(
    "stream",
    [
        [stb(10), ins("A", 10, 20)],
        [ins("A", 6, 10), stb(10), adj("A", 6, 10, 12)],
        [ins("A", 6, 12), stb(10), adj("A", 6, 12, 10)],
        [stb(10), stb(10)],
        [stb(INF), stb(INF)],
    ],
)
def test_an_element_exactly_at_the_stable_point_is_legal(stream: list[Element]) -> None:
    reconstitute(stream)


def test_a_tdb_is_a_multiset() -> None:
    twice = reconstitute([ins("A", 6, 12), ins("A", 6, 12)])
    assert len(twice) == 2
    assert twice.count(Event("A", 6, 12)) == 2
    assert twice != reconstitute([ins("A", 6, 12)])
    twice.apply(adj("A", 6, 12, 20))
    assert twice == TDB([Event("A", 6, 12), Event("A", 6, 20)])


def test_an_adjust_to_its_own_start_removes_the_event() -> None:
    tdb = reconstitute([ins("A", 6, 12), adj("A", 6, 12, 6)])
    assert len(tdb) == 0
    assert Event("A", 6, 12) not in tdb


def test_the_stable_point_is_not_compared() -> None:
    assert reconstitute([ins("A", 6, 12), stb(9)]) == reconstitute([ins("A", 6, 12)])
    assert TDB() != "TDB"


def test_a_hello_voids_what_came_before_it_in_its_topic() -> None:
    tdb = reconstitute([ins("A", 6, 12), stb(10), hello(2), ins("A", 6, 30)])
    assert tdb == TDB([Event("A", 6, 30)])


def test_a_skip_changes_nothing_that_is_there() -> None:
    assert reconstitute([ins("A", 6, 12), skip(20)]) == TDB([Event("A", 6, 12)])


def test_a_snapshot_holds_the_payloads_valid_at_an_instant() -> None:
    tdb = TDB([Event("A", 1, 5), Event("A", 3, 8), Event("B", 5, INF)])
    assert tdb.snapshot(0) == Counter()
    assert tdb.snapshot(3) == Counter(A=2)
    assert tdb.snapshot(5) == Counter(A=1, B=1)
    assert tdb.snapshot(10**12) == Counter(B=1)


def test_frozen_keeps_what_ends_strictly_before() -> None:
    tdb = TDB([Event("A", 1, 5), Event("B", 1, 6), Event("C", 5, INF)])
    assert tdb.frozen(6) == TDB([Event("A", 1, 5)])


def test_a_tdb_prints_in_order_with_its_stable_point() -> None:
    tdb = reconstitute([ins("B", 8, INF), ins("A", 6, 12), stb(7)])
    assert repr(tdb) == "TDB([Event('A', 6, 12), Event('B', 8, +inf)], stable=7)"
