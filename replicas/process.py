"""A replica as a process of its own: Spark's life around it, signals, and what is said about its progress."""

import logging
import re
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from lmerge.errors import LMergeError
from replicas.errors import ReplicaFailed, Stopped
from replicas.feed_start import FeedStart
from replicas.job import Replica
from replicas.session import make_session
from replicas.settings import ReplicaSettings
from replicas.source import malformed_in, samples_in

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
"""How often the main thread looks whether the query has ended and what it reports; also how soon a signal acts."""

_OUR_ERROR: Final = re.compile(r"^(?:lmerge|replicas)[\w.]*\.(?P<kind>\w+): (?P<text>.+)$", re.MULTILINE)


def run(settings: ReplicaSettings, *, master: str, spark_settings: Mapping[str, str]) -> None:
    """Run a replica until it is told to stop (SIGTERM, SIGINT) or fails.

    Raises:
        LMergeError: it failed, or could not start.
    """
    stop = threading.Event()
    kafka = settings.read_cluster()
    # First see that there is a broker and a feed: Spark takes 10 s to start, and may not be needed.
    FeedStart(kafka, settings.feed, wait_seconds=settings.wait_seconds, stopping=stop).feed_id()
    spark = make_session(settings.topic, master=master, overrides=spark_settings)
    try:
        _stop_on_signals(stop)  # after Spark's start, which installs a handler of its own
        with Replica(settings, spark, stop) as replica, suppress(Stopped):
            _run(replica, stop)
    finally:
        spark.stop()
    log.info("stopped")


def _run(replica: Replica, stop: threading.Event) -> None:
    query = replica.start()
    log.info("started")
    try:
        _watch(query, stop)
        asked = stop.is_set()
    finally:
        replica.stop()
    if not asked:
        raise ReplicaFailed(_cause(query, replica.failure))


def _stop_on_signals(stop: threading.Event) -> None:
    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)


def _watch(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait for the end, and report each batch once."""
    reported = -1
    ended = False
    while not ended and not stop.wait(_LOOK_SECONDS):
        ended = not query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > reported:
                reported = progress["batchId"]
                _report(progress)


def _report(progress: Mapping[str, Any]) -> None:
    """Log a batch.

    Raises:
        ReplicaFailed: Spark left rows out by its own watermark. Lateness is decided by heartbeats alone (invariant 8),
            so the result is wrong from here on; better to stop than to go on with it.
    """
    dropped = sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])
    log.info(
        "progress batch=%d rows=%d dropped=%d malformed=%d ms=%d",
        progress["batchId"],
        progress["numInputRows"],
        dropped,
        malformed_in(progress),
        progress["batchDuration"],
    )
    for sample in samples_in(progress):
        log.warning("malformed row left out: %s", sample)
    if dropped:
        raise ReplicaFailed(
            f"batch {progress['batchId']}: Spark dropped {dropped} rows by its watermark, which no heartbeat called "
            "late: rows before 1970, or a plan that reads its sources past replicas.source"
        )


def _cause(query: StreamingQuery, failure: BaseException | None) -> str:
    """Say in a sentence why a query ended: our own error if there is one in Spark's report."""
    error = query.exception() if failure is None or isinstance(failure, Stopped) else failure
    if isinstance(error, LMergeError):
        return str(error)
    if error is None:
        return "the query ended by itself"
    ours = _OUR_ERROR.findall(str(error))
    return f"{ours[-1][0]}: {ours[-1][1]}" if ours else str(error)
