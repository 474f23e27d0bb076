"""`python -m replicas`: run one replica of a query."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

import click

from lmerge.errors import LMergeError, UsageError
from lmerge.feed import FeedDefinition
from replicas.loader import load_query
from replicas.process import run
from replicas.settings import MAX_CUTS, MAX_ROWS, ReplicaSettings
from replicas.start import Start


def _pairs(kind: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=VALUE` options."""
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--{kind} {text!r}: it must be NAME=VALUE")
    return dict(text.split("=", 1) for text in texts)


def _read_feed(path: Path) -> FeedDefinition:
    try:
        return FeedDefinition.parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"feed file {path}: {error}") from error


def _settings(given: dict[str, Any]) -> ReplicaSettings:
    query = load_query(given["query"])
    feed = given["feed"] or query.feed
    if feed is None:
        raise UsageError(f"query {query.name} names no feed: give its file by --feed")
    return ReplicaSettings(
        bootstrap_servers=given["bootstrap_servers"],
        merge=given["merge"],
        replica=given["replica"],
        feed=_read_feed(feed),
        query=query,
        plan_name=given["plan"],
        windows=query.windows.resized(width_ms=given["window_ms"], slide_ms=given["slide_ms"]),
        topics=_pairs("topic", given["topic"]),
        directory=given["checkpoint"].resolve(),
        lanes=given["partitions"],
        max_cuts=given["max_cuts"],
        max_rows=given["max_rows"],
        trigger_ms=given["trigger_ms"],
        wait_seconds=given["wait_seconds"],
        start=Start.parse(given["start"]),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--bootstrap-servers", required=True, help="Kafka: host:port, several joined by commas.")
@click.option("--merge", required=True, help="The merge that this replica is for.")
@click.option("--feed", type=click.Path(path_type=Path), help="Feed file (TOML), in place of the one the query names.")
@click.option("--query", required=True, help="A shipped query, or your own: a .sql or .py file, or a module.")
@click.option("--plan", required=True, help="Which of its plans.")
@click.option("--replica", required=True, help="Id; it writes <merge>.replica.<id>.")
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path), help="Directory of this replica alone.")
@click.option("--partitions", default=1, help="Partitions of the merge.")
@click.option("--max-cuts", default=MAX_CUTS, help="Most heartbeats of a batch.")
@click.option("--max-rows", default=MAX_ROWS, help="Most rows of a batch, unless one cut has more.")
@click.option("--window-ms", type=int, help="Length of the windows, in place of the query's.")
@click.option("--slide-ms", type=int, help="Distance of their starts, in place of the query's.")
@click.option(
    "--topic", multiple=True, metavar="SOURCE=TOPIC", help="Topic of a source of the query, if named otherwise."
)
@click.option("--trigger-ms", default=100, help="Shortest time from one batch to the next.")
@click.option("--wait-seconds", default=60.0, help="How long to wait for the feed's first heartbeat.")
@click.option(
    "--start",
    default="first",
    metavar="WHERE",
    help="Without a checkpoint: first, latest, heartbeat:N, or time:T (ms or ISO 8601; rows from T on are read).",
)
@click.option("--master", default="local[*]", help="Spark master.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting.")
def main(master: str, conf: tuple[str, ...], **given: Any) -> None:
    """Run one replica: read a feed, compute a query by one plan, write the result as a stream of elements.

    It goes on from its checkpoint if it has one. SIGTERM stops it between two batches.
    """
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("replicas").setLevel(logging.INFO)
    try:
        run(_settings(given), master=master, spark_settings=_pairs("conf", conf))
    except UsageError as error:
        click.echo(f"replicas: {error}", err=True)
        sys.exit(2)
    except LMergeError as error:
        click.echo(f"replicas: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main(prog_name="python -m replicas")
