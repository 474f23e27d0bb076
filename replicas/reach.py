"""How far a row reaches: the largest `ve - ts` of a result and a row that it rests on, read off the plan. Pure.

From the sources up, every column that is a time is known by its distance from the rows that its row rests on:

    event_time of a source            none
    the window of a time              its end lies up to the window's length after it (Spark's own arithmetic is read)
    a sum, a difference, unix_millis  as they compute
    the greatest of several           as the furthest of them
    a join                            its partner's rows lie up to the join's range away, to either side
    an aggregate                      what it groups by stays; what it computes is not known
    a union                           as the furthest input
    a deduplication                   by event_time and more: as below. Else an old row may hide a new one for ever

Where `ve` is made of anything else the reach is not known, and the plan's author may state it (`Plan.reach_ms`).
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from replicas.shape import Expression, Node, UnknownShape, infer

_US_PER_MS: Final = 1_000


class _Number(msgspec.Struct, frozen=True):
    """Some number in ``[least, most]``."""

    least: int
    most: int


class _Time(msgspec.Struct, frozen=True):
    """A time in ``[ts + least, ts + most]`` for every row that it rests on; `per_ms` of its units are a millisecond."""

    least: int
    most: int
    per_ms: int = _US_PER_MS


_Fields: TypeAlias = "tuple[_Value, ...]"
_Value: TypeAlias = "_Number | _Time | _Fields | None"
"""What is known of a column; of a struct, what is of its fields."""

_Columns: TypeAlias = Mapping[int, _Value]

_EVENT_TIME: Final = _Time(0, 0)


def infer_reach_ms(plan: Node, ve: int) -> int | None:
    """Return the reach of a plan, None if it is not known; then it can only start at the first heartbeat.

    Args:
        plan: its topmost operator.
        ve: the place of `ve` among its columns.
    """
    try:
        infer(plan, rank=None)
    except UnknownShape:
        return None
    end = _columns(plan).get(plan.columns[ve])
    return end.most if isinstance(end, _Time) and end.per_ms == 1 else None


def _columns(node: Node) -> _Columns:
    """Return what is known of the columns of an operator."""
    below = [_columns(under) for under in node.inputs]
    if node.kind == "Union":
        return {
            column: _either(known.get(under.columns[place]) for known, under in zip(below, node.inputs, strict=True))
            for place, column in enumerate(node.columns)
        }
    known = {column: value for columns in below for column, value in columns.items()}
    if node.kind == "EventTimeWatermark" and node.event_time is not None:
        return known | {node.event_time: _EVENT_TIME}
    if node.kind == "Join":
        return {column: _joined(value, node.range_ms or 0) for column, value in known.items()}
    if node.kind == "Deduplicate" and not any(known.get(key) == _EVENT_TIME for key in node.keys):
        return {}
    made = {column: _either(_value(way, known) for way in ways) for column, ways in node.values.items()}
    return known | {here: known.get(there) for here, there in node.copies.items()} | made


def _joined(value: _Value, range_ms: int) -> _Value:
    if isinstance(value, _Time):
        return _plus(value, _Number(-range_ms * value.per_ms, range_ms * value.per_ms))
    return value if isinstance(value, _Number) else None  # a window: none that is grouped by lies below a join


def _either(values: Iterable[_Value]) -> _Value:
    """Return what is known of a column that is one of these."""
    return functools.reduce(_hull, values)


def _hull(one: _Value, other: _Value) -> _Value:
    match one, other:
        case _Number(), _Number():
            return _Number(min(one.least, other.least), max(one.most, other.most))
        case _Time(), _Time() if one.per_ms == other.per_ms:
            return _Time(min(one.least, other.least), max(one.most, other.most), one.per_ms)
        case tuple(), tuple():
            return tuple(_hull(*pair) for pair in zip(one, other, strict=True))
        case _:
            return None


def _value(expression: Expression, known: _Columns) -> _Value:
    """Return what an expression is, by what is known of the columns below."""
    number = expression.number
    inputs = [_value(one, known) for one in expression.inputs]
    value: _Value = None
    match expression.kind:
        case "column":
            value = known.get(number)
        case "number":
            value = _Number(number, number)
        case "modulo":
            value = _Number(0, number - 1)
        case "struct":
            value = tuple(inputs)
        case "greatest":
            value = functools.reduce(_greater, inputs)
        case _:
            value = _computed(expression.kind, number, inputs)
    return value


def _computed(kind: str, number: int, inputs: list[_Value]) -> _Value:
    value: _Value = None
    match kind, inputs:
        case "field", [tuple() as fields]:
            value = fields[number]
        case "millis", [_Time(least, most, per_ms)] if per_ms == _US_PER_MS:
            value = _Time(least // per_ms, most // per_ms, 1)
        case ("add", [_Time() | _Number() as one, _Number() as other]) | ("add", [_Number() as other, _Time() as one]):
            value = _plus(one, other)
        case "subtract", [_Time() | _Number() as one, _Number() as other]:
            value = _plus(one, _Number(-other.most, -other.least))
        case _:
            pass
    return value


def _plus(value: _Time | _Number, number: _Number) -> _Time | _Number:
    return msgspec.structs.replace(value, least=value.least + number.least, most=value.most + number.most)


def _greater(one: _Value, other: _Value) -> _Value:
    if isinstance(one, _Time) and isinstance(other, _Time) and one.per_ms == other.per_ms:
        return _Time(max(one.least, other.least), max(one.most, other.most), one.per_ms)
    return None
