"""The sequence of `classified_bids`: both plans find the same number, each at its own cost."""

import pytest

from replicas.queries import classified_bids
from replicas.queries.classified_bids import FIRST, TOP_PRICE, down, place, up


def test_the_sequence_is_the_same_from_both_ends() -> None:
    steps = 50
    upwards = [up(FIRST, at) for at in range(steps + 1)]
    assert [down(upwards[-1], steps - at) for at in range(steps + 1)] == upwards
    assert len(set(upwards)) == steps + 1
    assert {number >> 63 for number in upwards} == {0, 1}


@pytest.mark.parametrize(("price", "expected"), [(-5, 0), (0, 0), (TOP_PRICE // 2, 50), (TOP_PRICE, 100), (10**9, 100)])
def test_prices_are_spread_over_the_sequence(price: int, expected: int) -> None:
    assert place(price, 100) == expected


def test_low_prices_are_dear_for_udf0_and_high_ones_for_udf1(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = {"up": 0, "down": 0}

    def counted(name: str, number: int, steps: int) -> int:
        walked[name] += steps
        return number

    scores = classified_bids.scores(steps=100)
    monkeypatch.setattr(classified_bids, "up", lambda number, steps: counted("up", number, steps))
    monkeypatch.setattr(classified_bids, "down", lambda number, steps: counted("down", number, steps))
    scores["udf0"](10)
    scores["udf1"](10)
    assert walked == {"down": 90, "up": 10}
