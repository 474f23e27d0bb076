"""A whole stack for Prometheus to scrape: rows, heartbeats, a Spark replica, a merge of it, and a merge in trouble.

The replica runs in the Spark of the tests, with all that its process has around it. The merge in trouble has inputs
that the test writes: `good` speaks all the time, `odd` contradicts it, `broken` breaks its contract, `mute` spoke once
and lags, `away` was detached. A third merge has an input that is paused.
"""

import threading
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from pyspark.sql import SparkSession

from deploy.local import ports
from deploy.local.prometheus import Prometheus, configure
from lmerge import INFINITY, Element, Insert, Stable
from lmerge.canonical import payload
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec, TransactionalWriter
from lmerge.process.probes import Probes
from replicas import process
from replicas.attachment import Attachment, connect
from replicas.job import Replica
from replicas.loader import load_query
from replicas.metrics import Metrics
from replicas.report import Report
from tests.support.heartbeat import HeartbeatProcess
from tests.support.merge_service import TOKEN, append, several
from tests.support.replica import START_MS, Bid, FeedWorld, wait_seldom
from tests.support.running_replica import LANES, settings_in

PARTITIONS: Final = 2
INPUTS: Final = ("good", "odd", "broken", "mute", "away")
LAG_MS: Final = 2_000
A: Final = payload("A")


class LiveStack:
    """Runs while it is entered; `tick` lets the rows and the inputs of the merge in trouble go on."""

    def __init__(self, settings: KafkaSettings, spark: SparkSession, directory: Path) -> None:
        self._settings = settings
        self._spark = spark
        self._directory = directory
        self._resources = ExitStack()
        self._ticks = 0
        self._stable = 4
        self.feed = f"f{uuid.uuid4().hex[:12]}"
        self.merge = self.feed  # a replica's topics are called by its merge, and the world's by its feed
        self.trouble = f"t{uuid.uuid4().hex[:12]}"
        self.paused = f"p{uuid.uuid4().hex[:12]}"

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._resources = starting
            self._start()
            self._resources = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _start(self) -> None:
        enter = self._resources.enter_context
        (self.service,) = enter(several(self._settings, 1))
        self._world = FeedWorld(self._settings, self.feed, partitions=PARTITIONS)
        self._resources.callback(self._world.close)
        (port,) = ports.choose(1)
        self.heartbeat = self._start_heartbeat(port)
        self._writer = enter(TransactionalWriter(self._settings, f"{self.trouble}/good"))
        self._writer.fence()
        self._make_trouble()
        probes = self._start_replica()
        targets = {
            "merge": {"merge-1": f"{ports.HOST}:{self.service.port}"},
            "heartbeat": {"heartbeat-1": f"{ports.HOST}:{port}"},
            "replica": {"r1": probes.url.removeprefix("http://")},
        }
        prometheus = self._directory / "prometheus"
        self.prometheus = enter(Prometheus(configure(prometheus / "configuration", targets, seconds=2), prometheus))

    def _start_heartbeat(self, port: int) -> HeartbeatProcess:
        feed = self._world.feed_file(self._directory)
        started = HeartbeatProcess(
            self._directory / "heartbeat.log",
            *("--bootstrap-servers", self._settings.bootstrap_servers, "--feed", str(feed), "--port", str(port)),
        )
        self._resources.callback(started.close)
        return started

    def _start_replica(self) -> Probes:
        """Run a replica as its process does, but for signals and Spark's start."""
        settings = settings_in(self._world, self._directory / "r1", load_query("hot_items"), "direct")
        metrics = Metrics(settings.merge, settings.replica)
        report = Report(metrics)
        stop = threading.Event()
        api = self._resources.enter_context(connect(f"http://{ports.HOST}:{self.service.port}", TOKEN, None))
        attachment = Attachment(api, settings, metrics)
        replica = self._resources.enter_context(Replica(settings, self._spark, stop))
        self.service.put(self.merge, {"partitions": LANES})
        runs = threading.Thread(target=process._run, args=(replica, report, attachment, stop))
        runs.start()
        self._resources.callback(runs.join)
        self._resources.callback(stop.set)
        return self._resources.enter_context(
            Probes(ports.HOST, 0, registry=metrics.registry, readiness=lambda: report.readiness)
        )

    def _make_trouble(self) -> None:
        admin = TopicAdmin(self._settings)
        admin.ensure(*(TopicSpec(f"{self.trouble}.{name}", 1) for name in INPUTS), TopicSpec(f"{self.paused}.one", 1))
        self.service.put(self.trouble, {"feedback": {"lag_ms": LAG_MS, "interval_ms": 100}})
        self.service.put(self.paused, {})
        self.service.attach(self.paused, "one")
        self.service.attach(self.trouble, *INPUTS)
        append(self._settings, f"{self.paused}.one", [Stable(1)])
        for name in INPUTS:
            self._say(name, Insert(A, 6, 10), Stable(4))

    def get_worse(self) -> None:
        """Let the merge in trouble have its troubles, once its inputs are joined; `mute` says nothing from here on."""
        vs = self._stable + 1_000
        self._stable = vs + 100
        self._say("good", Insert(A, vs, INFINITY), Stable(self._stable))
        # Merged first: had `odd` led, its event would be final and forgotten before `good` can contradict it.
        observed = self.service.observed
        wait_seldom(lambda: (observed(self.trouble)["stable"] or 0) >= self._stable, "good leads", seconds=60)
        self._say("odd", Insert(A, vs, vs + 10), Stable(self._stable))  # gone, says this one; alive, says the other
        self._say("broken", Stable(vs), Insert(A, 1, 2))  # below what it has called final
        assert self.service.call("DELETE", f"/v1/merges/{self.trouble}/inputs/away")[0] in (200, 204)
        assert self.service.call("POST", f"/v1/merges/{self.paused}/inputs/one:pause")[0] in (200, 202, 204)

    def tick(self) -> None:
        """Let a second of application time pass: rows, one in five of them late, and a stable of the good input."""
        self._ticks += 1
        now = START_MS + self._ticks * 1_000
        for partition in range(PARTITIONS):
            self._world.write_value("bids", partition, Bid(partition, 1_000 + self._ticks % 3, now).encode())
        if self._ticks % 5 == 0:
            self._world.write_value("bids", 0, Bid(0, 1_000, START_MS).encode())
        self._stable += 1_000
        self._say("good", Stable(self._stable))

    def _say(self, name: str, *elements: Element) -> None:
        with self._writer.transaction():
            values = encode_batch(list(elements))
            self._writer.write(f"{self.trouble}.{name}", 0, [(None, value) for value in values])
