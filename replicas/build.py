"""From a plan to what can be run: build it, check its result, and find out what it promises."""

from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from lmerge.errors import UsageError
from replicas.errors import in_a_line
from replicas.plan_reader import analysed_text, read_plan
from replicas.planshape import require_repeatable
from replicas.query import Plan, Query, Sources
from replicas.result import require_result
from replicas.shape import Node, Shape, infer, require_order_free
from replicas.windows import Windows


class Built(NamedTuple):
    """A plan over sources, and what it promises."""

    frame: DataFrame
    shape: Shape


def build(query: Query, plan_name: str, sources: Sources, windows: Windows) -> Built:
    """Build a plan of a query.

    Raises:
        UsageError: the plan is wrong, or of a shape that is not known; with the place where it is written.
    """
    plan = query.plan(plan_name)
    plan.check(windows)
    frame = _frame(plan, plan_name, sources, windows)
    if not isinstance(frame, DataFrame):
        raise UsageError(f"{plan.place}: plan {plan_name} gives {type(frame).__name__}, not a DataFrame")
    columns = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    require_result(query, plan.place, columns, hosted=plan.operator is not None)
    try:
        require_repeatable(analysed_text(frame))
        read = read_plan(frame)
        require_order_free(read)
        return Built(frame, _shape(query, plan, read))
    except UsageError as error:
        raise UsageError(f"{plan.place}: plan {plan_name}: {error}") from error


def _frame(plan: Plan, plan_name: str, sources: Sources, windows: Windows) -> DataFrame:
    """Let the author's function build it; what it raises is the author's mistake."""
    try:
        return plan.build(sources, windows)
    except UsageError as error:
        raise error if plan.operator is None else UsageError(f"{plan.place}: plan {plan_name}: {error}") from error
    except Exception as error:
        kind = "" if isinstance(error, AnalysisException) else f"{type(error).__name__}: "
        raise UsageError(f"{plan.place}: plan {plan_name}: {kind}{in_a_line(str(error))}") from error


def _shape(query: Query, plan: Plan, read: Node) -> Shape:
    """Return the author's word or, where there is none, what the plan's shape says."""
    if plan.properties is not None and plan.progress is not None:
        return Shape(plan.properties, plan.progress)
    shape = infer(read, rank=query.rank)
    return Shape(plan.properties or shape.properties, plan.progress or shape.progress)
