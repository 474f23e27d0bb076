"""Streams in normal form, for the certifier."""

from lmerge import Element, Hello
from lmerge.normal_form import NormalForm, json_pair
from services.certify import Batch, formed
from tests.support.streams import adj, ins, stb

A = b'"A"'


def form(*batches: Batch) -> list[Batch]:
    return list(formed(iter(batches), lambda: NormalForm(None, label=json_pair)))


def one(a: int, b: int) -> Element:
    return ins(json_pair(A, 1), a, b)


def test_a_run_stands_where_the_stable_stood_that_published_it() -> None:
    assert form(Batch([ins(A, 1, 5)], [7]), Batch([ins(A, 5, 9), stb(20)], [8, 9])) == [
        Batch([], []),
        Batch([one(1, 9), stb(20)], [9, 9]),
    ]


def test_after_a_problem_nothing_counts_up_to_the_next_hello() -> None:
    hello = Hello(replica="r", incarnation=2)
    illegal = form(Batch([ins(A, 1, 5), adj(A, 1, 6, 7), stb(9)], [0, 1, 2]), Batch([hello, ins(A, 1, 3)], [3, 4]))
    assert illegal[0].positions == [1]
    assert illegal[0].problem is not None
    assert [[type(element) for element in batch.elements] for batch in illegal[1:]] == [[], [Hello]]
    malformed = form(Batch([stb(1)], [0, 1], "no element"), Batch([stb(2)], [2]), Batch([], [3], "no element either"))
    assert malformed == [Batch([stb(1)], [0, 1], "no element"), Batch([], []), Batch([], [])]
