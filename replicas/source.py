"""The only maker of DataFrames over a feed: rows that count, under a watermark that heartbeats move, and nothing else.

One load per topic, so that the watermark is the minimum over the topics. Each batch holds one heartbeat row with event
time tau + D under `withWatermark(…, D)`: W becomes tau. That row has to pass the watermark and must not reach the
query. Catalyst pushes a plain filter below the watermark, where it would take the heartbeats away before they act; so
the filter *uses* a column that cannot be evaluated anywhere else, `spark_partition_id()`: the barrier. All of this is
inside this module, and `require_heartbeats_move` looks at the result before a replica runs it (spark-facts.md 1.2).

Operators of ours need no watermark: they take the heartbeat row as what it is, in the batch that has it. For them, and
for nobody else, `load_placed` leaves it in (`replicas.early`).
"""

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.feed.columns import BARRIER, CONTROL, EVENT_TIME, MALFORMED, PLACED, SAMPLES
from replicas.planshape import require_watermark_above_filters
from replicas.reader import DELAY_DAYS, NAME, SPEC, CutSource, SourceSpec

_registering: Final = threading.Lock()
"""Held from a registration to the load that uses it. Loads that share a registration share a map of environment
variables in the driver's JVM, to which each query adds when it starts, and Spark does not guard it: of two queries that
started at once, each task ended with an `OptionalDataException`."""


def load(spark: SparkSession, spec: SourceSpec) -> DataFrame:
    """Return the rows of a topic that count, with the watermark on `event_time`."""
    rows = _read(spark, spec).withWatermark(EVENT_TIME, f"{DELAY_DAYS} days")
    return (
        _observed(rows, spec)
        .withColumn(BARRIER, F.expr("spark_partition_id()"))
        .where(f"not {CONTROL} and {BARRIER} >= 0")
        .drop(BARRIER, CONTROL, MALFORMED, SAMPLES)
    )


def load_placed(spark: SparkSession, spec: SourceSpec) -> DataFrame:
    """Return the rows of a topic that count, where each stands, and the heartbeat row of every batch.

    There is no watermark. The columns beyond those of the schema are `event_time` and `PLACED_COLUMNS`.
    """
    placed = msgspec.structs.replace(spec, placed=True)
    return _observed(_read(spark, placed), placed).drop(MALFORMED, SAMPLES)


PLACED_COLUMNS: Final = {CONTROL: "boolean", **dict.fromkeys(PLACED, "bigint")}
"""Columns of placed rows, and their types."""


def _read(spark: SparkSession, spec: SourceSpec) -> DataFrame:
    with _registering:
        spark.dataSource.register(CutSource)
        return spark.readStream.format(NAME).option(SPEC, spec.encode()).load()


def _observed(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    return rows.observe(
        observation(spec.source.topic), F.sum(MALFORMED).alias("malformed"), F.max(SAMPLES).alias("samples")
    )


def observation(topic: str) -> str:
    """Return the name under which Spark's progress reports what was met in a topic."""
    return f"source {topic}"


def malformed_in(progress: Mapping[str, Any]) -> int:
    """Return how many malformed rows a batch met, from Spark's progress."""
    return sum(metrics["malformed"] or 0 for metrics in _met(progress))


def samples_in(progress: Mapping[str, Any]) -> list[str]:
    """Return some of them, in words; of each topic those of one task."""
    return [sample for metrics in _met(progress) for sample in json.loads(metrics["samples"] or "[]")]


def _met(progress: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    observed = progress.get("observedMetrics") or {}
    return (metrics for name, metrics in observed.items() if name.startswith("source "))


def require_heartbeats_move(spark: SparkSession, frame: DataFrame) -> None:
    """Check that heartbeats will move the watermark of this query.

    Raises:
        UsageError: they will not; no window would ever close.
    """
    execution = frame._jdf.queryExecution()  # noqa: SLF001  # there is no public way to a plan's text
    optimizer = spark._jsparkSession.sessionState().optimizer()  # noqa: SLF001  # as above
    require_watermark_above_filters(optimizer.execute(execution.analyzed()).toString())
