import pytest

from lmerge import Element, Hello, IllegalElement, Skip
from lmerge.cleanse import Cleanse, by_bytes
from lmerge.properties import BY_END_AND_PAYLOAD
from tests.support.streams import INF, adj, hello, ins, stb


def _run(cleanse: Cleanse, *elements: Element) -> list[Element]:
    return [out for element in elements for out in cleanse.process(element)]


def test_frozen_events_come_out_in_order_of_vs() -> None:
    assert _run(Cleanse(), ins("B", 3, 5), ins("A", 1, 4), stb(6)) == [ins("A", 1, 4), ins("B", 3, 5), stb(6)]


def test_a_frozen_event_waits_for_an_earlier_one_that_is_not() -> None:
    cleanse = Cleanse()
    assert _run(cleanse, ins("long", 2, 20), ins("short", 3, 5), stb(10)) == [stb(2)]
    assert _run(cleanse, adj("long", 2, 20, 10), stb(11)) == [ins("long", 2, 10), ins("short", 3, 5), stb(11)]


def test_an_event_that_ends_at_the_stable_is_not_frozen_yet() -> None:
    cleanse = Cleanse()
    assert _run(cleanse, ins("A", 1, 6), stb(6)) == [stb(1)]
    assert _run(cleanse, adj("A", 1, 6, 8), stb(9)) == [ins("A", 1, 8), stb(9)]


def test_of_equal_vs_the_shorter_goes_without_waiting_for_the_longer() -> None:
    cleanse = Cleanse()
    assert _run(cleanse, ins("A", 1, 9), ins("B", 1, 4), stb(6)) == [ins("B", 1, 4), stb(1)]
    assert _run(cleanse, stb(10)) == [ins("A", 1, 9), stb(10)]


def test_ties_come_in_the_order_of_the_key() -> None:
    events: list[Element] = [ins(b"b", 1, 2), ins(b"a", 1, 2), ins(b"c", 1, 2)]
    assert _run(Cleanse(), *events, stb(3)) == [ins(b"a", 1, 2), ins(b"b", 1, 2), ins(b"c", 1, 2), stb(3)]
    backwards = Cleanse(key=lambda payload: -payload[0])
    assert _run(backwards, *events, stb(3)) == [ins(b"c", 1, 2), ins(b"b", 1, 2), ins(b"a", 1, 2), stb(3)]
    assert by_bytes(("a", 1)) == b"('a', 1)"


def test_duplicates_are_kept_and_adjusted_one_by_one() -> None:
    stream: list[Element] = [ins("A", 1, 9), ins("A", 1, 9), adj("A", 1, 9, 3), stb(10)]
    assert _run(Cleanse(), *stream) == [ins("A", 1, 3), ins("A", 1, 9), stb(10)]


def test_a_removed_event_never_comes_out() -> None:
    assert _run(Cleanse(), ins("A", 1, 9), adj("A", 1, 9, 1), stb(10)) == [stb(10)]


def test_the_end_of_the_stream_releases_events_without_end() -> None:
    cleanse = Cleanse()
    assert _run(cleanse, ins("A", 1, INF), ins("B", 2, 3), stb(9)) == [stb(1)]
    assert len(cleanse) == 2
    assert _run(cleanse, stb(INF)) == [ins("A", 1, INF), ins("B", 2, 3), stb(INF)]
    assert len(cleanse) == 0


def test_a_stable_that_promises_nothing_new_is_not_passed_on() -> None:
    cleanse = Cleanse()
    assert _run(cleanse, ins("A", 1, INF), stb(5), stb(6), stb(6)) == [stb(1)]


@pytest.mark.parametrize(
    "illegal",
    [
        ins("C", 4, 9),
        adj("A", 1, 4, 9),
        adj("A", 1, 9, 4),
        adj("A", 1, 8, 9),
        adj("C", 1, 9, 10),
        stb(4),
        Hello(replica="r", incarnation=1, properties={"fast": True}),
    ],
)
def test_an_illegal_element_is_refused_and_changes_nothing(illegal: Element) -> None:
    cleanse = Cleanse()
    assert _run(cleanse, ins("A", 1, 9), ins("B", 2, 3), stb(5)) == [stb(1)]
    with pytest.raises(IllegalElement):
        cleanse.process(illegal)
    assert _run(cleanse, stb(10)) == [ins("A", 1, 9), ins("B", 2, 3), stb(10)]


def test_a_hello_starts_anew_and_declares_the_order() -> None:
    cleanse = Cleanse()
    _run(cleanse, ins("Z", 1, 2), stb(4), ins("A", 4, 9), stb(5))
    (out,) = cleanse.process(hello(2, joins_at=3))
    assert isinstance(out, Hello)
    assert (out.incarnation, out.joins_at) == (2, 3)
    assert out.properties == {"insert_only": True, "order": "non-decreasing", "tie_order": BY_END_AND_PAYLOAD}
    assert _run(cleanse, ins("B", 0, 1), stb(2)) == [ins("B", 0, 1), stb(2)]


def test_a_key_of_ones_own_is_declared_by_its_name() -> None:
    (out,) = Cleanse(key=len, tie_order="length").process(hello())
    assert isinstance(out, Hello)
    assert out.properties["tie_order"] == "length"


def test_a_skip_passes() -> None:
    assert _run(Cleanse(), ins("A", 1, 9), Skip(4)) == [Skip(4)]
