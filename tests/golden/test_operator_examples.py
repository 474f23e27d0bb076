"""The worked checks of notes/seed-001, section 5, by their own numbers, as far as they concern the operators.

AC17 (Align) and AC21 to AC25 (Finalize) are about operators that this project does not have: lateness is decided once,
by the heartbeats. AC14, the property test, is tests/simulation/test_operators.py.
"""

from collections.abc import Sequence

import pytest

from lmerge import (
    TDB,
    Divergence,
    Element,
    Event,
    IllegalElement,
    Insert,
    create,
    reconstitute,
)
from replicas.operators import Aggregate, Join, Mode, Operator, Window, count, total
from tests.support.streams import INF, adj, ins, stb

Stream = list[Element]

MODES = list(Mode)
LATE: Stream = [ins(10, 1, 20), ins(20, 2, 20), ins(40, 10, 30), ins(5, 3, 5)]
"""The input of AC5 and AC15, without its stable."""
LATE_TDB = TDB(
    Event(p, vs, ve) for p, vs, ve in [(10, 1, 2), (30, 2, 3), (35, 3, 5), (30, 5, 10), (70, 10, 20), (40, 20, 30)]
)


def steps(operator: Operator, elements: Sequence[Element]) -> list[Stream]:
    """Return what every element makes the operator put out."""
    return [operator.process([element]) for element in elements]


def run(operator: Operator, elements: Sequence[Element]) -> Stream:
    """Return the output, element by element."""
    return [out for step in steps(operator, elements) for out in step]


def summed(mode: Mode, elements: Sequence[Element]) -> list[Stream]:
    """Return the steps of a sum; the payload is the value."""
    return steps(Aggregate(total(), mode), elements)


def tdb(*events: tuple[object, int, int]) -> TDB:
    """Return a TDB of literal events."""
    return TDB(Event(*event) for event in events)


def test_ac1_a_stream_folds_to_its_history_and_every_prefix_is_legal() -> None:
    stream: Stream = [
        ins("P1", 1, INF),
        stb(1),
        adj("P1", 1, INF, 10),
        adj("P1", 1, 10, 5),
        ins("P2", 4, 9),
        stb(10),
    ]
    assert reconstitute(stream) == tdb(("P1", 1, 5), ("P2", 4, 9))


def test_ac2_an_end_below_the_stable_is_refused() -> None:
    held: Stream = [ins("A", 1, 20), stb(10)]
    with pytest.raises(IllegalElement):
        reconstitute([*held, adj("A", 1, 20, 8)])
    reconstitute([*held, adj("A", 1, 20, 15)])
    with pytest.raises(IllegalElement):
        run(Aggregate(count(), Mode.EAGER), [*held, adj("A", 1, 20, 8)])


def test_ac3_a_start_below_the_stable_is_refused_and_at_it_is_not() -> None:
    with pytest.raises(IllegalElement):
        reconstitute([stb(10), ins("A", 9, 12)])
    with pytest.raises(IllegalElement):
        run(Aggregate(count(), Mode.EAGER), [stb(10), ins("A", 9, 12)])
    reconstitute([stb(10), ins("A", 10, 12)])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Mode.FINAL, [[], [], [ins(10, 1, 3), ins(30, 3, 5), ins(20, 5, 8), stb(9)]]),
        (Mode.PERFECT, [[], [ins(10, 1, 3)], [ins(30, 3, 5), ins(20, 5, 8), stb(9)]]),
        (
            Mode.ORDERED,
            [[ins(10, 1, INF)], [adj(10, 1, INF, 3), ins(30, 3, INF)], [adj(30, 3, INF, 5), ins(20, 5, 8), stb(9)]],
        ),
        (
            Mode.EAGER,
            [[ins(10, 1, 5)], [adj(10, 1, 5, 3), ins(30, 3, 5), ins(20, 5, 8)], [stb(9)]],
        ),
    ],
)
def test_ac4_in_order(mode: Mode, expected: list[Stream]) -> None:
    assert summed(mode, [ins(10, 1, 5), ins(20, 3, 8), stb(9)]) == expected


def test_ac5_a_late_insert_cuts_a_snapshot_in_three() -> None:
    *_, late, stable = summed(Mode.PERFECT, [*LATE, stb(31)])
    assert late == [adj(30, 2, 10, 3), ins(35, 3, 5), ins(30, 5, 10)]
    assert stable == [ins(70, 10, 20), ins(40, 20, 30), stb(31)]


@pytest.mark.parametrize("mode", [Mode.FINAL, Mode.PERFECT])
def test_ac6_an_end_that_is_not_come_to_yet_moves_without_a_word(mode: Mode) -> None:
    stream: Stream = [ins(10, 1, INF), adj(10, 1, INF, 10), stb(20)]
    assert summed(mode, stream) == [[], [], [ins(10, 1, 10), stb(20)]]
    assert summed(Mode.ORDERED, stream) == [[ins(10, 1, INF)], [], [adj(10, 1, INF, 10), stb(20)]]


def test_ac7_an_end_moves_between_snapshots_that_are_out() -> None:
    stream: Stream = [ins(10, 1, 20), ins(20, 4, 12), ins(40, 15, 30), adj(20, 4, 12, 8), stb(31)]
    output = summed(Mode.PERFECT, stream)
    assert output[3] == [adj(30, 4, 12, 8), ins(10, 8, 15), adj(10, 12, 15, 12)]
    final = tdb((10, 1, 4), (30, 4, 8), (10, 8, 15), (50, 15, 20), (40, 20, 30))
    assert reconstitute(out for step in output for out in step) == final


def test_ac8_a_gap_has_no_answer() -> None:
    output = summed(Mode.PERFECT, [ins(10, 1, 3), ins(20, 5, 7), stb(8)])
    assert output == [[], [ins(10, 1, 3)], [ins(20, 5, 7), stb(8)]]
    assert summed(Mode.ORDERED, [ins(10, 1, 3), ins(20, 5, 7)])[1][0] == adj(10, 1, INF, 3)  # E10


@pytest.mark.parametrize("mode", MODES)
def test_ac9_equal_ends_give_no_empty_snapshot(mode: Mode) -> None:
    output = summed(mode, [ins(10, 1, 5), ins(20, 2, 5), stb(6)])
    assert reconstitute(out for step in output for out in step) == tdb((10, 1, 2), (30, 2, 5))
    assert all(out.vs < out.ve for step in output for out in step if isinstance(out, Insert))


@pytest.mark.parametrize(("mode", "promise"), [("final", 1), ("perfect", 1), ("ordered", 10), ("eager", 10)])
def test_ac10_an_open_snapshot_holds_the_promise_back_unless_it_is_out(mode: str, promise: int) -> None:
    output = summed(Mode(mode), [ins(10, 1, 20), stb(10), ins(20, 12, 20), stb(21)])
    assert output[1] == [stb(promise)]
    assert reconstitute(out for step in output for out in step) == tdb((10, 1, 12), (30, 12, 20))


def test_ac11_a_vanished_start_lengthens_the_snapshot_before_it() -> None:
    stream: Stream = [
        ins(10, 1, 100),
        ins(20, 10, 20),
        ins(40, 15, 30),
        stb(10),
        adj(20, 10, 20, 10),
        stb(101),
    ]
    output = summed(Mode.PERFECT, stream)
    assert output[4] == [adj(30, 10, 15, 10), adj(10, 1, 10, 15)]
    assert reconstitute(out for step in output for out in step) == tdb((10, 1, 15), (50, 15, 30), (10, 30, 100))


def test_ac12_the_newest_insert_is_cancelled_behind_a_half_frozen_answer() -> None:
    stream: Stream = [ins(10, 1, 100), ins(20, 10, 20), stb(10), adj(20, 10, 20, 10), stb(101)]
    assert summed(Mode.PERFECT, stream) == [
        [],
        [ins(10, 1, 10)],
        [stb(10)],
        [],
        [adj(10, 1, 10, 100), stb(101)],
    ]


@pytest.mark.parametrize("mode", MODES)
def test_ac13_nothing_is_kept_when_all_is_final(mode: Mode) -> None:
    """The note keeps one empty entry at 8. By its own rule for groups that goes too: a gap is as good as nothing."""
    aggregate = Aggregate(total(), mode)
    run(aggregate, [ins(10, 1, 5), ins(20, 3, 8)])
    assert len(aggregate) > 0
    aggregate.process([stb(9)])
    assert len(aggregate) == 0


def test_ac15_an_eager_and_a_final_replica_through_r3() -> None:
    r0 = run(Aggregate(total(), Mode.EAGER), LATE)
    r1 = run(Aggregate(total(), Mode.FINAL), [*LATE, stb(31)])
    merge = create("R3")
    merge.attach("r0")
    merge.attach("r1")
    first = merge.process("r0", r0)
    assert first == [ins(10, 1, 20), ins(30, 2, 20), ins(70, 10, 20), ins(40, 20, 30), ins(35, 3, 5), ins(30, 5, 10)]
    assert merge.process("r1", r1[:-1]) == []
    second = merge.process("r1", r1[-1:])
    assert second == [adj(10, 1, 20, 2), adj(30, 2, 20, 3), stb(31)]
    assert merge.process("r0", [stb(31)]) == []
    assert reconstitute([*first, *second]) == LATE_TDB


def test_ac16_rows_in_another_order_with_the_same_stables_mean_the_same() -> None:
    rows: Stream = [ins("a", 1, 2), ins("b", 10, 11)]
    one = run(Aggregate(count(), Mode.EAGER), [*rows, stb(20)])
    other = run(Aggregate(count(), Mode.EAGER), [*rows[::-1], stb(20)])
    assert reconstitute(one) == reconstitute(other)


def drop_late(rows: Sequence[Insert]) -> Stream:
    """Drop rows as a replica would that has a watermark of its own: the largest start seen, less 5."""
    kept: Stream = []
    seen = 0
    for row in rows:
        if row.vs >= seen - 5:
            kept.append(row)
        seen = max(seen, row.vs)
    return kept


def test_ac16_negative_control_replicas_with_watermarks_of_their_own_diverge_and_it_is_reported() -> None:
    rows = [ins("a", 1, 31), ins("b", 10, 40)]
    in_order = run(Aggregate(count(), Mode.EAGER), [*drop_late(rows), stb(5)])
    late = run(Aggregate(count(), Mode.EAGER), [*drop_late(rows[::-1]), stb(50)])
    assert reconstitute(in_order) == tdb((1, 1, 10), (2, 10, 31), (1, 31, 40))
    assert reconstitute(late) == tdb((1, 10, 40))
    merge = create("R3")
    merge.attach("in order")
    merge.attach("late")
    merge.process("in order", in_order)
    merge.process("late", late)
    (divergence,) = [fact for fact in merge.take_facts() if isinstance(fact, Divergence)]
    assert (divergence.payload, divergence.vs) == (1, 1)
    assert set(divergence.claims) == {"in order", "late"}


def test_ac18_the_join_of_the_sources_tables() -> None:
    join = Join(lambda a: a, lambda a: a, lambda a, b: a + b)
    assert join.process([ins("A0", 0, 2), stb(1), ins("A1", 2, 6)], 0) == []
    assert len(join) == 2
    assert join.process([ins("A1", 3, 5)], 1) == [ins("A1A1", 3, 5)]
    assert join.process([stb(3)], 1) == [stb(1)]
    assert len(join) == 2, "A0 has aged out"
    assert join.process([adj("A1", 2, 6, 4)], 0) == [adj("A1A1", 3, 5, 4)]
    assert join.process([stb(7)], 0) == [stb(3)]
    assert join.process([stb(7)], 1) == [stb(7)]
    assert len(join) == 0


def test_ac19_a_window_of_five() -> None:
    stream: Stream = [ins("a", 2, INF), ins("b", 4, 6), adj("a", 2, INF, 9), adj("b", 4, 6, 4), stb(4)]
    assert steps(Window.range(5), stream) == [[ins("a", 2, 7)], [ins("b", 4, 9)], [], [adj("b", 4, 9, 4)], [stb(4)]]


def test_ac20_a_hopping_window() -> None:
    stream: Stream = [ins("a", 5, INF), stb(5), stb(7), stb(8), ins("b", 9, 10)]
    assert steps(Window.hopping(8, 4), stream) == [[ins("a", 4, 12)], [stb(4)], [], [stb(8)], [ins("b", 8, 16)]]
