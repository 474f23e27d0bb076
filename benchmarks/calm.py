"""Rounds on a shared machine: the ones count in which others took little of it.

A virtual machine's processors are now and then given to somebody else; Linux counts that time as stolen. Whether a
round counts is decided by that alone, and not by what it has measured.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

STAT = Path("/proc/stat")
STOLEN = 7
"""The place of the stolen time among the times of all processors together."""

CALM = 0.05
"""A round counts if others had at most this share of the processors' time."""

PATIENCE = 4
"""After so many times the wanted rounds the calmest of them have to do."""


class Round(NamedTuple):
    """What one round has measured, and the share of the processors' time that others had meanwhile."""

    result: Any
    stolen: float


def rounds(work: Callable[[], Any], wanted: int, *, patience: float = PATIENCE) -> list[Round]:
    """Work until there are as many calm rounds as wanted; return them, or the calmest if it takes too long."""
    done: list[Round] = []
    while len(done) < patience * wanted and sum(each.stolen <= CALM for each in done) < wanted:
        before = _times()
        result = work()
        spent = [now - then for now, then in zip(_times(), before, strict=True)]
        done.append(Round(result, round(spent[STOLEN] / max(1, sum(spent)), 3)))
    return sorted(done, key=lambda each: each.stolen)[:wanted]


def middle(rounds: list[Round], figure: Callable[[Any], float]) -> Any:
    """Return the result whose figure is in the middle, and beside it the figures of all with what was stolen."""
    result = sorted(rounds, key=lambda each: figure(each.result))[len(rounds) // 2].result
    return result, [[figure(each.result), each.stolen] for each in rounds]


def _times() -> list[int]:
    """Return how the processors spent their time so far; nothing is stolen where the system does not tell."""
    if not STAT.exists():
        return [0] * (STOLEN + 1)
    return [int(field) for field in STAT.read_text().splitlines()[0].split()[1 : STOLEN + 2]]
