"""What runs in the demo and how it is started; every part's command line is one that a user could type.

All that the parts write (logs, checkpoints, temporary files) is in one directory, inside that of the Kafka stack: it
goes with the stack, also if the demo is killed and the next stack sweeps up.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.demo import query
from deploy.demo.errors import DemoError
from deploy.demo.parts import Part
from deploy.local import LocalStack, places, ports

KEPT_LOGS: Final = places.RUN / "demo-logs"
"""Where the logs are after a demo that failed, until the next one."""

TRIGGER_MS: Final = "800"
"""Between two batches of a replica. Less costs more than the results, one per slide, are worth on two cores."""

_FOREIGN: Final = ("LMERGE_", "KAFKA_", "SPARK_", "PYSPARK_")
"""Settings of the user's own systems, which the parts would take for theirs."""


class Stage:
    """The parts of one demo.

    Args:
        stack: a broker that runs.
    """

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack
        self.bootstrap_servers = stack.bootstrap_servers
        self.directory = stack.directory / "demo"
        self.rows_file = self.directory / "rows.jsonl"
        self.token = secrets.token_urlsafe(24)
        self._feed_file = self.directory / "feed.toml"
        names = ("merge", "heartbeat", *query.PLANS)
        self._ports = dict(zip(names, ports.choose(len(names)), strict=True))
        self._parts: list[Part] = []
        self.replicas: dict[str, Part] = {}
        self._may_start_again: set[str] = set()
        (self.directory / "tmp").mkdir(parents=True)
        shutil.rmtree(KEPT_LOGS, ignore_errors=True)
        self._feed_file.write_text(query.FEED_FILE)

    @property
    def rest(self) -> str:
        """The address of the merge service."""
        return f"http://{self._address('merge')}"

    @property
    def metrics(self) -> dict[str, dict[str, str]]:
        """Where the metrics of each part are, by job and name; of those that have not started too."""
        jobs = {"merge": ["merge"], "heartbeat": ["heartbeat"], "replica": list(query.PLANS)}
        return {job: {name: self._address(name) for name in names} for job, names in jobs.items()}

    def _address(self, name: str) -> str:
        return f"{ports.HOST}:{self._ports[name]}"

    def start_workload(self, *, seed: int, rate: int, start: str = "now", file: Path | None = None) -> Part:
        """Start rows: without an end, and with closing rows once it is told to end."""
        bounds = ["--file", str(file), "--close", str(query.CLOSE_SECONDS)] if file else []
        return self._start(
            f"workload-{seed}",
            *("services.workload", "--bootstrap-servers", self.bootstrap_servers, "--seed", str(seed)),
            *("--rate", str(rate), "--start", start, "--partitions", str(query.PARTITIONS)),
            *("--disorder-ms", str(query.DISORDER_MS), "--skew-ms", str(query.SKEW_MS), *bounds),
        )

    def start_heartbeat(self) -> Part:
        """Start the heartbeat service."""
        return self._start(
            "heartbeat",
            *("services.heartbeat", "--bootstrap-servers", self.bootstrap_servers),
            *("--feed", str(self._feed_file), "--port", str(self._ports["heartbeat"])),
        )

    def start_merge(self) -> Part:
        """Start the merge service."""
        return self._start(
            "merge",
            *("services.merge", "--bootstrap-servers", self.bootstrap_servers),
            *("--host", ports.HOST, "--port", str(self._ports["merge"])),
            LMERGE_ADMIN_TOKEN=self.token,
        )

    def start_replica(self, name: str) -> Part:
        """Start a replica; one core and a small heap, as several share this machine.

        Until `is_up` it may fail once: Spark gives each of its Python processes ten seconds to start (SPARK-45245,
        not a setting), which a machine that is busy with other work may not.
        """
        self._may_start_again.add(name)
        return self._start_replica(name)

    def is_up(self, *names: str) -> None:
        """Say that replicas have started: from now on each of them must go on."""
        self._may_start_again.difference_update(names)

    def _start_replica(self, name: str) -> Part:
        self.replicas[name] = self._start(
            name,
            *("replicas", "--bootstrap-servers", self.bootstrap_servers, "--feed", str(self._feed_file)),
            *("--merge", query.MERGE, "--replica", name, "--partitions", str(query.LANES)),
            *("--query", "hot_items", "--plan", query.PLANS[name], "--topic", f"bids={query.BIDS}"),
            *("--window-ms", str(query.WIDTH_MS), "--slide-ms", str(query.SLIDE_MS), "--trigger-ms", TRIGGER_MS),
            *("--checkpoint", str(self.directory / name), "--master", "local[1]"),
            *("--port", str(self._ports[name])),
        )
        return self.replicas[name]

    def start_certifier(self) -> Part:
        """Judge the merged topic by the topics of all replicas that were ever attached."""
        inputs = [part for name in self.replicas for part in ("--input-topic", query.replica_topic(name))]
        return self._start(
            "certify",
            *("services.cli", "certify", "--json", "--bootstrap-servers", self.bootstrap_servers),
            *("--merged-topic", query.MERGED_TOPIC, *inputs),
        )

    def check(self) -> list[str]:
        """See that everything runs that should; say which replicas had to be started again.

        Raises:
            DemoError: something has ended by itself.
        """
        again = []
        for part in [part for part in self._parts if part.exit_code is not None and not part.may_end]:
            part.may_end = True  # said once
            if part.name not in self._may_start_again:
                raise DemoError(f"{part.name} ended by itself (exit code {part.exit_code}). {part.log_tail()}")
            part.kill()  # what is left of it
            self.is_up(part.name)
            self._start_replica(part.name)
            again.append(f"{part.name} failed while it started, which Spark does on a busy machine; it starts again")
        if not self._stack.is_running:
            raise DemoError("the Kafka broker ended by itself")
        return again

    def keep_logs(self) -> Path:
        """Copy all logs to a place that is not cleaned up now, and return it."""
        KEPT_LOGS.mkdir(parents=True, exist_ok=True)
        brokers = [broker.log for broker in self._stack.brokers]
        for log in [*self.directory.glob("*.log"), *self.directory.glob("*.out"), *brokers]:
            if log.exists():
                shutil.copy(log, KEPT_LOGS)
        return KEPT_LOGS

    def close(self) -> None:
        """End everything but the broker, the hard way: nothing of it is needed any more."""
        for part in self._parts:
            part.kill()

    def _start(self, name: str, module: str, *arguments: str, **environment: str) -> Part:
        command = [sys.executable, "-m", module, *arguments]
        settings = _environment(os.environ, self.directory / "tmp") | environment
        part = Part(name, command, directory=self.directory, environment=settings)
        self._parts.append(part)
        return part


def _environment(ours: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return the environment of a part: this checkout's code, temporary files where they are deleted in the end."""
    kept = {name: value for name, value in ours.items() if not name.startswith(_FOREIGN)}
    return kept | {
        "PYTHONPATH": str(places.CHECKOUT),
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "JDK_JAVA_OPTIONS": f'-XX:-UsePerfData "-Djava.io.tmpdir={temporary}"',
    }
