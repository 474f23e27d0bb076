"""The only maker of DataFrames over a feed: rows that count, under a watermark that heartbeats move, and nothing else.

One load per topic, so that the watermark is the minimum over the topics. Each batch holds one heartbeat row with event
time tau + D under `withWatermark(…, D)`: W becomes tau. That row has to pass the watermark and must not reach the
query. Catalyst pushes a plain filter below the watermark, where it would take the heartbeats away before they act; so
the filter *uses* a column that cannot be evaluated anywhere else, `spark_partition_id()`: the barrier. All of this is
inside this module, and `require_heartbeats_move` looks at the result before a replica runs it (spark-facts.md 1.2).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from replicas.planshape import require_watermark_above_filters
from replicas.query import EVENT_TIME
from replicas.reader import DELAY_DAYS, NAME, SPEC, CutSource, SourceSpec
from replicas.rows import CONTROL, MALFORMED, SAMPLES

_BARRIER: Final = "_barrier"


def load(spark: SparkSession, spec: SourceSpec) -> DataFrame:
    """Return the rows of a topic that count, with the watermark on `event_time`."""
    spark.dataSource.register(CutSource)
    rows = spark.readStream.format(NAME).option(SPEC, spec.encode()).load()
    return (
        rows.withWatermark(EVENT_TIME, f"{DELAY_DAYS} days")
        .observe(observation(spec.source.topic), F.sum(MALFORMED).alias("malformed"), F.max(SAMPLES).alias("samples"))
        .withColumn(_BARRIER, F.expr("spark_partition_id()"))
        .where(f"not {CONTROL} and {_BARRIER} >= 0")
        .drop(_BARRIER, CONTROL, MALFORMED, SAMPLES)
    )


def observation(topic: str) -> str:
    """Return the name under which Spark's progress reports what was met in a topic."""
    return f"source {topic}"


def malformed_in(progress: Mapping[str, Any]) -> int:
    """Return how many malformed rows a batch met, from Spark's progress."""
    return sum(metrics["malformed"] or 0 for metrics in _observed(progress))


def samples_in(progress: Mapping[str, Any]) -> list[str]:
    """Return some of them, in words; of each topic those of one task."""
    return [sample for metrics in _observed(progress) for sample in json.loads(metrics["samples"] or "[]")]


def _observed(progress: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
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
