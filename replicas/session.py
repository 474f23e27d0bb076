"""The Spark session of a replica: settings that were measured, and those that exactly-once rests on.

Each default has its reason in notes/spark-facts.md 8 and feasibility.md 1. What `FIXED` holds cannot be overridden.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lmerge.errors import UsageError

_JVM_SECONDS: Final = 10
"""How long a JVM may take to end that was told to; a whole stop was measured to take 1.3 to 2.3 s."""

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    # Results of a batch pass through the driver. Spark's default is twice this heap, which would end in its death.
    "spark.driver.maxResultSize": "256m",
    # C1 only: a replica's code is generated anew in every batch, and short-lived tests never repay C2.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss64m -Duser.timezone=UTC",
    "spark.sql.shuffle.partitions": "1",
    # A rename instead of forked chmod and readlink processes: 7 ms instead of 34 for each of two writes per batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # How often an idle query asks its sources for more; heartbeats come every 100 ms.
    "spark.sql.streaming.pollingDelay": "20ms",
}

FIXED: Final = {
    # What expressions mean: all plans, replicas and versions of Spark compute by the same rules.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # The plan's text is hashed: it must not be cut off.
    "spark.sql.debug.maxToStringFields": "10000",
    # A batch that brings no rows, but a watermark, closes windows.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    # min over the sources: the watermark of a topic that is ahead must not close windows of one that is behind.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
}

_LEGACY: Final = "spark.sql.legacy."
"""Settings that let expressions mean what they meant in an older Spark."""


def make_session(name: str, *, master: str, overrides: Mapping[str, str]) -> SparkSession:
    """Start Spark, in UTC and with this interpreter for its Python workers.

    Args:
        name: of the application, as Spark shows it.
        master: `local[*]` or the address of a cluster.
        overrides: further settings, which win over the defaults.

    Raises:
        UsageError: a setting that the sink or the watermark rests on.
    """
    for key in overrides:
        if key in FIXED:
            raise UsageError(
                f"Spark setting {key} cannot be set: the replica rests on {key}={FIXED[key]}; leave it out"
            )
        if key.startswith(_LEGACY):
            raise UsageError(
                f"Spark setting {key} cannot be set: it changes what a plan means, and other replicas would not agree; "
                "leave it out, and write the plan for Spark as it is"
            )
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**DEFAULTS, **overrides, **FIXED}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def end_session(session: SparkSession) -> None:
    """Stop Spark for good: when it returns, the JVM that this process has started is gone, and its workers with it.

    A JVM that has started us, as spark-submit's, ends by itself after us.
    """
    gateway = SparkContext._gateway  # noqa: SLF001  # there is no public way to the JVM's process
    session.stop()
    jvm = getattr(gateway, "proc", None)
    if gateway is None or jvm is None:
        return
    gateway.shutdown()
    jvm.stdin.close()  # what it waits for; a driver that is killed closes it too
    try:
        jvm.wait(_JVM_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
