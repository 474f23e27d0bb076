"""What operators ought to answer, from the definitions, and how far they may promise; no code of the operators is used.

Payloads are strings such as ``a3``: a group and a value. An oracle is a function from the TDBs of the inputs to the
TDB of the output: slow and obvious. `supported` finds, by trying, the largest stable that an output supports.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, TypeAlias

from lmerge import INFINITY, MINUS_INFINITY, TDB, Event, Payload

PAYLOADS = ("a1", "a2", "a-3", "b1", "b2", "b2", "c0")

LONGEST_SLIDE = 6
"""Of windows that tests draw."""

Answers: TypeAlias = Callable[[list[int]], list[Any]]
Oracle: TypeAlias = Callable[[Sequence[TDB]], TDB]


def group_of(payload: Any) -> str:
    """Return the group of a test payload."""
    return str(payload[0])


def value_of(payload: Any) -> int:
    """Return the value of a test payload."""
    return int(payload[1:])


def cents_of(payload: Any) -> Decimal:
    """Return the value of a test payload as a decimal with two digits."""
    return Decimal(int(payload[1:])).scaleb(-2)


def _average(values: list[int]) -> str:
    return str((Decimal(sum(values)) / len(values)).quantize(Decimal("0.01"), ROUND_HALF_UP))


ANSWERS: dict[str, Answers] = {
    "count": lambda values: [len(values)],
    "sum": lambda values: [sum(values)],
    "sum of cents": lambda values: [f"{Decimal(sum(values)) / 100:.2f}"],
    "min": lambda values: [min(values)],
    "max": lambda values: [max(values)],
    "average": lambda values: [_average(values)],
    "top 2": lambda values: list(enumerate(sorted(values, reverse=True)[:2], 1)),
}
"""By name: all answers for the values that are valid together."""


def _groups(events: Iterable[Event], grouped: bool) -> dict[str | None, list[Event]]:
    groups: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        groups[group_of(event.payload) if grouped else None].append(event)
    return groups


def _label(group: str | None, answer: Any) -> Payload:
    result: Payload = answer if group is None else (group, answer)
    return result


def snapshots(answers: Answers, *, grouped: bool) -> Oracle:
    """Return the aggregate over snapshots: between two neighbouring starts or ends of a group nothing changes."""

    def oracle(inputs: Sequence[TDB]) -> TDB:
        result = []
        for group, events in _groups(inputs[0], grouped).items():
            points = sorted({event.vs for event in events} | {event.ve for event in events})
            for start, end in pairwise(points):
                values = [value_of(event.payload) for event in events if event.vs <= start and end <= event.ve]
                result += [Event(_label(group, answer), start, end) for answer in (answers(values) if values else ())]
        return TDB(result)

    return oracle


def windows_of(vs: int, width: int, slide: int, offset: int = 0) -> list[int]:
    """Return the starts of all windows that hold an instant, by trying all."""
    return [start for start in range(vs - width + 1, vs + 1) if (start - offset) % slide == 0]


def window_answers(answers: Answers, width: int, slide: int, offset: int, *, grouped: bool) -> Oracle:
    """Return the aggregate over windows on a grid."""

    def oracle(inputs: Sequence[TDB]) -> TDB:
        result = []
        for group, events in _groups(inputs[0], grouped).items():
            starts = {start for event in events for start in windows_of(event.vs, width, slide, offset)}
            for start in starts:
                values = [value_of(event.payload) for event in events if start <= event.vs < start + width]
                result += [Event(_label(group, answer), start, start + width) for answer in answers(values)]
        return TDB(result)

    return oracle


def lifetimes(starts: Callable[[int], Iterable[int]], width: int) -> Oracle:
    """Return the operator that gives an event the windows that start at `starts(vs)`."""
    return lambda inputs: TDB(
        Event(event.payload, start, start + width) for event in inputs[0] for start in starts(event.vs)
    )


def pairs(inputs: Sequence[TDB]) -> TDB:
    """Return the join on the group."""
    return TDB(
        Event(f"{one.payload}{other.payload}", max(one.vs, other.vs), min(one.ve, other.ve))
        for one in inputs[0]
        for other in inputs[1]
        if group_of(one.payload) == group_of(other.payload) and max(one.vs, other.vs) < min(one.ve, other.ve)
    )


def first_start(starts: Callable[[int], Iterable[int]]) -> Callable[[Sequence[int]], int]:
    """Return how far windows can promise: the first start that a row at the stable or later could get."""

    def limit(stables: Sequence[int]) -> int:
        if stables[0] == INFINITY:
            return INFINITY
        return min(start for vs in range(stables[0], stables[0] + LONGEST_SLIDE) for start in starts(vs))

    return limit


def agree(one: Iterable[Event], other: Iterable[Event], stable: int) -> bool:
    """Tell whether two TDBs are the same as far as a stable freezes them."""

    def frozen(events: Iterable[Event]) -> Counter[tuple[Payload, int, int]]:
        return Counter((event.payload, event.vs, min(event.ve, stable)) for event in events if event.vs < stable)

    return frozen(one) == frozen(other)


def supported(output: TDB, answer: TDB, limit: int) -> int:
    """Return the largest stable up to `limit` at which an output already is as it will have to be."""
    if agree(output, answer, limit):
        return limit
    instants = {t for tdb in (output, answer) for event in tdb for t in (event.vs, event.ve) if t < limit}
    return next((t for t in sorted(instants, reverse=True) if agree(output, answer, t)), MINUS_INFINITY)


def open_events(tdb: TDB, stable: int) -> int:
    """Return how many events a stable does not freeze for good."""
    return sum(event.ve >= stable for event in tdb) if stable < INFINITY else 0
