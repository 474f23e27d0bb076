"""Which rounds of a benchmark count is decided by what others took of the machine meanwhile, and by nothing else."""

from collections.abc import Callable, Sequence

import pytest

from benchmarks import calm


def _machine(monkeypatch: pytest.MonkeyPatch, stolen: Sequence[int]) -> Callable[[], int]:
    """Make a machine of which others take these hundredths of each round; work is numbered."""
    now = [0] * (calm.STOLEN + 1)
    rounds = iter(range(len(stolen)))
    monkeypatch.setattr(calm, "_times", lambda: [*now])

    def work() -> int:
        number = next(rounds)
        now[0] += 100 - stolen[number]
        now[calm.STOLEN] += stolen[number]
        return number

    return work


def test_rounds_that_were_disturbed_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = calm.rounds(_machine(monkeypatch, [50, 3, 20, 1, 0]), 3, patience=2)
    assert [each.result for each in done] == [4, 3, 1]


def test_after_some_patience_the_calmest_have_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    done = calm.rounds(_machine(monkeypatch, [50, 30, 20, 40]), 3, patience=4 / 3)
    assert [(each.result, each.stolen) for each in done] == [(2, 0.2), (1, 0.3), (3, 0.4)]


def test_the_result_in_the_middle_is_returned_with_the_figures_of_all() -> None:
    found = calm.middle([calm.Round(9, 0.0), calm.Round(5, 0.01), calm.Round(7, 0.02)], float)
    assert found == (7, [[9.0, 0.0], [5.0, 0.01], [7.0, 0.02]])
