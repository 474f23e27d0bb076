"""Every operator in every mode against a brute-force oracle, on random valid streams (seed-001, AC14).

A seed that fails is printed with the case; ``play(CASES[case](rng), rng)`` with ``rng = Random(seed)`` replays it.
"""

from collections.abc import Callable, Iterable
from random import Random

import pytest

from lmerge import Adjust, Element, IllegalElement
from replicas.operators import Aggregate, Mode
from replicas.operators.aggregate import SavedAggregate
from tests.support.operator_oracle import ANSWERS, snapshots, value_of
from tests.support.operator_runs import CASES, FUNCTIONS, draw_aggregate, play
from tests.support.presentations import HORIZON
from tests.support.seeds import play_seeds

STREAMS = 1_000
"""Streams per operator, each in all its modes; twenty times as many in `test-long`."""

SHARDS = 4


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("case", CASES)
def test_an_operator_is_right_at_every_step_and_in_the_end(case: str, shard: int, long: bool) -> None:
    def one(rng: Random) -> int:
        return play(CASES[case](rng), rng)

    play_seeds(one, case, until=STREAMS / SHARDS * (20 if long else 1), first=shard * 1_000_000)


# -- the check itself must find out operators that are wrong


class NeverPromises(Aggregate):
    """Promises nothing, and knows that it has not: only what its output supports tells."""

    def _promise(self, vc: int, output: list[Element]) -> None:
        """Do nothing."""


class PromisesMore(Aggregate):
    """Promises one instant more than it may."""

    def _promise(self, vc: int, output: list[Element]) -> None:
        super()._promise(vc + (vc < HORIZON), output)


class NeverRevises(Aggregate):
    """Does not correct what it has put out."""

    def process(self, elements: Iterable[Element], source: int = 0) -> list[Element]:
        return [element for element in super().process(elements, source) if not isinstance(element, Adjust)]


class Hoards(Aggregate):
    """Keeps every element."""

    kept = 0

    def process(self, elements: Iterable[Element], source: int = 0) -> list[Element]:
        elements = list(elements)
        self.kept += len(elements)
        return super().process(elements, source)

    def __len__(self) -> int:
        return self.kept


class SavesLess(Aggregate):
    """Does not save what it has put out."""

    def _save(self) -> SavedAggregate:
        saved = super()._save()
        for group in saved.groups:
            group.out = []
        return saved


def play_wrong(make: Callable[[], Aggregate], mode: Mode) -> None:
    """Play an aggregate of sums until it is found out."""
    for seed in range(60):
        rng = Random(seed)
        case = draw_aggregate(rng)._replace(make={mode: make}, answer=snapshots(ANSWERS["sum"], grouped=False))
        play(case, rng)


def test_the_check_passes_an_operator_that_is_right() -> None:
    for mode in Mode:
        play_wrong(lambda mode=mode: Aggregate(FUNCTIONS["sum"], mode, value=value_of), mode)  # type: ignore[misc]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("wrong", [NeverPromises, PromisesMore, Hoards])
def test_an_operator_that_promises_nothing_or_too_much_or_keeps_all_is_found_out(
    wrong: type[Aggregate], mode: Mode
) -> None:
    with pytest.raises((AssertionError, IllegalElement)):
        play_wrong(lambda: wrong(FUNCTIONS["sum"], mode, value=value_of), mode)


@pytest.mark.parametrize("mode", [Mode.PERFECT, Mode.ORDERED, Mode.EAGER])
@pytest.mark.parametrize("wrong", [NeverRevises, SavesLess])
def test_an_operator_that_does_not_revise_or_saves_too_little_is_found_out(wrong: type[Aggregate], mode: Mode) -> None:
    with pytest.raises((AssertionError, IllegalElement)):
        play_wrong(lambda: wrong(FUNCTIONS["sum"], mode, value=value_of), mode)
