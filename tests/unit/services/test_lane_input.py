"""The search for an input's newest incarnation, and what is to be read of an input."""

import pytest

from lmerge.codec import encode
from services.merge.lane_input import NONE, Input, Values, is_hello, search
from services.merge.lane_record import Seek, Stop
from tests.support.streams import hello, stb

KINDS = {"h": encode(hello(1)), "s": encode(stb(1)), "x": b'{"hello"', "-": None}


def records(text: str) -> Values:
    """Return records: h a hello, s a stable, x nonsense, - a tombstone, a blank for a marker."""
    places = [(offset, KINDS[kind]) for offset, kind in enumerate(text) if kind != " "]
    return Values([offset for offset, _ in places], [value for _, value in places])


@pytest.mark.parametrize(
    ("until", "begin", "text", "found", "where"),
    [
        pytest.param(5, 0, "hshss", 2, 2, id="the newest hello up to the end counts"),
        pytest.param(5, 0, "hshs", 2, None, id="a newer one may come"),
        pytest.param(5, 0, "ssssh", 4, 4, id="the last record is a hello"),
        pytest.param(5, 0, "sssss", None, 0, id="there is none, and the topic is whole"),
        pytest.param(5, None, "sssss", None, None, id="there is none, and the topic is not whole: wait"),
        pytest.param(5, 0, "hs   s", 0, 0, id="a later record ends the search"),
        pytest.param(5, 0, "ss   s", None, 0, id="a later record ends the search without a hello"),
        pytest.param(5, None, "ss   sshs", 7, 7, id="waiting, the first hello is taken"),
        pytest.param(5, 0, "hs   h", 5, 5, id="a hello that came meanwhile is the newest"),
        pytest.param(0, 0, "h", 0, 0, id="an empty topic begins with a hello"),
        pytest.param(0, 0, "ss", None, 0, id="an empty topic begins without one"),
        pytest.param(4, 0, "x-xs", None, 0, id="what is no element is no hello"),
    ],
)
def test_search(until: int, begin: int | None, text: str, found: int | None, where: int | None) -> None:
    assert search(Seek(until, begin), records(text)) == (Seek(until, begin, found), where)


def test_a_search_goes_on_where_it_stopped() -> None:
    seek = Seek(9, 0, found=3, why="its records were gone")
    assert search(seek, Values([6, 8], [KINDS["s"], KINDS["s"]])) == (seek, 3)
    assert search(seek, Values([6], [KINDS["s"]])) == (seek, None)


def test_a_hello_that_is_to_be_skipped_is_not_found() -> None:
    assert search(Seek(3, 0), records("hhs"), skipped=(1,)) == (Seek(3, 0, 0), 0)
    assert search(Seek(3, None), records("shs"), skipped=(1,)) == (Seek(3, None), None)


def test_a_hello_is_known_by_its_kind() -> None:
    assert is_hello(KINDS["h"])
    assert not any(is_hello(value) for value in (None, b'{"hello"', KINDS["s"]))
    assert not is_hello(b'{"kind":"insert","payload":{"kind":"hello"},"vs":1,"ve":2}')


def test_records_without_some() -> None:
    batch = records("sss")
    assert batch.without(()) is batch
    assert batch.without((7,)) is batch
    assert batch.without((1,)).offsets == [0, 2]
    assert batch.since(0) is batch
    assert batch.since(2).offsets == [2]


def test_what_is_to_be_read_of_an_input() -> None:
    """All but what is stopped, paused or held; a re-feed goes on through a pause."""
    each = Input("r1/1", "t", 5, 0)
    assert (each.cursor, each.is_wanted, each.is_merged) == (5, True, True)
    each.paused = True
    assert not each.is_wanted
    each.cursor = 3
    assert each.is_wanted
    each.go_to(5)
    each.paused, each.backlog = False, records("s")
    assert not each.is_wanted
    each.backlog, each.seek = NONE, Seek(5, 0)
    assert (each.is_wanted, each.is_merged) == (True, False)
    each.seek, each.stop = None, Stop("quarantined", "why", 4)
    assert (each.is_wanted, each.is_merged) == (False, False)
