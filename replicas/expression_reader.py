"""Reading expressions out of Spark: those that are about time, and aggregate functions that compute with floats.

As `replicas.plan_reader`, it asks the JVM's objects, by the names that they have in Spark 4.2.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from replicas.shape import Expression

_KINDS: Final = {
    "Add": "add",
    "Subtract": "subtract",
    "Greatest": "greatest",
    "UnixMillis": "millis",
    "CreateNamedStruct": "struct",
    "GetStructField": "field",
}
_SAME: Final = ("Alias", "KnownNullable", "PreciseTimestampConversion", "Cast")
"""Expressions whose value is that of the one below; a timestamp is a number of microseconds."""

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

_EXACT: Final = ("Max", "Min", "Count")
"""Aggregate functions that are exact whatever they are given."""


def read_expression(spark: Any) -> Expression | None:
    """Read an expression of Spark's; None if some part of it is none that `Expression` knows."""
    name = class_name(spark)
    if name == "AttributeReference":
        return Expression("column", number=spark.exprId().id())
    if name == "Literal":
        return _number(spark)
    below = [*each(spark.children())]
    if name == "CaseWhen":
        return _modulo(below)
    if (name not in _KINDS and name not in _SAME) or (name == "Cast" and _converts(spark, below[0])):
        return None
    return _computed(spark, name, below[1::2] if name == "CreateNamedStruct" else below)  # without the fields' names


def _computed(spark: Any, name: str, below: Sequence[Any]) -> Expression | None:
    read = [read_expression(one) for one in below]
    inputs = tuple(one for one in read if one is not None)
    if len(inputs) < len(read):
        return None
    if name in _SAME:
        return inputs[0]
    return Expression(_KINDS[name], inputs, spark.ordinal() if name == "GetStructField" else 0)


def _converts(cast: Any, below: Any) -> bool:
    """Tell whether a cast changes the value; integers that are written out stay what they are."""
    return _type(cast) != _type(below) and not (class_name(below) == "Literal" and _type(cast) in _INTEGERS)


def _number(literal: Any) -> Expression | None:
    value = literal.value()
    return Expression("number", number=value) if isinstance(value, int) and _type(literal) in _INTEGERS else None


def _modulo(branches: Sequence[Any]) -> Expression | None:
    """Read how Spark writes the remainder that is never negative: `CASE WHEN r < 0 THEN r + n ELSE r END`."""
    if [*map(class_name, branches)] != ["LessThan", "Add", "Remainder"]:
        return None
    condition, moved, plain = branches
    tested, _ = each(condition.children())
    _, added = each(moved.children())
    _, divisor = each(plain.children())
    number = _number(divisor) if class_name(divisor) == "Literal" else None
    if number is None or not (tested.semanticEquals(plain) and added.semanticEquals(divisor)):
        return None
    return Expression("modulo", number=number.number)


def inexact_functions(spark: Any) -> Iterator[str]:
    """Find the aggregate functions in an expression that compute with floats: the order in which they add matters."""
    if class_name(spark) == "AggregateExpression":
        function = spark.aggregateFunction()
        types = [_type(function), *map(_type, each(function.children()))]
        if class_name(function) not in _EXACT and any("double" in kind or "float" in kind for kind in types):
            yield str(function.prettyName())
        return
    for below in each(spark.children()):
        yield from inexact_functions(below)


def class_name(spark: Any) -> str:
    """Return what Spark calls an expression."""
    return str(spark.getClass().getSimpleName())


def _type(spark: Any) -> str:
    return str(spark.dataType().simpleString())


def each(sequence: Any) -> Iterator[Any]:
    """Go through a sequence of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))
