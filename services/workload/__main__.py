"""Entry point of the workload: options, signals, and whose fault it was."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Final

import click

from lmerge.errors import LMergeError, UsageError
from lmerge.process.kafka_options import kafka_options
from services.moment import Moment, show_ms
from services.workload.nexmark import START_MS, close_rows, rows
from services.workload.run import Run
from services.workload.settings import EVENT_RATE, Settings
from services.workload.sinks import FileSink, TopicSink

CLOSE_SECONDS: Final = 1_800
"""Longer than the windows and join ranges of our queries (minutes), shorter than the hour by which a feed lets a row be
ahead of the wall clock: a closing row that counts as early would close nothing."""

_NATURAL: Final = click.IntRange(min=0)
_POSITIVE: Final = click.IntRange(min=1)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@kafka_options(required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Write the rows to this file too, one JSON line per row.")
@click.option("--seed", type=_NATURAL, default=0, help="The same seed and options, the same rows.")
@click.option("--rows", type=_NATURAL, help="End after so many rows.  [default: never]")
@click.option("--event-seconds", type=_POSITIVE, help="End after so many seconds of event time.  [default: never]")
@click.option(
    "--rate",
    type=_NATURAL,
    default=1_000,
    help="Rows per second of wall time; 0: as fast as possible. A run that only writes a file is never slowed down.",
)
@click.option(
    "--event-rate",
    type=_POSITIVE,
    help=f"Rows per second of event time.  [default: --rate, which is real time; {EVENT_RATE} if that is 0]",
)
@click.option("--start", type=Moment(), default=show_ms(START_MS), help="Event time of the first row, or now.")
@click.option("--partitions", type=_POSITIVE, default=4, help="Partitions of each topic.")
@click.option("--disorder-ms", type=_NATURAL, default=0, help="How far a row may be behind others of its partition.")
@click.option("--skew-ms", type=_NATURAL, default=0, help="Partition p is p times this behind partition 0.")
@click.option(
    "--close",
    type=_POSITIVE,
    is_flag=False,
    flag_value=CLOSE_SECONDS,
    metavar="[SECONDS]",
    help="End with one row for each partition of each topic, so many seconds of event time (plus the disorder) ahead "
    f"of all others, so that every window closes. Without a number: {CLOSE_SECONDS}.",
)
@click.option("--prefix", default="", help="What the names persons, auctions and bids begin with.")
@click.option("--create/--no-create", default=True, help="Create the topics that do not exist.")
@click.option(
    "--abort-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="This share of the transactions is aborted first, then made again.",
)
def workload(**options: Any) -> None:
    """Write NEXMark's persons, auctions and bids to Kafka topics, a file, or both.

    Without brokers, or with "" for them, only a file is written.

    The rows are JSON objects with keys in a fixed order, prices in cents, and their event time in "date_time",
    in milliseconds. They are a function of the seed and the options alone. What is due in 100 ms is one transaction.

    SIGTERM and SIGINT end a run after the transaction that is open; closing rows, if asked for, are still written. The
    exit code is 0 if all was written or the run was stopped, 1 if the broker or the disk failed, and 2 if the options
    make no sense.

    Each option can come from the environment, such as LMERGE_WORKLOAD_RATE.
    """
    _execute(Settings(**options))


def _execute(settings: Settings) -> None:
    """Write all that was asked for.

    Raises:
        LMergeError: it could not begin, or not be written to its end.
    """
    parameters = settings.parameters()
    stop = Event()
    with ExitStack() as stack:
        topics = None
        sinks: list[TopicSink | FileSink] = []
        # Opened first, as a wrong name should not cost a connection; written second, to hold what was committed.
        file = stack.enter_context(FileSink(settings.file)) if settings.file else None
        if settings.kafka is not None:
            topics = TopicSink(settings.kafka, parameters, create=settings.create, abort_share=settings.abort_share)
            sinks.append(stack.enter_context(topics))
        if file:
            sinks.append(file)
        run = Run(rows(parameters), sinks, rate=settings.wall_rate, stop=stop, report=_say)
        try:
            with _ending_by_signal(stop):
                run.until_done()
                if settings.close:
                    newest = run.newest_ms if run.newest_ms is not None else parameters.start_ms
                    run.write(close_rows(parameters, newest_ms=newest, ahead_ms=1_000 * settings.close))
        except LMergeError:
            _say(f"failed after {run.summary()}")
            raise
        aborted = f", {topics.aborted:,} transactions aborted" if topics and settings.abort_share else ""
        _say(f"{'stopped' if stop.is_set() else 'done'}: {run.summary()}{aborted}")


@contextmanager
def _ending_by_signal(stop: Event) -> Iterator[None]:
    """Take the first SIGTERM or SIGINT as a wish to stop; a second one ends the process at once.

    The handler says nothing: it may interrupt a line that is being written.
    """

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)

    before = {each: signal.signal(each, note) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _say(text: str) -> None:
    click.echo(f"workload: {text}", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; a mistake of the user is a sentence, not a traceback."""
    try:
        workload(arguments, prog_name="python -m services.workload", auto_envvar_prefix="LMERGE_WORKLOAD")
    except LMergeError as error:
        _say(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    # Until the run begins nothing is written, and both signals end the process by the same way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
