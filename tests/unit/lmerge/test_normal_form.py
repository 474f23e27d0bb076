import pytest

from lmerge import INFINITY, MINUS_INFINITY, TDB, Element, Hello, IllegalElement, Skip, UsageError, reconstitute
from lmerge.canonical import payload
from lmerge.normal_form import NormalForm, json_pair
from tests.support.streams import INF, adj, hello, ins, stb


def _run(operator: NormalForm, *elements: Element) -> list[Element]:
    return [out for element in elements for out in operator.process(element)]


def test_nothing_is_published_before_a_stable() -> None:
    operator = NormalForm()
    assert _run(operator, ins("a", 1, 5)) == []
    assert _run(operator, stb(1)) == [stb(1)]
    assert _run(operator, stb(2)) == [ins(("a", 1), 1, 5), stb(2)]


def test_copies_are_counted() -> None:
    assert _run(NormalForm(), ins("a", 1, 5), ins("a", 1, 5), stb(2)) == [ins(("a", 2), 1, 5), stb(2)]


def test_adjacent_events_are_one_run() -> None:
    assert _run(NormalForm(), ins("a", 1, 3), ins("a", 3, 5), stb(6)) == [ins(("a", 1), 1, 5), stb(6)]


def test_runs_are_inserted_in_order_of_vs() -> None:
    stream: list[Element] = [ins("b", 3, 9), ins("a", 1, 4), ins("a", 6, 7)]
    expected: list[Element] = [ins(("a", 1), 1, 4), ins(("b", 1), 3, 9), ins(("a", 1), 6, 7), stb(8)]
    assert _run(NormalForm(), *stream, stb(8)) == expected


def test_a_run_that_grows_is_adjusted_once_per_stable() -> None:
    operator = NormalForm()
    assert _run(operator, ins("a", 1, 4), stb(4)) == [ins(("a", 1), 1, 4), stb(4)]
    assert _run(operator, ins("a", 4, 6), adj("a", 4, 6, 9), stb(5)) == [adj(("a", 1), 1, 4, 9), stb(5)]


def test_a_change_that_is_undone_before_the_stable_leaves_no_trace() -> None:
    operator = NormalForm()
    _run(operator, ins("a", 1, 9), stb(2))
    assert _run(operator, ins("a", 4, 5), adj("a", 4, 5, 4), stb(3)) == [stb(3)]


def test_an_adjust_to_the_same_end_changes_nothing() -> None:
    operator = NormalForm()
    _run(operator, ins("a", 1, 9), ins("a", 1, 9), stb(2))
    assert _run(operator, adj("a", 1, 9, 9), stb(3)) == [stb(3)]
    assert len(operator) == 2


def test_a_payload_that_is_removed_is_forgotten_at_once() -> None:
    operator = NormalForm()
    assert _run(operator, ins("a", 5, 9), stb(2), adj("a", 5, 9, 5)) == [stb(2)]
    assert (operator._tracks, dict(operator._due), dict(operator._touched), len(operator)) == ({}, {}, {}, 0)
    assert _run(operator, stb(20)) == [stb(20)]


def test_payloads_that_are_due_at_one_instant_are_unscheduled_one_by_one() -> None:
    operator = NormalForm()
    _run(operator, ins("a", 5, 9), ins("b", 5, 9), stb(2), adj("a", 5, 9, 5))
    assert dict(operator._due) == {5: {"b": None}}
    assert _run(operator, stb(6)) == [ins(("b", 1), 5, 9), stb(6)]


def test_an_endless_run_is_cut_as_far_as_the_stable_has_come() -> None:
    operator = NormalForm(4)
    assert _run(operator, ins("a", -3, INF), stb(5)) == [
        ins(("a", 1), -3, 0),
        ins(("a", 1), 0, 4),
        ins(("a", 1), 4, 8),
        stb(5),
    ]
    assert _run(operator, stb(8)) == [stb(8)]  # the run that starts at 8 is not below it
    assert _run(operator, adj("a", -3, INF, 10), stb(INF)) == [ins(("a", 1), 8, 10), stb(INF)]


def test_without_cuts_an_endless_run_is_one_event() -> None:
    assert _run(NormalForm(), ins("a", 1, INF), stb(INF)) == [ins(("a", 1), 1, INF), stb(INF)]


def test_a_stable_visits_no_payload_that_it_does_not_concern() -> None:
    operator = NormalForm()
    _run(operator, *[ins(f"p{i}", 0, 1000 + i) for i in range(100)], stb(1))
    visited: list[str] = []

    def label(payload: str, n: int) -> tuple[str, int]:
        visited.append(payload)
        return payload, n

    operator._label = label
    assert len(_run(operator, ins("p7", 500, 2000), adj("p8", 0, 1008, 900), stb(3))) == 3
    assert visited == ["p7", "p8"]
    assert len(operator._due) == 100


@pytest.mark.parametrize(
    "illegal",
    [
        ins("a", 4, 9),
        adj("a", 1, 4, 9),
        adj("a", 1, 9, 4),
        adj("a", 2, 9, 10),
        adj("a", 1, 8, 9),
        adj("b", 1, 9, 10),
        stb(4),
        stb(INF),
        Hello(replica="r", incarnation=1, properties={"fast": True}),
    ],
)
def test_an_illegal_element_is_refused_and_changes_nothing(illegal: Element) -> None:
    operator = NormalForm(100)
    assert _run(operator, ins("a", 1, 9), ins("c", 2, INF), stb(5)) == [
        ins(("a", 1), 1, 9),
        ins(("c", 1), 2, 100),
        stb(5),
    ]
    with pytest.raises(IllegalElement):
        operator.process(illegal)
    assert len(operator) == 2
    assert _run(operator, adj("a", 1, 9, 7), stb(10)) == [adj(("a", 1), 1, 9, 7), stb(10)]


@pytest.mark.parametrize("late", [hello(1, joins_at=7), Skip(7)])
def test_without_cuts_nobody_can_join_late_or_skip(late: Element) -> None:
    operator = NormalForm()
    _run(operator, ins("a", 1, 9), stb(5))
    with pytest.raises(IllegalElement, match="cut_every"):
        operator.process(late)
    assert _run(operator, adj("a", 1, 9, 7), stb(8)) == [adj(("a", 1), 1, 9, 7), stb(8)]


@pytest.mark.parametrize(
    ("joins_at", "announced"),
    [(16, 16), (17, 21), (20, 21), (21, 21), (22, 26), (1, 1), (0, 1), (-4, -4), (-3, 1)],
)
def test_a_late_joiner_is_right_from_the_first_cut_at_or_after_the_instant_before(
    joins_at: int, announced: int
) -> None:
    """P-31 of seed-002: snapshots right from T = 15, cuts every 5: joins at 16."""
    operator = NormalForm(5)
    (out,) = operator.process(hello(3, joins_at=joins_at))
    assert isinstance(out, Hello)
    assert (out.incarnation, out.joins_at) == (3, announced)
    assert operator.process(Skip(joins_at)) == [Skip(announced)]


@pytest.mark.parametrize("cut_every", [None, 5])
def test_a_hello_starts_anew_and_declares_the_key(cut_every: int | None) -> None:
    operator = NormalForm(cut_every)
    _run(operator, ins("a", 1, 9), stb(5))
    (out,) = operator.process(hello(2))
    assert isinstance(out, Hello)
    assert out.joins_at == MINUS_INFINITY
    assert out.properties == {"order": "non-decreasing", "key": True}
    assert _run(operator, ins("a", 1, 3), stb(4)) == [ins(("a", 1), 1, 3), stb(4)]


def test_the_label_for_wire_payloads_is_canonical_json() -> None:
    operator = NormalForm(label=json_pair)
    item = payload({"price": 1.0, "item": 7})
    output = _run(operator, ins(item, 1, 5), ins(item, 1, 5), stb(2))
    assert output == [ins(payload({"payload": {"item": 7, "price": 1}, "n": 2}), 1, 5), stb(2)]


def test_cuts_need_a_positive_distance() -> None:
    with pytest.raises(UsageError, match="cut_every=0"):
        NormalForm(0)


def test_the_end_of_an_empty_stream_passes() -> None:
    assert reconstitute(_run(NormalForm(4), stb(INFINITY))) == TDB()
