"""Folds answer by the multiset of their values alone, exactly."""

import random
from collections.abc import Callable
from decimal import Decimal
from itertools import permutations

import pytest

from lmerge import IllegalElement, UsageError
from replicas.operators import Function, average, count, maximum, minimum, top, total


def answers(function: Function, *values: object) -> list[object]:
    fold = function.empty()
    for value in values:
        fold.add(value)
    return list(fold.answers())


def test_the_functions_answer() -> None:
    assert answers(count(), "a", "b") == [2]
    assert answers(total(), 2, 5, -9) == [-2]
    assert answers(total(2), Decimal("0.1"), Decimal("0.20"), 1) == ["1.30"]
    assert answers(minimum(), 3, 1, 2) == [1]
    assert answers(maximum(), (3, -7), (3, -2)) == [(3, -2)]
    assert answers(top(2), 5, 9, 7) == [(1, 9), (2, 7)]
    assert answers(top(5), 5) == [(1, 5)]


@pytest.mark.parametrize(
    ("values", "digits", "expected"),
    [
        ([1, 2], 0, "2"),
        ([-1, -2], 0, "-2"),
        ([1, 1, 2], 2, "1.33"),
        ([1, 2, 2], 2, "1.67"),
        ([0, 0, 0, 0, 0, 0, 0, 1], 2, "0.13"),
        ([-1, 0, 0, 0, 0, 0, 0, 0], 2, "-0.13"),
        ([2**80, 2**80 + 1], 1, f"{2**80}.5"),
    ],
)
def test_an_average_is_exact_and_rounded_half_up_away_from_zero(values: list[int], digits: int, expected: str) -> None:
    assert answers(average(digits), *values) == [expected]


def test_an_average_of_decimals() -> None:
    assert answers(average(3, of=2), Decimal("0.10"), Decimal("0.25")) == ["0.175"]


def test_a_sum_does_not_depend_on_what_has_come_and_gone() -> None:
    for order in permutations([Decimal("1e2"), Decimal("0.01"), Decimal("12345678901234567890123456789.5")]):
        fold = total(2).empty()
        for value in order:
            fold.add(value)
        fold.remove(Decimal("12345678901234567890123456789.50"))
        assert list(fold.answers()) == ["100.01"]


@pytest.mark.parametrize("value", [1.5, "7", True, None, Decimal("0.001"), Decimal("nan"), Decimal("inf")])
def test_a_sum_refuses_what_it_cannot_add_exactly(value: object) -> None:
    with pytest.raises(UsageError, match="sums take integers and decimals with at most 2 digits"):
        total(2).empty().add(value)


@pytest.mark.parametrize("function", [count(), total(), average(), minimum(), maximum(), top(3)], ids=lambda f: f.name)
def test_a_fold_refuses_to_give_what_it_does_not_have(function: Function) -> None:
    with pytest.raises(IllegalElement, match="7, which is not there"):
        function.empty().remove(7)


@pytest.mark.parametrize("function", [count(), total(), average(), minimum(), maximum(), top(3)], ids=lambda f: f.name)
def test_copies_go_their_own_ways_and_dumps_come_back(function: Function) -> None:
    fold = function.empty()
    for value in (3, 1, 2):
        fold.add(value)
    before = list(fold.answers())
    copy = fold.copy()
    copy.remove(3)
    rest = function.empty()
    rest.add(1)
    copy.subtract(rest)
    assert copy.n == 1
    assert list(fold.answers()) == before
    assert list(function.load(fold.dump()).answers()) == before


def test_parameters_out_of_range_are_refused() -> None:
    wrong: list[Callable[[], Function]] = [
        lambda: top(0),
        lambda: total(-1),
        lambda: average(101),
        lambda: average(of=101),
    ]
    for make in wrong:
        with pytest.raises(UsageError):
            make()


@pytest.mark.parametrize("function", [minimum(), maximum(), top(1), top(3)])
def test_over_rows_that_stay_a_function_answers_the_same_and_keeps_what_it_can_answer_with(function: Function) -> None:
    rng = random.Random(function.name)
    whole, lean = function.empty(), function.for_rows().empty()
    for number in range(200):
        value = (rng.randrange(5), -number)
        whole.add(value)
        lean.add(value)
        assert lean.copy().answers() == whole.answers()
    assert lean.n == len(lean.answers())
    assert function.for_rows().load(lean.dump()).answers() == whole.answers()
    assert function.for_rows().name != function.name
    with pytest.raises(IllegalElement, match="rows that are never taken back"):
        lean.remove(value)
    with pytest.raises(IllegalElement, match="rows that are never taken back"):
        lean.subtract(lean.copy())


def test_a_count_or_sum_is_the_same_over_rows_that_stay() -> None:
    for function in (count(), total(), average()):
        assert function.for_rows() is function
