"""The examples of paper 000, sections I and III, by their own numbers."""

import pytest

from lmerge import TDB, Adjust, Element, Event, Freeze, Insert, Stable, freeze, reconstitute
from tests.support.streams import INF, adj, ins, stb

# Example 1, Table I. The paper's a() and f() are our insert and stable; its m(value, start, newEnd) does not name the
# old end, which our adjust does.
PHY1: list[Element] = [ins("B", 8, INF), ins("A", 6, 12), adj("B", 8, INF, 10), stb(11), stb(INF)]
PHY2: list[Element] = [ins("A", 6, 7), ins("B", 8, 15), adj("A", 6, 7, 12), adj("B", 8, 15, 10), stb(INF)]
TABLE_I = TDB([Event("A", 6, 12), Event("B", 8, 10)])


@pytest.mark.parametrize("stream", [PHY1, PHY2], ids=["Phy1", "Phy2"])
def test_both_streams_of_table_i_reconstitute_to_the_printed_tdb(stream: list[Element]) -> None:
    assert reconstitute(stream) == TABLE_I


def test_prefixes_of_table_i_are_not_always_equivalent() -> None:
    assert reconstitute(PHY1[:2]) != reconstitute(PHY2[:2])


def _open(payload: str, vs: int) -> Insert:
    return Insert(payload, vs, INF)


def _close(payload: str, vs: int, ve: int, vold: int = INF) -> Adjust:
    return Adjust(payload, vs, vold, ve)


# Example 3: open(p, Vs) is an insert to infinity, close(p, Ve) an adjust of its end; in W a second close revises.
OPEN_CLOSE: dict[str, list[Element]] = {
    "S": [_open("A", 1), _open("B", 2), _open("C", 3), _close("A", 1, 4), _close("B", 2, 5)],
    "U": [_open("A", 1), _close("A", 1, 4), _open("B", 2), _close("B", 2, 5), _open("C", 3)],
    "W": [
        _open("B", 2),
        _close("B", 2, 6),
        _open("A", 1),
        _open("C", 3),
        _close("A", 1, 4),
        _close("B", 2, 5, vold=6),
    ],
}


@pytest.mark.parametrize("name", OPEN_CLOSE)
def test_open_and_close_elements_of_example_3_reconstitute_to_the_printed_tdb(name: str) -> None:
    assert reconstitute(OPEN_CLOSE[name]) == TDB([Event("A", 1, 4), Event("B", 2, 5), Event("C", 3, INF)])


def test_the_adjusts_of_example_5_are_equivalent_to_a_single_insert() -> None:
    stream: list[Element] = [ins("A", 6, 20), adj("A", 6, 20, 30), adj("A", 6, 30, 25)]
    assert reconstitute(stream) == reconstitute([ins("A", 6, 25)])


U, H, F = Freeze.UNFROZEN, Freeze.HALF_FROZEN, Freeze.FULLY_FROZEN
SECTION_III_D = {
    "I1": (14, {Event("A", 2, 16): H, Event("B", 3, 10): F, Event("C", 4, 18): H, Event("D", 15, 20): U}),
    "I2": (11, {Event("A", 2, 12): H, Event("B", 3, 10): F, Event("C", 4, 18): H, Event("E", 17, 21): U}),
    "O1": (11, {Event("A", 2, INF): H, Event("B", 3, 10): F, Event("C", 4, INF): H}),
    "O2": (
        14,
        {
            Event("A", 2, 16): H,
            Event("B", 3, 10): F,
            Event("C", 4, 18): H,
            Event("D", 15, 20): U,
            Event("E", 17, 21): U,
        },
    ),
    "O3": (13, {Event("A", 2, 12): F, Event("C", 4, 18): H, Event("D", 15, 20): U}),
}


@pytest.mark.parametrize("name", SECTION_III_D)
def test_freeze_levels_of_section_iii_d_are_as_printed(name: str) -> None:
    last, levels = SECTION_III_D[name]
    stream: list[Element] = [Insert(e.payload, e.vs, e.ve) for e in levels]
    tdb = reconstitute([*stream, Stable(last)])
    assert {event: tdb.freeze(event) for event in tdb} == levels


@pytest.mark.parametrize(("vs", "ve", "vc", "level"), [(6, 12, 6, U), (6, 12, 7, H), (6, 12, 12, H), (6, 12, 13, F)])
def test_freeze_levels_at_their_bounds(vs: int, ve: int, vc: int, level: Freeze) -> None:
    assert freeze(vs, ve, vc) is level
