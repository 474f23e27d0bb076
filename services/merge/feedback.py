"""Feedback: when a laggard is told to skip ahead, and how (recovery-and-sink 8; paper 000, V-D).

A signal rests on the lane's own stable and is written in the same transaction, so that everything that ends before
`before` is frozen in the output: it cannot matter any more, whatever dies next (F2).
"""

from typing import Final

import msgspec

from lmerge import INFINITY

AGAIN_INTERVALS: Final = 10
"""After so many intervals a laggard is told again what it was told: it may have been restarted, and have missed it."""


def may_skip_to(stable: int, *, normal_form: bool, cut_every_ms: int | None) -> int | None:
    """Return how far an input may skip when the merged stable is there; None: it must not skip at all.

    Whatever it skips, it has to be complete from the merged stable on: else it could not go on alone (F2). Behind the
    normal form it is so from the next cut on (see `lmerge.normal_form`), and without cuts never.
    """
    if not normal_form:
        return stable
    return None if cut_every_ms is None else (stable - 1) // cut_every_ms * cut_every_ms + 1


class Told(msgspec.Struct, frozen=True):
    """The last signal to an input; `before` is None if there was none since it last caught up."""

    before: int | None
    at_ms: int
    """0: it was never told anything."""


def is_due(told: Told, *, stable: int, own_stable: int, lag_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Tell whether an input has to be told to skip ahead.

    One that lags by more than `lag_ms` is told once. It is told again when it lags so much after it had caught up to
    half of that, when there is as much more to skip, or after a while: never twice within the interval.
    """
    if stable == INFINITY or stable - own_stable <= lag_ms:
        return False
    waited_ms = now_ms - told.at_ms
    if told.at_ms and waited_ms < interval_ms:
        return False
    return told.before is None or stable - told.before > lag_ms // 2 or waited_ms >= AGAIN_INTERVALS * interval_ms


def has_caught_up(*, stable: int, own_stable: int, lag_ms: int) -> bool:
    """Tell whether an input that was told to skip ahead is cured: below half the threshold, so it does not flap."""
    return stable - own_stable <= (lag_ms - 1) // 2
