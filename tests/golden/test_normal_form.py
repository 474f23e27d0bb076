"""Checks P-02 to P-05 and P-07 of notes/seed-002 (P-06 needs R3)."""

import pytest

from lmerge import INFINITY, TDB, Element, Event, reconstitute
from lmerge.normal_form import NormalForm
from tests.support.streams import adj, ins, stb


def _run(elements: list[Element], cut_every: int | None = None) -> list[Element]:
    operator = NormalForm(cut_every)
    return [out for element in elements for out in operator.process(element)]


def _normal_form(elements: list[Element], cut_every: int | None = None) -> TDB:
    return reconstitute(_run([*elements, stb(INFINITY)], cut_every))


def _snapshots_agree(one: TDB, other: TDB, before: int) -> bool:
    return all(one.snapshot(t) == other.snapshot(t) for t in range(before))


def test_p_02_snapshot_equal_tdb_different_and_equal_in_normal_form() -> None:
    one: list[Element] = [ins("a", 1, 5), ins("a", 3, 8)]
    other: list[Element] = [ins("a", 1, 8), ins("a", 3, 5)]
    assert reconstitute(one) != reconstitute(other)
    assert _snapshots_agree(reconstitute(one), reconstitute(other), before=10)
    expected = TDB([Event(("a", 1), 1, 3), Event(("a", 2), 3, 5), Event(("a", 1), 5, 8)])
    assert _normal_form(one) == _normal_form(other) == expected


def test_p_03_streams_are_comparable_only_below_the_smaller_stable() -> None:
    one: list[Element] = [ins("a", 1, 6), stb(6)]
    other: list[Element] = [ins("a", 1, 5), stb(4)]
    for prepare in (list, _run):
        a, b = reconstitute(prepare(one)), reconstitute(prepare(other))
        assert _snapshots_agree(a, b, before=min(a.stable, b.stable))
        assert a.snapshot(5) != b.snapshot(5)
    other.append(adj("a", 1, 5, 6))
    assert _normal_form(one) == _normal_form(other)


def test_p_04_the_normal_form_of_table_11_10() -> None:
    stream: list[Element] = [ins("c", 1, 8), ins("a", 5, 11), ins("d", 6, 14), ins("a", 9, 10), ins("b", 12, 17)]
    assert _run([*stream, stb(INFINITY)]) == [
        ins(("c", 1), 1, 8),
        ins(("a", 1), 5, 9),
        ins(("d", 1), 6, 14),
        ins(("a", 2), 9, 10),
        ins(("a", 1), 10, 11),
        ins(("b", 1), 12, 17),
        stb(INFINITY),
    ]


@pytest.mark.parametrize("stream", [[ins("a", 1, 5), ins("a", 5, 9)], [ins("a", 1, 9)]])
def test_p_05_cuts_fall_at_multiples_however_the_lifetime_came_in_pieces(stream: list[Element]) -> None:
    assert _normal_form(stream, cut_every=4) == TDB([Event(("a", 1), vs, ve) for vs, ve in [(1, 4), (4, 8), (8, 9)]])


def test_p_07_a_run_that_is_shortened_to_the_stable_itself_is_one_event() -> None:
    output = _run([ins("a", 1, 11), stb(3), adj("a", 1, 11, 3), stb(6)])
    assert output == [ins(("a", 1), 1, 11), stb(3), adj(("a", 1), 1, 11, 3), stb(6)]
    assert reconstitute(output) == TDB([Event(("a", 1), 1, 3)])
