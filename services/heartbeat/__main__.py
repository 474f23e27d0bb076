"""Entry point of the heartbeat service: settings, signals, and how it ended."""

import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Final

import click

from lmerge.errors import LMergeError, UsageError
from lmerge.feed import FeedDefinition
from lmerge.kafka import KafkaSettings, MissingTopic, WrongPartitions
from lmerge.kafka.group import SESSION_MS
from lmerge.process.kafka_options import kafka_options
from lmerge.process.probes import Probes
from services.heartbeat.metrics import Metrics
from services.heartbeat.owner import Pace
from services.heartbeat.service import HeartbeatService
from services.heartbeat.takeover import Start
from services.log import log

FAILED: Final = 1
REFUSED: Final = 2
"""Exit codes: whoever restarts the service should not restart a refused one."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@kafka_options()
@click.option(
    "--feed",
    "feed_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The feed file (TOML): name, sources, time fields, disorder bounds.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    help="Where a feed without heartbeats begins; one that has some goes on from the last.",
)
@click.option(
    "--interval-ms", type=click.IntRange(min=10, max=60_000), default=100, help="Write a heartbeat at most so often."
)
@click.option(
    "--silence-ms",
    type=click.IntRange(min=100, max=3_600_000),
    default=60_000,
    help="Write a heartbeat at least so often, even if nothing changed.",
)
@click.option("--create/--no-create", default=True, help="Create the topics of the feed if they do not exist.")
@click.option(
    "--session-ms",
    type=click.IntRange(min=500, max=300_000),
    default=SESSION_MS,
    help="After how long without a sign of life another process takes over; at least 6 s where the broker's minimum "
    "for consumer groups is not lowered.",
)
@click.option("--host", default="127.0.0.1", help="Where health and metrics are, if a port is given.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port of health and metrics.")
def heartbeat(
    *,
    kafka: KafkaSettings,
    feed_file: Path,
    start: Start,
    interval_ms: int,
    silence_ms: int,
    create: bool,
    session_ms: int,
    host: str,
    port: int | None,
) -> None:
    """Decide the progress and the lateness of a feed: read its sources, write heartbeats to <feed>.heartbeats.

    Several processes may serve a feed: one owns it, the others stand by and take over when it ends. Logs are lines of
    JSON on standard error. With --port there are /healthz, /readyz and /metrics.

    SIGTERM and SIGINT stop it after the transaction that is open. The exit code is 0 if it was stopped, 1 if it could
    not go on, and 2 if it refused to (the feed file, a topic, another feed under this name).

    Each option can be given in the environment as well, such as LMERGE_HEARTBEAT_INTERVAL_MS.
    """
    stop = _stop_by_signal()
    pace = Pace(interval_seconds=interval_ms / 1_000, silence_seconds=silence_ms / 1_000)
    definition = FeedDefinition.parse(_read(feed_file))
    metrics = Metrics(definition.name)
    service = HeartbeatService(
        kafka,
        definition,
        metrics=metrics,
        stop=stop,
        start=start,
        pace=pace,
        create=create,
        session_ms=session_ms,
    )
    with (
        nullcontext()
        if port is None
        else Probes(host, port, registry=metrics.registry, readiness=lambda: service.readiness) as probes
    ):
        log("info", "begun", feed=definition.name, url=None if probes is None else probes.url)
        service.run()
    log("info", "stopped", feed=definition.name)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"feed file {file}: cannot be read: {error}") from error


def _stop_by_signal() -> Event:
    """Take the first SIGTERM or SIGINT as a wish to stop; a second one ends the process at once."""
    stop = Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, note)
    return stop


def main() -> None:
    """Run the service; whatever ends it is one line, not a traceback."""
    try:
        heartbeat(prog_name="python -m services.heartbeat", auto_envvar_prefix="LMERGE_HEARTBEAT")
    except (UsageError, MissingTopic, WrongPartitions) as error:
        log("error", "refused", error=str(error))
        sys.exit(REFUSED)
    except LMergeError as error:
        log("error", "cannot go on", error=str(error))
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
