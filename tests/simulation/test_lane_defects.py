"""Each defect of recovery-and-sink 10 that concerns the merge, planted, is caught: by a worked case or by a seed.

Which are left out, and why, is said in tests/support/lane_defects.py. Run with ``-s`` to see who caught what.
"""

import inspect
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.golden import test_lane_cases, test_recovery_cases
from tests.support.lane_defects import DEFECTS
from tests.support.lane_world import LaneWorld
from tests.support.world import CASES

SEEDS = 30
"""For each algorithm with each policy."""


def _worked_cases() -> Iterator[tuple[str, Callable[[], None]]]:
    for module in (test_recovery_cases, test_lane_cases):
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(test).parameters:
                yield name, test


def _caught_by_cases() -> list[str]:
    return [name for name, test in _worked_cases() if _fails(test)]


def _caught_by_seed() -> str | None:
    for seed in range(SEEDS):
        for case in CASES:
            if _fails(partial(_play, seed, case)):
                return f"seed {seed} of {case}"
    return None


def _play(seed: int, case: tuple[str, str]) -> None:
    LaneWorld(random.Random(seed), *case).run()


def _fails(test: Callable[[], None]) -> bool:
    try:
        test()
    except (AttributeError, NameError, TypeError):
        raise  # the plant itself is broken: what it patches has changed
    except Exception:  # noqa: BLE001  # whatever else it is, it is noticed
        return True
    return False


def test_without_a_defect_nothing_is_caught() -> None:
    assert not _caught_by_cases()
    assert _caught_by_seed() is None


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_caught(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        DEFECTS[name](patch)
        cases, seed = _caught_by_cases(), _caught_by_seed()
    print(f"{name}: {', '.join(cases) or 'no case'}; {seed or 'no seed'}")  # noqa: T201
    assert cases or seed
