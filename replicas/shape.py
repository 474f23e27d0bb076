"""What a plan promises, inferred from its operators: properties of its output, and when its results are complete. Pure.

The transfer functions of `lmerge.properties` are folded over the operators of the analysed plan, from the sources up:

    operator                        properties                              progress
    source                          source()                                at once
    filter, deduplicate             after_filter                            as below
    projection                      after_map; injective if it keeps        as below
                                    every column that was grouped by
    expand (sliding windows)        only inserts                            as below
    inner join of sources           after_join                              at once; what is above waits for its range
    union                           after_union                             as below, if all are alike
    aggregate by window             after_aggregate, final                  at the watermark, lowered by a join below
    aggregate by window and more    after_grouped_aggregate, final          the same
    explode                         inserts and order; no key               as below

All that is not in the table is not known: outer joins, joins of aggregates, chains of joins, user-defined state,
sorting, limits. An author who wants them gives `properties` and `progress` in a Python module.

The sink adds one promise. Results with one vs come in one batch where vs does not decrease, and the sink sorts them: by
the query's rank, if it has one. So they have one order in all plans, and a top-k is R1.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from lmerge.errors import UsageError
from lmerge.properties import (
    BY_RANK,
    Order,
    Results,
    StreamProperties,
    after_aggregate,
    after_filter,
    after_grouped_aggregate,
    after_join,
    after_map,
    after_union,
    source,
)
from replicas.progress import AT_ONCE, Progress


class Expression(msgspec.Struct, frozen=True):
    """How a column is made, as far as it is about time; what is not is left out of `Node.values`.

    Args:
        kind: `column`, `number`, `add`, `subtract`, `modulo` (the remainder, never negative), `greatest`, `millis` (of
            microseconds), `struct`, `field`.
        inputs: what it is made of.
        number: the id of a column, the value of a number, the divisor of a modulo, the place of a field.
    """

    kind: str
    inputs: tuple["Expression", ...] = ()
    number: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of a plan, as far as it matters here.

    Args:
        kind: Spark's name for it.
        inputs: the operators below.
        columns: the ids of its columns.
        copies: of those, which are plain copies of a column below: id here to id there.
        values: of the others, those that are about time: the ways in which each is made.
        windows: Aggregate: how many windows it groups by.
        groups: Aggregate: the ids of its columns that hold what it groups by besides; None for one that it leaves out.
        join: Join: its type in Spark's words.
        range_ms: Join: by how much it lowers the watermark; None: it has no bound on time.
        event_time: EventTimeWatermark: the column that has the time of a row.
        keys: Deduplicate: the columns by which rows are told apart.
        inexact: Aggregate: functions that compute with floats, in Spark's words.
    """

    kind: str
    inputs: tuple["Node", ...] = ()
    columns: tuple[int, ...] = ()
    copies: Mapping[int, int] = msgspec.field(default_factory=dict)
    values: Mapping[int, tuple[Expression, ...]] = msgspec.field(default_factory=dict)
    windows: int = 0
    groups: tuple[int | None, ...] = ()
    join: str = ""
    range_ms: int | None = None
    event_time: int | None = None
    keys: tuple[int, ...] = ()
    inexact: tuple[str, ...] = ()


class Shape(NamedTuple):
    """What a plan promises, and when."""

    properties: StreamProperties
    progress: Progress


class UnknownShape(UsageError):
    """A plan whose properties cannot be inferred."""


class _Known(NamedTuple):
    """What is known about the output of an operator."""

    properties: StreamProperties
    progress: Progress
    # The columns that identify a result of a window; what a projection must keep for the key to stay.
    groups: frozenset[int] = frozenset()
    joined: bool = False


def infer(plan: Node, *, rank: str | None) -> Shape:
    """Return what a plan promises.

    Args:
        plan: its topmost operator.
        rank: the field by which the sink sorts results with one vs, if the query names one.

    Raises:
        UnknownShape: it has an operator, or a combination, that is not in the table above.
    """
    known = _fold(plan)
    properties = known.properties
    if rank is not None and properties.order is Order.NON_DECREASING and not known.progress.at_once:
        properties = msgspec.structs.replace(properties, tie_order=BY_RANK)
    return Shape(properties, known.progress)


def require_order_free(plan: Node) -> None:
    """Refuse a plan whose results depend on the order of rows by the types or the columns of an operator.

    Raises:
        UsageError: it has one.
    """
    if plan.inexact:
        raise UsageError(
            f"the function {plan.inexact[0]} adds up floats, so its result depends on the order of rows, and replicas "
            "would not agree: cast to decimal or bigint before you add up, and divide sums for an average"
        )
    if plan.kind == "Deduplicate" and not {*plan.columns} <= {*plan.keys}:
        raise UsageError(
            "a deduplication keeps columns that are no keys of it: of which row depends on the order of rows; name "
            "every column, or take max(struct(…)) per window and key"
        )
    for below in plan.inputs:
        require_order_free(below)


def _fold(node: Node) -> _Known:
    if node.kind not in _RULES:
        raise UnknownShape(
            f"the operator {node.kind} is none of {', '.join(sorted(_RULES))}; write the plan without it, or in a "
            "Python module that states its properties and progress"
        )
    return _RULES[node.kind](node, tuple(_fold(below) for below in node.inputs))


def _source(_node: Node, _below: tuple[_Known, ...]) -> _Known:
    return _Known(source(), AT_ONCE)


def _same(_node: Node, below: tuple[_Known, ...]) -> _Known:
    (known,) = below
    return known


def _filter(_node: Node, below: tuple[_Known, ...]) -> _Known:
    (known,) = below
    return known._replace(properties=after_filter(known.properties))


def _project(node: Node, below: tuple[_Known, ...]) -> _Known:
    (known,) = below
    kept = {there: here for here, there in node.copies.items()}
    injective = known.groups <= kept.keys()
    groups = frozenset(kept[column] for column in known.groups) if injective else frozenset()
    return known._replace(properties=after_map(known.properties, injective=injective), groups=groups)


def _expand(_node: Node, below: tuple[_Known, ...]) -> _Known:
    (known,) = below
    return known._replace(properties=StreamProperties(insert_only=known.properties.insert_only), groups=frozenset())


def _explode(_node: Node, below: tuple[_Known, ...]) -> _Known:
    (known,) = below
    order = Order.NON_DECREASING if known.properties.ordered else Order.UNORDERED
    properties = StreamProperties(insert_only=known.properties.insert_only, order=order)
    return known._replace(properties=properties, groups=frozenset())


def _join(node: Node, below: tuple[_Known, ...]) -> _Known:
    if node.join != "Inner":
        raise UnknownShape(f"a join of type {node.join}: only inner joins are known")
    if any(not known.progress.at_once or known.joined for known in below):
        raise UnknownShape("a join of aggregates or of joins: only joins of two sources are known")
    if node.range_ms is None:
        raise UnknownShape(
            "a join without bounds on time on both sides: it would keep its rows for ever; bound the event_time of "
            "each source by that of the other"
        )
    left, right = below
    progress = Progress(at_once=True, delay_ms=node.range_ms)
    return _Known(after_join(left.properties, right.properties), progress, joined=True)


def _union(_node: Node, below: tuple[_Known, ...]) -> _Known:
    progress = {known.progress for known in below}
    if len(progress) > 1:
        raise UnknownShape("a union of inputs that are complete at different times")
    first, *others = (known.properties for known in below)
    return _Known(after_union(first, *others), progress.pop(), joined=any(known.joined for known in below))


def _aggregate(node: Node, below: tuple[_Known, ...]) -> _Known:
    if node.windows != 1:
        raise UnknownShape(f"an aggregate by {node.windows} windows: it needs exactly one, over event_time")
    (known,) = below
    progress = Progress(delay_ms=known.progress.delay_ms)
    if not node.groups:
        return _Known(after_aggregate(known.properties, Results.FINAL), progress)
    properties = after_grouped_aggregate(known.properties, Results.FINAL, common_bounds=True)
    groups = {column for column in node.groups if column is not None}
    if len(groups) < len(node.groups):  # a group is not among the columns: results of two groups may be equal
        properties = after_map(properties)
    return _Known(properties, progress, frozenset(groups))


_RULES: Final[Mapping[str, Callable[[Node, tuple[_Known, ...]], _Known]]] = {
    "StreamingRelationV2": _source,
    "EventTimeWatermark": _same,
    "CollectMetrics": _same,
    "SubqueryAlias": _same,
    "View": _same,
    "Filter": _filter,
    "Deduplicate": _filter,
    "Project": _project,
    "Expand": _expand,
    "Generate": _explode,
    "Join": _join,
    "Union": _union,
    "Aggregate": _aggregate,
}
