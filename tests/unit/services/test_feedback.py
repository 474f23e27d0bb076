"""When a laggard is told to skip ahead, how far, and when it is cured."""

import pytest

from lmerge import INFINITY
from lmerge.signals import Signal
from services.merge.definitions import Desired, InputDefinition, MergeDefinition, NormalFormDefinition
from services.merge.desired import TooFar, fast_forward, put_input, put_merge
from services.merge.feedback import Told, has_caught_up, is_due, may_skip_to


@pytest.mark.parametrize(
    ("told", "stable", "own_stable", "now_ms", "expected"),
    [
        pytest.param(Told(None, 0), 200, 101, 5_000, False, id="it does not lag enough"),
        pytest.param(Told(None, 0), 200, 100, 5_000, False, id="it lags just enough"),
        pytest.param(Told(None, 0), 200, 99, 5_000, True, id="it lags, and was never told"),
        pytest.param(Told(None, 0), INFINITY, 99, 5_000, False, id="the stream has ended: there is nowhere to skip to"),
        pytest.param(Told(None, 1_000), 200, 99, 1_999, False, id="it had caught up, and was told a moment ago"),
        pytest.param(Told(None, 1_000), 200, 99, 2_000, True, id="it had caught up, and was told long ago"),
        pytest.param(Told(150, 1_000), 201, 99, 1_999, False, id="there is more to skip, but not so soon"),
        pytest.param(Told(150, 1_000), 200, 99, 2_000, False, id="there is not much more to skip"),
        pytest.param(Told(150, 1_000), 201, 99, 2_000, True, id="there is much more to skip"),
        pytest.param(Told(150, 1_000), 200, 99, 10_999, False, id="it still lags, but has not for long"),
        pytest.param(
            Told(150, 1_000), 200, 99, 11_000, True, id="it still lags after a while: it may be another process"
        ),
    ],
)
def test_is_due(told: Told, stable: int, own_stable: int, now_ms: int, expected: bool) -> None:
    due = is_due(told, stable=stable, own_stable=own_stable, lag_ms=100, interval_ms=1_000, now_ms=now_ms)
    assert due is expected


@pytest.mark.parametrize(
    ("own_stable", "lag_ms", "expected"),
    [(150, 100, False), (151, 100, True), (200, 100, True), (250, 100, True), (99, 100, False), (200, 1, True)],
)
def test_has_caught_up(own_stable: int, lag_ms: int, expected: bool) -> None:
    """Below half the threshold, or level."""
    assert has_caught_up(stable=200, own_stable=own_stable, lag_ms=lag_ms) is expected


@pytest.mark.parametrize(
    ("normal_form", "cut_every_ms", "stable", "expected"),
    [(False, None, 26, 26), (True, None, 26, None), (True, 10, 26, 21), (True, 10, 21, 21), (True, 10, 20, 11)],
)
def test_may_skip_to(normal_form: bool, cut_every_ms: int | None, stable: int, expected: int | None) -> None:
    assert may_skip_to(stable, normal_form=normal_form, cut_every_ms=cut_every_ms) == expected


def merge(form: NormalFormDefinition | None) -> Desired:
    now = put_merge(None, "m", MergeDefinition(normal_form=form), lambda: "id")
    return put_input(now, "m", "r1", InputDefinition(topic="t"), lambda: "r1-1")


def test_an_order_to_skip_further_than_an_input_may_is_refused() -> None:
    assert fast_forward(merge(None), "m", "r1", 26, committed=26, new_id=lambda: "o")
    cut = merge(NormalFormDefinition(cut_every_ms=10))
    assert fast_forward(cut, "m", "r1", 21, committed=26, new_id=lambda: "o")
    with pytest.raises(TooFar, match="at most up to 21"):
        fast_forward(cut, "m", "r1", 22, committed=26, new_id=lambda: "o")
    with pytest.raises(TooFar, match="without cuts"):
        fast_forward(merge(NormalFormDefinition()), "m", "r1", 1, committed=26, new_id=lambda: "o")


def test_a_signal_on_the_wire() -> None:
    value = Signal(id="m/0/1", input="r1", partition=0, before=26).encode()
    assert value == b'{"kind":"fast-forward","id":"m/0/1","input":"r1","partition":0,"before":26}'
