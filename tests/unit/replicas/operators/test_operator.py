"""What operators refuse, and what fast-forward says, by small examples."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from lmerge import TDB, Element, Event, IllegalElement, UsageError, reconstitute
from replicas.operators import (
    Aggregate,
    Chain,
    Filter,
    Grid,
    Join,
    Map,
    Mode,
    Operator,
    Window,
    WindowAggregate,
    count,
    maximum,
    top,
    total,
)
from tests.support.streams import INF, adj, hello, ins, skip, stb


def operators() -> list[Operator]:
    """Return one of each kind."""
    return [
        Filter(lambda _: True),
        Map(str),
        Window.tumbling(5),
        Aggregate(count(), Mode.ORDERED),
        WindowAggregate(Grid(10, 10), count(), Mode.EAGER),
        Join(str, str, lambda one, other: (one, other)),
        Chain(Filter(lambda _: True), Map(str)),
    ]


@pytest.mark.parametrize("kind", range(len(operators())), ids=[operator.signature for operator in operators()])
@pytest.mark.parametrize("element", [ins("A", 9, 12), adj("A", 1, 20, 9), adj("A", 1, 9, 20), stb(9)], ids=repr)
def test_what_comes_below_the_stable_is_refused(kind: int, element: Element) -> None:
    operator = operators()[kind]
    operator.process([ins("A", 1, 20)])
    operator.process([stb(10)])
    with pytest.raises(IllegalElement, match=r"comes after Stable\(10\)"):
        operator.process([element])


@pytest.mark.parametrize("kind", range(len(operators())), ids=[operator.signature for operator in operators()])
def test_hello_skip_and_inputs_that_there_are_not_are_refused(kind: int) -> None:
    operator = operators()[kind]
    for element in (hello(), skip(5)):
        with pytest.raises(UsageError, match="no element of an operator's input"):
            operator.process([element])
    with pytest.raises(UsageError, match="has no input 2"):
        operator.process([], 2)
    for before in (INF, -INF - 1):
        with pytest.raises(UsageError, match="needs a finite instant"):
            operator.fast_forward(before)


@pytest.mark.parametrize("mode", Mode)
def test_an_aggregate_refuses_adjusts_of_events_that_it_can_see_not_to_be_there(mode: Mode) -> None:
    for wrong in (adj(7, 1, 5, 3), adj(10, 2, 5, 2), adj(10, 1, 6, 4)):
        aggregate = Aggregate(maximum(), mode)
        aggregate.process([ins(10, 1, 5)])
        with pytest.raises(IllegalElement):
            aggregate.process([wrong])
    with pytest.raises(IllegalElement, match="does not exist"):
        Aggregate(count(), mode).process([adj(10, 1, 5, 3)])
    with pytest.raises(IllegalElement, match="does not exist"):
        WindowAggregate(Grid(10, 10), count(), mode).process([adj(10, 1, 5, 1)])
    windows = WindowAggregate(Grid(10, 10), maximum(), mode)
    windows.process([ins(10, 1, 5)])
    with pytest.raises(IllegalElement, match="which is not there"):
        windows.process([adj(7, 1, 5, 1)])


def test_parameters_that_cannot_be_are_refused() -> None:
    join = Join(str, str, lambda one, other: (one, other))
    for make in (
        lambda: Grid(5, 6),
        lambda: Grid(5, 0),
        lambda: Grid(5, 5, 5),
        lambda: Window.range(0),
        lambda: Window.hopping(5, 0),
        lambda: Chain(Map(str), join),
    ):
        with pytest.raises(UsageError):
            make()
    assert Chain(join, Map(str)).inputs == 2


def test_a_chain_passes_both_inputs_of_its_join() -> None:
    chain = Chain(Join(lambda a: a[0], lambda b: b[0], lambda a, b: (*a, b[1])), Aggregate(count(), Mode.EAGER))
    assert chain.process([ins((7, "bid"), 1, 9), stb(4)]) == []
    assert chain.process([ins((7, "lamp"), 3, 12), stb(4)], 1) == [ins(1, 3, 9), stb(4)]
    assert chain.promised == 4


def test_answers_leave_in_the_order_of_rank() -> None:
    best = WindowAggregate(Grid(10, 10), top(2), Mode.EAGER)
    assert best.process([ins(5, 1, 2), ins(9, 2, 3)]) == [ins((1, 9), 0, 10), ins((2, 5), 0, 10)]
    assert best.process([ins(7, 3, 4)]) == [adj((2, 5), 0, 10, 0), ins((2, 7), 0, 10)]


def test_equal_payloads_of_one_window_are_kept_apart() -> None:
    same = WindowAggregate(Grid(10, 10), top(3), Mode.EAGER, result=lambda _, ranked: ranked[1] // 10)
    assert same.process([ins(11, 1, 2), ins(12, 2, 3)]) == [ins(1, 0, 10), ins(1, 0, 10)]
    assert same.process([ins(25, 3, 4), adj(11, 1, 2, 1)]) == [adj(1, 0, 10, 0), ins(2, 0, 10)]


@pytest.mark.parametrize("mode", [Mode.ORDERED, Mode.EAGER])
def test_windows_that_end_before_are_taken_back_and_later_rows_in_them_ignored(mode: Mode) -> None:
    windows = WindowAggregate(Grid(10, 10), count(), mode)
    windows.process([ins("a", 1, 2), ins("b", 12, 13)])
    assert windows.fast_forward(20) == [adj(1, 0, 10, 0)]
    assert windows.process([ins("c", 5, 6), adj("a", 1, 2, 1)]) == []
    assert windows.fast_forward(15) == [], "a smaller one changes nothing"
    assert len(windows) == 1


def test_an_answer_that_a_promise_rests_on_is_finished_as_usual() -> None:
    aggregate = Aggregate(total(), Mode.EAGER)
    aggregate.process([ins(10, 1, 30), stb(10), ins(20, 12, 25)])
    assert aggregate.fast_forward(50) == [adj(30, 12, 25, 12), adj(10, 25, 30, 25)]
    # The snapshot at 12 may yet grow: before Stable(20) makes it half frozen it has to be out again.
    assert aggregate.process([stb(20)]) == [ins(30, 12, 25), stb(20)]
    assert aggregate.process([adj(20, 12, 25, 60), adj(10, 1, 30, 60)]) == [adj(30, 12, 25, 60)]


REPLAY = """
from replicas.operators import Aggregate, Grid, Mode, WindowAggregate, count, top
from tests.support.streams import adj, ins, stb
rows = [ins((group, n), n, n + 7) for n in range(30) for group in ("lamp", "chair", "table")]
batch = [*rows, adj(("chair", 9), 9, 16, 9), stb(20)]
for mode in Mode:
    for make in (lambda f: Aggregate(f, mode, key=lambda p: p[0]), lambda f: WindowAggregate(Grid(9, 3), f, mode)):
        for function in (count(), top(2)):
            operator = make(function)
            print(operator.process(batch), operator.fast_forward(25), operator.save())
"""


def test_another_process_puts_out_the_same_elements_in_the_same_order() -> None:
    """Strings hash differently in every process, so an order that came from a set or a hash would show."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", REPLAY], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        pytest.param(
            lambda: Chain(WindowAggregate(Grid(5, 5), count(), Mode.EAGER, key=lambda row: row[0]), Window.range(20)),
            [Event(("a", 1), 0, 20), Event(("b", 1), 0, 20)],
            id="a window behind makes results longer",
        ),
        pytest.param(
            lambda: Chain(
                Aggregate(total(), Mode.EAGER, key=lambda row: row[0], value=lambda row: row[1]),
                Aggregate(count(), Mode.EAGER),
            ),
            [Event(1, 5, 20)],
            id="an aggregate behind ends where a result before it ends",
        ),
    ],
)
def test_a_chain_skips_nothing_that_an_operator_behind_needs(chain: Callable[[], Chain], expected: list[Event]) -> None:
    """Results with `ve >= before` are right, also if what they are made of ends before."""
    made = chain()
    elements = made.process([ins(("a", 1), 1, 5), ins(("b", 1), 3, 20)])
    elements += made.fast_forward(10)
    elements += made.process([stb(INF)])
    assert TDB(event for event in reconstitute(elements) if event.ve >= 10) == TDB(expected)


@pytest.mark.parametrize("mode", Mode)
def test_an_endless_event_does_not_let_the_schedule_grow_with_what_ends(mode: Mode) -> None:
    """Each short event is due before the endless one, which is due again after it."""
    aggregate = Aggregate(count(), mode)
    aggregate.process([ins("A", 0, INF)])
    for vs in range(10, 10_000, 10):
        aggregate.process([ins("B", vs, vs + 1), stb(vs + 5)])
    assert len(aggregate) < 5
    assert len(aggregate._schedule) < 20


def test_ends_that_moved_on_do_not_let_a_join_grow() -> None:
    join = Join(str, str, lambda one, other: (one, other))
    join.process([ins("A", 0, 1_000)], 0)
    for end in range(1_000, 2_000):
        join.process([adj("A", 0, end, end + 1)], 0)
    (side, _) = join._sides
    assert len(join) == len(side.by_end) == 1
    assert len(side.ends) < 20
