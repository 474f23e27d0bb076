"""Operators on streams of elements that answer early and revise (seed-001). Pure: no Spark, no I/O.

    Filter, Map         stateless
    Window              lifetimes become windows
    Aggregate           an answer for every snapshot of every group
    WindowAggregate     an answer for every window on a grid and every group
    Join                pairs of events with equal keys, valid while both are
    Chain               operators one behind the other

`Operator` says what they have in common, `Mode` when an aggregate answers, and `count`, `total`, `minimum`, `maximum`,
`average` and `top` what. docs/operators.md has an example.
"""

from replicas.operators.aggregate import Aggregate
from replicas.operators.chain import Chain
from replicas.operators.filter import Filter
from replicas.operators.folds import Answer, Function, average, count, maximum, minimum, top, total
from replicas.operators.grid import Grid
from replicas.operators.join import Join
from replicas.operators.map import Map
from replicas.operators.mode import Mode
from replicas.operators.operator import Operator
from replicas.operators.state import UnusableState
from replicas.operators.window import Window
from replicas.operators.window_aggregate import WindowAggregate

__all__ = [
    "Aggregate",
    "Answer",
    "Chain",
    "Filter",
    "Function",
    "Grid",
    "Join",
    "Map",
    "Mode",
    "Operator",
    "UnusableState",
    "Window",
    "WindowAggregate",
    "average",
    "count",
    "maximum",
    "minimum",
    "top",
    "total",
]
