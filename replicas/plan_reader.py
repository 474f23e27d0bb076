"""Reading a plan out of Spark: the operators of an analysed plan as `replicas.shape` needs them.

There is no public way to a plan but its text, so this asks the JVM's objects. What they are called was seen in Spark
4.2.0, which is pinned, and the tests of the shipped queries fail if it changes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from replicas.expression_reader import class_name, each, inexact_functions, read_expression
from replicas.shape import Expression, Node

_TIME_WINDOW: Final = "spark.timeWindow"
"""In the metadata of a column: it is a window."""

_SOME_WATERMARK: Final = 10**15
"""Any will do: by how much a join lowers it does not depend on it."""


def read_plan(frame: DataFrame) -> Node:
    """Return the analysed plan of a DataFrame."""
    return _Reader(frame.sparkSession).read(frame._jdf.queryExecution().analyzed(), {})  # noqa: SLF001  # see above


def analysed_text(frame: DataFrame) -> str:
    """Return the text of the analysed plan of a DataFrame."""
    return str(frame._jdf.queryExecution().analyzed().toString())  # noqa: SLF001  # as above


class _Reader:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001  # see above

    def read(self, plan: Any, named: Mapping[int, Node]) -> Node:
        """Read an operator and all below it; `named` has the common table expressions around it."""
        kind = plan.nodeName()
        children = [*each(plan.children())]
        if kind == "WithCTE":
            within = dict(named)
            for definition in children[:-1]:
                within[definition.id()] = self.read(definition.child(), within)
            return self.read(children[-1], within)
        columns = tuple(column.exprId().id() for column in each(plan.output()))
        if kind == "CTERelationRef":
            # Each use of a common table expression has columns of its own, in the order of the definition.
            definition = named[plan.cteId()]
            copies = dict(zip(columns, definition.columns, strict=True))
            return Node(kind="Project", inputs=(definition,), columns=columns, copies=copies)
        inputs = tuple(self.read(child, named) for child in children)
        facts = _FACTS.get(kind, _no_facts)(plan)
        if kind == "Join":
            facts = {"join": plan.joinType().toString(), "range_ms": self._range_ms(plan)}
        return Node(kind=kind, inputs=inputs, columns=columns, **facts)

    def _range_ms(self, join: Any) -> int | None:
        """Return by how much a join lowers the watermark: it asks the function by which Spark forgets its rows."""
        helper = self._jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
        watermark = self._jvm.scala.Some(_SOME_WATERMARK)
        left, right = join.left().outputSet(), join.right().outputSet()
        kept = [
            helper.getStateValueWatermark(side, other, join.condition(), watermark)
            for side, other in ((left, right), (right, left))
        ]
        return None if any(one.isEmpty() for one in kept) else max(_SOME_WATERMARK - one.get() for one in kept)


def _no_facts(_plan: Any) -> dict[str, Any]:
    return {}


def _project(plan: Any) -> dict[str, Any]:
    made = [*each(plan.projectList())]
    return {"copies": _copies(made), "values": _values(made)}


def _watermark(plan: Any) -> dict[str, Any]:
    return {"event_time": plan.eventTime().exprId().id()}


def _deduplicate(plan: Any) -> dict[str, Any]:
    return {"keys": tuple(key.exprId().id() for key in each(plan.keys()))}


def _aggregate(plan: Any) -> dict[str, Any]:
    results = [*each(plan.aggregateExpressions())]
    windows = 0
    groups: list[int | None] = []
    for group in each(plan.groupingExpressions()):
        if _is_attribute(group) and group.metadata().contains(_TIME_WINDOW):
            windows += 1
        else:
            held = [result.exprId().id() for result in results if _unnamed(result).semanticEquals(group)]
            groups.append(held[0] if held else None)
    inexact = tuple(function for result in results for function in inexact_functions(result))
    copies, values = _copies(results), _values(results)
    return {"copies": copies, "values": values, "windows": windows, "groups": tuple(groups), "inexact": inexact}


def _expand(plan: Any) -> dict[str, Any]:
    """Read an operator that makes several rows of each: of windows, the latest first, so two of them bound the rest."""
    columns = [column.exprId().id() for column in each(plan.output())]
    projections = plan.projections()
    ends = [projections.apply(0), projections.apply(projections.size() - 1)]
    ways = zip(*(map(read_expression, each(end)) for end in ends), strict=True)
    return {"values": {column: both for column, both in zip(columns, ways, strict=True) if None not in both}}


_FACTS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "Project": _project,
    "EventTimeWatermark": _watermark,
    "Deduplicate": _deduplicate,
    "Aggregate": _aggregate,
    "Expand": _expand,
}
"""By the operator: what is read of it besides its columns, as fields of `Node`."""


def _copies(expressions: Iterable[Any]) -> dict[int, int]:
    """Return which expressions are columns as they are, possibly by another name."""
    plain = ((named, _unnamed(named)) for named in expressions)
    return {named.exprId().id(): below.exprId().id() for named, below in plain if _is_attribute(below)}


def _values(expressions: Iterable[Any]) -> dict[int, tuple[Expression, ...]]:
    """Return which expressions are computed in a way that is about time."""
    computed = ((named, _unnamed(named)) for named in expressions)
    read = {named.exprId().id(): read_expression(below) for named, below in computed if not _is_attribute(below)}
    return {column: (made,) for column, made in read.items() if made is not None}


def _unnamed(expression: Any) -> Any:
    return expression.child() if class_name(expression) == "Alias" else expression


def _is_attribute(expression: Any) -> bool:
    return class_name(expression) == "AttributeReference"
