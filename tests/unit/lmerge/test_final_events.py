"""Final events and tables where they refuse."""

import pytest

from lmerge import Element, IllegalElement, UsageError
from lmerge.final_events import FinalEvents, Gap, Position
from lmerge.table import Table
from tests.support.streams import INF, adj, hello, ins, skip, stb


def test_an_element_that_its_partition_rules_out_is_refused_and_changes_nothing() -> None:
    events = FinalEvents()
    events.take(ins("A", 6, 12), 0)
    events.take(stb(10), 1)
    position = events.position
    for element in (ins("B", 9, 20), adj("A", 6, 12, 9), stb(9)):
        with pytest.raises(IllegalElement, match="comes after Stable"):
            events.take(element, 2)
    with pytest.raises(IllegalElement, match="does not exist"):
        events.take(adj("B", 9, 12, 15), 2)
    assert events.position == position
    events.take(skip(5), 2)
    events.take(adj("A", 6, 12, 12), 3)
    events.take(stb(13), 4)
    assert events.hand_out().ve == 12
    assert events.next is None


def test_a_closed_partition_is_not_complete_while_endless_events_are_left() -> None:
    """Else a reader of several that goes on from there would not wait for them, and hand out others first."""
    events = FinalEvents()
    elements: list[Element] = [ins("A", 1, INF), ins("B", 2, INF), stb(INF)]
    for offset, element in enumerate(elements):
        events.take(element, offset)
    events.hand_out()
    assert FinalEvents(events.position).stable < INF
    events.hand_out()
    assert FinalEvents(events.position).stable == INF


def test_after_what_was_read_before_an_adjust_of_an_unknown_event_is_refused_again() -> None:
    first = FinalEvents()
    elements: list[Element] = [ins("A", 1, 5), ins("B", 2, 9), adj("A", 1, 5, 3), stb(4)]
    for offset, element in enumerate(elements):
        first.take(element, offset)
    first.hand_out()
    first.take(stb(6), 4)
    assert first.position.offset == 0  # while others that end at 3 might be told from A by their number
    second = FinalEvents(Position(1, first.position.note))
    second.take(ins("B", 2, 9), 1)
    second.take(adj("A", 1, 5, 3), 2)  # A was before offset 1
    with pytest.raises(IllegalElement, match="does not exist"):
        second.take(adj("C", 1, 7, 8), 5)


def test_a_hello_says_from_where_to_where_events_may_be_missing() -> None:
    events = FinalEvents()
    elements: list[Element] = [hello(1), ins("A", 1, 5), stb(7), hello(2, joins_at=20), ins("A", 1, 5)]
    for offset, element in enumerate(elements):
        events.take(element, offset)
    events.take(stb(30), 5)
    assert events.gaps == [Gap(3, 7, 20)]
    assert events.hand_out().ve == 5
    assert events.next is None  # A is not handed out twice


@pytest.mark.parametrize("note", ["not JSON", '{"v":1}', '{"v":2,"at":3}'])
def test_a_note_of_somebody_else_is_refused(note: str) -> None:
    with pytest.raises(UsageError, match="note"):
        FinalEvents(Position(3, note))


def test_a_table_does_not_answer_for_what_it_forgot() -> None:
    table = Table([0], whole=False)
    table.apply(0, adj("A", 1, 9, 5), 7)
    table.apply(0, stb(10), 8)
    assert table.at(4) == {"A": 1}
    table.forget(6)
    assert len(table) == 0
    assert table.at(5) == {}
    with pytest.raises(UsageError, match="ended before 6 is forgotten"):
        table.at(4)
