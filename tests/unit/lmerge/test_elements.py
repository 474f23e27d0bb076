import re
from collections.abc import Callable

import pytest

import lmerge
from lmerge import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable, UsageError


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Insert("A", 6, 5), "an event has a lifetime"),
        (lambda: Insert("A", 6, 6), "an event has a lifetime"),
        (lambda: Insert("A", INFINITY, INFINITY), "vs < ve"),
        (lambda: Insert("A", MINUS_INFINITY, 6), "-inf < vs"),
        (lambda: Insert("A", 6, INFINITY + 1), "ve <= +inf"),
        (lambda: Adjust("A", 6, 6, 7), "no event ends before it has begun"),
        (lambda: Adjust("A", MINUS_INFINITY, 6, 7), "-inf < vs"),
        (lambda: Adjust("A", 6, INFINITY + 1, 7), "vold <= +inf"),
        (lambda: Adjust("A", 6, 7, 5), "vs <= ve"),
        (lambda: Adjust("A", 6, 7, INFINITY + 1), "ve <= +inf"),
        (lambda: Insert("A", 1.5, 2.7), "needs integers"),  # type: ignore[arg-type]
        (lambda: Insert("A", 1, True), "needs integers"),
        (lambda: Insert({"a": 1}, 1, 2), "the payload must be hashable"),  # type: ignore[arg-type]
        (lambda: Adjust("A", 1, 2.0, 3), "needs integers"),  # type: ignore[arg-type]
        (lambda: Adjust("A", 1, 2, 3.0), "needs an integer"),  # type: ignore[arg-type]
        (lambda: Adjust([], 1, 2, 3), "the payload must be hashable"),  # type: ignore[arg-type]
        (lambda: Stable(1.5), "an instant or INFINITY"),  # type: ignore[arg-type]
        (lambda: Stable(MINUS_INFINITY), "an instant or INFINITY"),
        (lambda: Stable(INFINITY + 1), "an instant or INFINITY"),
        (lambda: Hello(replica="r", incarnation=-1), "counted from 0"),
        (lambda: Hello(replica="r", incarnation=1, joins_at=INFINITY), "an instant or MINUS_INFINITY"),
        (lambda: Skip(MINUS_INFINITY), "a finite instant"),
        (lambda: Skip(INFINITY), "a finite instant"),
        (lambda: Skip(5, cuts=1, rows=-1), "cannot be negative"),
    ],
)
def test_an_element_that_makes_no_sense_cannot_be_made(make: Callable[[], Element], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        make()


def test_elements_at_their_bounds_can_be_made() -> None:
    Insert("A", MINUS_INFINITY + 1, INFINITY)
    Adjust("A", 6, INFINITY, 6)
    Stable(INFINITY)
    Hello(replica="r", incarnation=0, joins_at=MINUS_INFINITY)


def test_elements_are_values() -> None:
    assert Insert("A", 6, 12) == Insert("A", 6, 12)
    assert hash(Insert("A", 6, 12)) == hash(Insert("A", 6, 12))
    assert Insert("A", 6, 12) != Insert("B", 6, 12)
    stable: Element = Stable(6)
    assert stable != Skip(6)
    with pytest.raises(AttributeError):
        Stable(6).vc = 7  # type: ignore[misc]


def test_elements_print_in_the_papers_terms_with_infinity_by_name() -> None:
    assert repr(Insert("A", 6, INFINITY)) == "Insert('A', 6, +inf)"
    assert repr(Adjust("A", 6, INFINITY, 20)) == "Adjust('A', 6, +inf, 20)"
    assert repr(Stable(INFINITY)) == "Stable(+inf)"
    assert repr(Skip(7)) == "Skip(7)"
    assert repr(Hello(replica="r1", incarnation=3)) == "Hello('r1', incarnation=3, joins_at=-inf)"


def test_the_public_names_are_sorted_and_complete() -> None:
    assert lmerge.__all__ == sorted(lmerge.__all__, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(lmerge, name) for name in lmerge.__all__)
