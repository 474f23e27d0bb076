"""Plans that answer early: an operator of `replicas.operators`, hosted in Spark's stateful API (spark-facts.md 5).

    early_plan(Mode.EAGER, count(), by=["auction"], result=["auction", "answer AS count"])

Spark computes what goes into the operator and what comes out of it; between the two, Python keeps its state and decides
what to say. Rows are divided into shards by their group, so that a shard has all rows of its groups; without groups
there is one. The heartbeat row goes to every shard, so that each is called in every batch and knows how far its rows
are complete; there is no watermark, and results need not wait for the next batch. What a shard does in a batch is in
`replicas.shard`. Its state is one value, the operator's own versioned bytes, which Spark keeps in RocksDB.

Spark hands rows over as pandas frames, where a column of integers with a null in it becomes one of floats. So no column
has nulls here: heartbeat rows have some other value where rows have theirs, and rows may have none.
"""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import BooleanType, DecimalType, IntegralType, StringType, StructField

from lmerge.elements import MINUS_INFINITY
from lmerge.errors import UsageError
from lmerge.feed.columns import BEFORE, CONTROL, EVENT_TIME, OFFSET, PARTITION, TAU
from lmerge.properties import StreamProperties
from replicas.emit import RESERVED, SEQUENCE, VE, VOLD, VS, transposed
from replicas.errors import in_a_line
from replicas.operators import Answer, Function, Mode
from replicas.plan_reader import read_plan
from replicas.progress import AT_ONCE
from replicas.query import Plan, Sources
from replicas.shard import HeartbeatRow, Recipe, Row, Said, advance
from replicas.windows import Windows

SHARDS: Final = 4
"""How many shards groups are divided into: some for each core of a small machine. A plan with another number is another
plan, since a group's state would be looked for elsewhere."""

ANSWER: Final = "answer"
RANK: Final = "rank"
"""Columns that a function answers with: a number, or the rank of a row."""

_OWN: Final = (SEQUENCE, VOLD, VS, VE)
"""Columns of what an operator says beside the payload."""

_HOSTED: Final = "TransformWithStateInPySpark"
"""What Spark calls the operator in a plan."""

_NONE: Final = MINUS_INFINITY
"""Stands for null where a time is expected."""

_FILLERS: Final[Sequence[tuple[type, Any]]] = (
    (IntegralType, 0),
    (StringType, ""),
    (BooleanType, False),
    (DecimalType, Decimal(0)),
)
"""Types that an operator can take exactly, and what a heartbeat row has in such a column."""


def early_plan(
    mode: Mode, function: Function, *, by: Sequence[str] = (), of: Sequence[str] = (), result: Sequence[str]
) -> Plan:
    """Return a plan that aggregates the rows of the query's only source in its windows, and answers early.

    Args:
        mode: when it answers, see `replicas.operators.Mode`.
        function: what it computes.
        by: SQL expressions over the source: the groups. None means that all rows of a window are one group.
        of: SQL expressions over the source: what is aggregated; several are compared one after the other.
        result: SQL expressions: the payload. They see the columns of `by` and the function's: `answer` of a count, sum
            or average, the columns of `of` for a minimum or maximum, those and `rank` for a top. Every group, and the
            rank, must be among them as they are, else two results could be equal.
    """
    recipe = Recipe(function, mode)
    recipe.check(len(of))
    caller = traceback.extract_stack(limit=2)[0]
    host = _Host(recipe, tuple(by), tuple(of), tuple(result))
    return Plan(
        build=host.build,
        operator=recipe.text,
        properties=StreamProperties(insert_only=mode is Mode.FINAL, key=True),
        progress=AT_ONCE,
        reach_ms=lambda windows: windows.width_ms,
        place=f"{caller.filename}:{caller.lineno}",
    )


class _Host(NamedTuple):
    """What an author has said of a plan."""

    recipe: Recipe
    by: tuple[str, ...]
    of: tuple[str, ...]
    result: tuple[str, ...]

    def build(self, sources: Sources, windows: Windows) -> DataFrame:
        """Return the results; the source has the columns of `replicas.source.load_placed`."""
        if len(sources) != 1:
            raise UsageError(f"an operator takes the rows of one source, and the query has {', '.join(sources)}")
        (rows,) = sources.values()
        try:
            return self._build(rows, windows)
        except AnalysisException as error:
            raise UsageError(in_a_line(str(error))) from error

    def _build(self, rows: DataFrame, windows: Windows) -> DataFrame:
        given = rows.selectExpr(*self.by, *self.of).schema.fields
        _require_exact(given, self.by + self.of)
        groups, values = given[: len(self.by)], given[len(self.by) :]
        _require_numbers(values, self.recipe.function)
        answer = [*map(_typed, groups), *_answer(self.recipe.function.answer, values)]
        names = [name for name, _ in answer]
        _require_distinct(names)
        shards = _Shards(self.recipe, windows, groups=len(groups), given=[field.name for field in given], said=names)
        columns = [*((name, "bigint") for name in _OWN), *answer]
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns)
        # Append: what a shard says in a batch is added to the stream, and nothing with state follows.
        said = self._divided(rows, given).groupBy("shard").transformWithStateInPandas(shards, ddl, "Append", "None")
        results = said.selectExpr(*self.result, *_OWN)
        ranks = [RANK] if self.recipe.function.answer is Answer.RANKED else []
        _require_kept(results, [*names[: len(groups)], *ranks], [name for name, _ in columns])
        return results

    def _divided(self, rows: DataFrame, columns: Sequence[StructField]) -> DataFrame:
        """Return the rows by shard, heartbeat rows in each, under names that suit pandas and without nulls."""
        places = [CONTROL, EVENT_TIME, PARTITION, OFFSET, TAU, BEFORE]
        given = [f"c{number}" for number in range(len(columns))]
        named = rows.selectExpr(*places, *self.by, *self.of).toDF(
            "control", "time", "partition", "offset", "tau", "before", *given
        )
        groups = given[: len(self.by)]
        shard = F.pmod(F.hash(*groups), F.lit(SHARDS)) if groups else F.lit(0)
        every = F.sequence(F.lit(0), F.lit(SHARDS - 1 if groups else 0))
        lacking = [F.col(name).isNull() for name in given]
        return named.select(
            F.explode(F.when(F.col("control"), every).otherwise(F.array(shard))).alias("shard"),
            "control",
            F.unix_millis("time").alias("ts"),
            *(F.coalesce(name, F.lit(_NONE)).alias(name) for name in ("partition", "offset", "tau", "before")),
            (~F.col("control") & _any(lacking)).alias("lacking"),
            *(F.coalesce(name, _filler(field)).alias(name) for name, field in zip(given, columns, strict=True)),
        )


def _any(conditions: Sequence[Column]) -> Column:
    found = F.lit(False)
    for condition in conditions:
        found = found | condition
    return found


def _filler(field: StructField) -> Column:
    value = next(value for kind, value in _FILLERS if isinstance(field.dataType, kind))
    return F.lit(value).cast(field.dataType)


def _typed(field: StructField) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()


def _answer(answer: Answer, values: Sequence[StructField]) -> list[tuple[str, str]]:
    """Return the columns that a function answers with, and their types."""
    chosen = [*map(_typed, values)]
    match answer:
        case Answer.VALUE:
            return chosen
        case Answer.RANKED:
            return [(RANK, "int"), *chosen]
        case Answer.TEXT:
            return [(ANSWER, "string")]
        case _:
            return [(ANSWER, "bigint")]


def _require_exact(columns: Sequence[StructField], expressions: Sequence[str]) -> None:
    if len(columns) != len(expressions):
        raise UsageError(f"{', '.join(expressions)}: each must be one column, and these are {len(columns)}")
    for field in columns:
        if not any(isinstance(field.dataType, kind) for kind, _ in _FILLERS):
            raise UsageError(
                f"column {field.name} is {field.dataType.simpleString()}: an operator takes integers, decimals, "
                "strings and booleans, which are exact; cast it"
            )


def _require_numbers(values: Sequence[StructField], function: Function) -> None:
    """Check that a function that adds up is given numbers: else the first row would end the replica, each time anew."""
    if function.digits is None:
        return
    for field in values:
        kind = field.dataType
        if not isinstance(kind, IntegralType) and not (isinstance(kind, DecimalType) and kind.scale <= function.digits):
            raise UsageError(
                f"column {field.name} is {kind.simpleString()}: {function.name} takes integers and decimals with at "
                f"most {function.digits} digits after the point; cast it, or give the function more digits"
            )


def _require_distinct(names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if name in RESERVED or name in names[:number]:
            raise UsageError(f"two columns of an answer are named {name}: rename one with AS, in `by` or `of`")


def _require_kept(results: DataFrame, identifying: Sequence[str], names: Sequence[str]) -> None:
    """Check that what tells two results of a window apart is in the payload."""
    plan = read_plan(results)
    if (plan.kind, plan.inputs[0].kind) != ("Project", _HOSTED):
        raise UsageError("`result` must have one row for each answer: no aggregates, no explode")
    of_name = dict(zip(names, plan.inputs[0].columns, strict=True))
    for name in identifying:
        if of_name[name] not in plan.copies.values():
            raise UsageError(
                f"`result` leaves {name} out, without which two results of one window could be equal; add it, as it is"
            )


class _Shards(StatefulProcessor):
    """Runs in Python workers: one call for each shard and batch.

    Args:
        recipe: makes the operator.
        windows: those of the results.
        groups: how many of the columns that are given are groups; the others are values.
        given: the names of those columns.
        said: the names of the columns of an answer.
    """

    def __init__(
        self, recipe: Recipe, windows: Windows, *, groups: int, given: Sequence[str], said: Sequence[str]
    ) -> None:
        self._recipe = recipe
        self._windows = windows
        self._groups = groups
        self._given = given
        self._said = said

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("operator", "state binary")

    def handleInputRows(  # noqa: N802  # Spark's names
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        taken, heartbeat = self._read(rows)
        state = self._state.get()
        operator = self._recipe.operator(self._windows)
        said, saved = advance(operator, None if state is None else bytes(state[0]), taken, heartbeat)
        self._state.update((saved,))
        if said:
            yield self._frame(said)

    def close(self) -> None:
        pass

    def _read(self, frames: Iterable[pd.DataFrame]) -> tuple[list[Row], HeartbeatRow]:
        rows: list[Row] = []
        tau = before = _NONE
        for frame in frames:
            if frame["lacking"].any():
                raise UsageError(
                    f"a null among {', '.join(self._given)}: an operator's columns have none; give them a value, as in "
                    "coalesce(price, 0)"
                )
            heartbeats, data = frame[frame["control"]], frame[~frame["control"]]
            tau, before = max([tau, *heartbeats["tau"].tolist()]), max([before, *heartbeats["before"].tolist()])
            places = (data[name].tolist() for name in ("partition", "offset", "ts"))
            given = [data[f"c{number}"].tolist() for number in range(len(self._given))]
            groups, values = transposed(given[: self._groups], len(data)), transposed(given[self._groups :], len(data))
            rows += map(Row, *places, groups, values)
        return rows, HeartbeatRow(None if tau == _NONE else tau, None if before == _NONE else before)

    def _frame(self, said: Sequence[Said]) -> pd.DataFrame:
        columns = zip(*(one.payload for one in said), strict=True)
        return pd.DataFrame(
            {
                SEQUENCE: [one.sequence for one in said],
                VOLD: pd.array([one.vold for one in said], dtype="Int64"),
                VS: [one.vs for one in said],
                VE: [one.ve for one in said],
                **dict(zip(self._said, map(list, columns), strict=True)),
            }
        )
