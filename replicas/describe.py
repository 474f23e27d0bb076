"""`python -m replicas.describe`: check a query file and say what its plans promise, without Kafka."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.choose import choose
from lmerge.errors import UsageError
from lmerge.properties import StreamProperties
from replicas.build import build
from replicas.loader import load_query
from replicas.query import EVENT_TIME, Query, Schema
from replicas.query_file import TYPES
from replicas.session import make_session

_NAMES = {kind: name for name, kind in TYPES.items()}


def describe(spark: SparkSession, query: Query) -> Iterator[str]:
    """Build every plan of a query over sources that have no rows, and yield lines about them.

    Raises:
        UsageError: a plan is wrong.
    """
    promised: list[StreamProperties] = []
    for name in query.plans:
        sources = {source: empty(spark, schema) for source, schema in query.sources.items()}
        frame, shape = build(query, name, sources, query.windows)
        promised.append(shape.properties)
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields)
        delay = f", {shape.progress.delay_ms} ms behind it" if shape.progress.delay_ms else ""
        when = "at once" if shape.progress.at_once else f"at the watermark{delay}"
        yield f"plan {name}: {columns}; results come {when}"
    choice = choose(*promised, names=[*query.plans])
    yield f"merged by {choice.algorithm}: {choice.reason}"
    listed = [one.to_dict() for one in dict.fromkeys(promised)]
    yield f"in the merge's definition: properties: {msgspec.json.encode(listed).decode()}"


def empty(spark: SparkSession, schema: Schema) -> DataFrame:
    """Return a source that is good for analysis alone."""
    columns = [F.lit(None).cast(_NAMES[kind]).alias(name) for name, kind in schema.items()]
    rows = spark.readStream.format("rate").load().select(*columns, F.col("timestamp").alias(EVENT_TIME))
    return rows.withWatermark(EVENT_TIME, "1 day")


@contextmanager
def _analysing() -> Iterator[SparkSession]:
    spark = make_session("lmerge-describe", master="local[1]", overrides={})
    try:
        yield spark
    finally:
        spark.stop()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("query")
def main(query: str) -> None:
    """Check QUERY, a shipped one or your own file, and say what its plans promise."""
    try:
        loaded = load_query(query)
        with _analysing() as spark:
            for line in describe(spark, loaded):
                click.echo(line)
    except UsageError as error:
        click.echo(f"replicas.describe: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m replicas.describe")
