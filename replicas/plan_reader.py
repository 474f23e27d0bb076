"""Reading a plan out of Spark: the operators of an analysed plan as `replicas.shape` needs them.

There is no public way to a plan but its text, so this asks the JVM's objects. What they are called was seen in Spark
4.2.0, which is pinned, and the tests of the shipped queries fail if it changes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from replicas.shape import Node

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
        children = [*_each(plan.children())]
        if kind == "WithCTE":
            within = dict(named)
            for definition in children[:-1]:
                within[definition.id()] = self.read(definition.child(), within)
            return self.read(children[-1], within)
        columns = tuple(column.exprId().id() for column in _each(plan.output()))
        if kind == "CTERelationRef":
            # Each use of a common table expression has columns of its own, in the order of the definition.
            definition = named[plan.cteId()]
            copies = dict(zip(columns, definition.columns, strict=True))
            return Node(kind="Project", inputs=(definition,), columns=columns, copies=copies)
        inputs = tuple(self.read(child, named) for child in children)
        if kind == "Project":
            return Node(kind=kind, inputs=inputs, columns=columns, copies=_copies(plan.projectList()))
        if kind == "Aggregate":
            return _aggregate(plan, inputs, columns)
        if kind == "Join":
            join = plan.joinType().toString()
            return Node(kind=kind, inputs=inputs, columns=columns, join=join, range_ms=self._range_ms(plan))
        return Node(kind=kind, inputs=inputs, columns=columns)

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


def _aggregate(plan: Any, inputs: tuple[Node, ...], columns: tuple[int, ...]) -> Node:
    results = [*_each(plan.aggregateExpressions())]
    windows = 0
    groups: list[int | None] = []
    for group in _each(plan.groupingExpressions()):
        if _is_attribute(group) and group.metadata().contains(_TIME_WINDOW):
            windows += 1
        else:
            held = [result.exprId().id() for result in results if _unnamed(result).semanticEquals(group)]
            groups.append(held[0] if held else None)
    return Node(kind="Aggregate", inputs=inputs, columns=columns, windows=windows, groups=tuple(groups))


def _copies(expressions: Any) -> dict[int, int]:
    """Return which expressions are columns as they are, possibly by another name."""
    plain = ((named, _unnamed(named)) for named in _each(expressions))
    return {named.exprId().id(): below.exprId().id() for named, below in plain if _is_attribute(below)}


def _unnamed(expression: Any) -> Any:
    return expression.child() if expression.getClass().getSimpleName() == "Alias" else expression


def _is_attribute(expression: Any) -> bool:
    return bool(expression.getClass().getSimpleName() == "AttributeReference")


def _each(sequence: Any) -> Iterator[Any]:
    """Go through a sequence of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))
