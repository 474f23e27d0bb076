"""A replica as a process of its own: Spark's life around it, signals, health, and how it ended."""

import logging
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from types import FrameType
from typing import Final, NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from lmerge.errors import LMergeError
from lmerge.process.api import Api
from lmerge.process.probes import Probes
from replicas.attachment import Attachment
from replicas.errors import ReplicaFailed, RowsDropped, Stopped
from replicas.feed_start import FeedStart
from replicas.job import Replica
from replicas.metrics import Metrics
from replicas.report import Report
from replicas.session import end_session, make_session
from replicas.settings import ReplicaSettings

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
"""How often the main thread looks whether the query has ended and what it reports; also how soon a signal acts."""

_OUR_ERROR: Final = re.compile(r"^(?:lmerge|replicas)[\w.]*\.(?P<kind>\w+): (?P<text>.+)$", re.MULTILINE)


class Address(NamedTuple):
    """Where health and metrics are."""

    host: str
    port: int


def run(
    settings: ReplicaSettings,
    *,
    master: str,
    spark_settings: Mapping[str, str],
    address: Address | None = None,
    api: Api | None = None,
) -> None:
    """Run a replica until it is told to stop (SIGTERM, SIGINT) or fails.

    Args:
        settings: which one.
        master: Spark's.
        spark_settings: Spark's.
        address: where health and metrics are; None: nowhere.
        api: the merge service, to attach to; None: somebody else attaches it.

    Raises:
        LMergeError: it failed, or could not start.
    """
    metrics = Metrics(settings.merge, settings.replica)
    report = Report(metrics)
    with (
        nullcontext()
        if address is None
        else Probes(*address, registry=metrics.registry, readiness=lambda: report.readiness) as probes
    ):
        if probes is not None:
            log.info("health and metrics at %s", probes.url)
        attachment = None if api is None else Attachment(api, settings, metrics)
        with suppress(Stopped):
            _run_spark(settings, report, attachment, master=master, spark_settings=spark_settings)
    log.info("stopped")


def _run_spark(
    settings: ReplicaSettings,
    report: Report,
    attachment: Attachment | None,
    *,
    master: str,
    spark_settings: Mapping[str, str],
) -> None:
    stop = threading.Event()
    _stop_on_signals(stop)
    # First see that there is a broker and a feed: Spark takes 10 s to start, and may not be needed.
    cluster, wait_seconds = settings.read_cluster(), settings.wait_seconds
    FeedStart(cluster, settings.feed, wait_seconds=wait_seconds, stopping=stop).feed_id()
    report.starting()
    spark = make_session(settings.topic, master=master, overrides=spark_settings)
    try:
        _stop_on_signals(stop)  # again: Spark's start installs a handler of its own
        if not stop.is_set():
            with Replica(settings, spark, stop) as replica:
                _run(replica, report, attachment, stop)
    finally:
        end_session(spark)


def _run(replica: Replica, report: Report, attachment: Attachment | None, stop: threading.Event) -> None:
    query = replica.start()
    report.started(replica.incarnation)

    def look() -> None:
        report.look(query.recentProgress, query.status, replica.stable, replica.skipped)

    with nullcontext() if attachment is None else attachment:
        try:
            try:
                for _ in _looks(query, stop):
                    look()
                    if attachment is not None:
                        attachment.check()
                asked = stop.is_set()
            finally:
                report.stopping()
                replica.stop()
                look()  # at the batches since the last look: what they dropped makes the next start begin anew
        except RowsDropped as error:
            replica.give_up(str(error))
            raise
        if asked and attachment is not None:
            attachment.detach()
    if not asked:
        raise ReplicaFailed(cause(query, replica.failure))


def _looks(query: StreamingQuery, stop: threading.Event) -> Iterator[None]:
    """Yield now and then, the last time after the query has ended, or until somebody asks it to stop."""
    is_active = True
    while is_active and not stop.wait(_LOOK_SECONDS):
        is_active = query.isActive
        yield


def _stop_on_signals(stop: threading.Event) -> None:
    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)


def cause(query: StreamingQuery, failure: BaseException | None) -> str:
    """Say in a sentence why a query ended: our own error if there is one in Spark's report."""
    error = query.exception() if failure is None or isinstance(failure, Stopped) else failure
    if isinstance(error, LMergeError):
        return str(error)
    if error is None:
        return "the query ended by itself"
    ours = _OUR_ERROR.findall(str(error))
    return f"{ours[-1][0]}: {ours[-1][1]}" if ours else str(error)
