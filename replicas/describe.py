"""`python -m replicas.describe`: check a query file and say what its plans promise, without Kafka."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import click
import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.choose import choose
from lmerge.errors import UsageError
from lmerge.properties import StreamProperties
from replicas.build import build
from replicas.emit import SEQUENCE, VOLD
from replicas.loader import load_query
from replicas.query import EVENT_TIME, Plan, Query, Schema, Sources
from replicas.query_file import TYPES
from replicas.session import make_session
from replicas.shape import Shape
from replicas.source import PLACED_COLUMNS

TYPE_NAMES: Final = {kind: name for name, kind in TYPES.items()}
"""What Spark SQL calls the types of fields."""


def describe(spark: SparkSession, query: Query) -> Iterator[str]:
    """Build every plan of a query over sources that have no rows, and yield lines about them.

    Raises:
        UsageError: a plan is wrong.
    """
    promised: dict[str, StreamProperties] = {}
    for name, plan in query.plans.items():
        frame, shape = build(query, name, _sources(spark, query, plan), query.windows)
        promised[name] = shape.properties
        columns = ", ".join(
            f"{field.name} {field.dataType.simpleString()}"
            for field in frame.schema.fields
            if field.name not in {SEQUENCE, VOLD}
        )
        yield f"plan {name}: {columns}; {_when(plan, shape)}"
    settled = {name: properties for name, properties in promised.items() if query.plans[name].operator is None}
    yield from _choice(settled or promised, "")
    if settled and settled.keys() != promised.keys():
        yield from _choice(promised, "with those that answer early, ")


def _when(plan: Plan, shape: Shape) -> str:
    if plan.operator is not None:
        revised = "" if shape.properties.insert_only else " early and are revised"
        return f"answers come{revised} ({plan.operator})"
    delay = f", {shape.progress.delay_ms} ms behind it" if shape.progress.delay_ms else ""
    return "results come at once" if shape.progress.at_once else f"results come at the watermark{delay}"


def _choice(promised: Mapping[str, StreamProperties], which: str) -> Iterator[str]:
    choice = choose(*promised.values(), names=[*promised])
    yield f"{which}merged by {choice.algorithm}: {choice.reason}"
    listed = [one.to_dict() for one in dict.fromkeys(promised.values())]
    yield f"in the merge's definition: properties: {msgspec.json.encode(listed).decode()}"


def _sources(spark: SparkSession, query: Query, plan: Plan) -> Sources:
    more = {} if plan.operator is None else PLACED_COLUMNS
    return {name: empty(spark, schema, more) for name, schema in query.sources.items()}


def empty(spark: SparkSession, schema: Schema, more: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
    """Return a source that is good for analysis alone; `more` are columns that it has beyond its schema."""
    kinds = {name: TYPE_NAMES[kind] for name, kind in schema.items()} | {**more}
    columns = [F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]
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
