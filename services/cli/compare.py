"""`lmerge compare A B`: do two streams say the same, and where do they first differ? On files and topics."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import click

from lmerge.elements import MINUS_INFINITY
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings
from lmerge.process.kafka_options import given_by_option, kafka_options
from services.certify import Batches, BeginsAnew, Compared, Comparison
from services.cli.compare_report import to_json, to_text
from services.cli.progress import Progress
from services.cli.sources import Topics, read_file

Open: TypeAlias = Callable[[str, int | None], Batches]
"""Reads a stream by name from a position on, or from its beginning."""


@click.command()
@click.argument("a")
@click.argument("b")
@kafka_options(required=False)
@click.option("--snapshots", is_flag=True, help="Equal snapshots are enough, however lifetimes are cut.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def compare(*, a: str, b: str, kafka: KafkaSettings | None, snapshots: bool, as_json: bool) -> None:
    """Compare the streams A and B, as far as both are stable: topics with --bootstrap-servers, else files.

    Says whether they have the same events (equal TDBs), whether the same payloads are valid at every instant (equal
    snapshots), and if not, at which instant they first differ and what each has there. What lies beyond the smaller
    stable cannot be compared yet. Topics are read up to their committed ends, partition by partition. Of a stream with
    several incarnations the last one counts.

    The exit code is 0 if they are equal, and 1 if they are not or nothing can be compared yet; `lmerge --help` has the
    others.
    """
    if a == b:
        raise UsageError(f"{a} is named twice: give two streams")
    progress = Progress()
    are_files = Path(a).is_file() and Path(b).is_file()
    if kafka is None or (are_files and not given_by_option()):
        for name in (a, b):
            if not Path(name).is_file():
                raise click.UsageError(f"no such file: {name}; for topics give --bootstrap-servers")
        lanes: Iterator[tuple[int | None, Compared]] = iter([(None, _compare(a, b, _open_file(progress), progress))])
    else:
        lanes = _compare_topics(kafka, a, b, progress)
    outcomes = dict(lanes)
    progress.close()
    click.echo(to_json(outcomes) if as_json else to_text(outcomes))
    sys.exit(0 if all(_passes(outcome, snapshots=snapshots) for outcome in outcomes.values()) else 1)


def _passes(outcome: Compared, *, snapshots: bool) -> bool:
    equal = outcome.snapshot_equal if snapshots else outcome.tdb_equal
    return equal and outcome.until > MINUS_INFINITY


def _compare(a: str, b: str, open_stream: Open, progress: Progress) -> Compared:
    """Compare two streams, again from the start whenever one turns out to have another incarnation."""
    starts: dict[str, int] = {}
    while True:
        try:
            streams = [(name, open_stream(name, starts.get(name))) for name in (a, b)]
            comparison = Comparison(*streams)
            progress.stable = lambda judge=comparison: judge.stable
            return comparison.run()
        except BeginsAnew as hello:
            starts[hello.stream] = hello.position


def _open_file(progress: Progress) -> Open:
    def open_file(name: str, start: int | None) -> Batches:
        return progress.watch(read_file(name, start=start or 1))

    return open_file


def _compare_topics(
    settings: KafkaSettings, a: str, b: str, progress: Progress
) -> Iterator[tuple[int | None, Compared]]:
    with Topics(settings, [a, b]) as readers:
        for partition in readers.partitions:
            ranges = readers.ranges(partition)

            def open_partition(name: str, start: int | None) -> Batches:
                low, end = ranges[name]  # noqa: B023  # it is called before the next turn of the loop
                return progress.watch(readers.read(name, partition, start=low if start is None else start, end=end))  # noqa: B023

            progress.lane = f"partition {partition}: "
            yield partition, _compare(a, b, open_partition, progress)
