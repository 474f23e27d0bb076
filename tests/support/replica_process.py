"""A replica as a process of its own, to be killed."""

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deploy.local import ports
from lmerge.kafka import KafkaSettings, TailReader
from replicas.sink import HEADER
from replicas.state import Tag
from tests.support import failpoints
from tests.support.failpoints import KILL_AFTER_COMMIT
from tests.support.processes import descendants
from tests.support.replica import FeedWorld, ReplicaTopic, wait_seldom

MARKER = "LMERGE_TEST_RUN"
DEADLINE = 300
"""Seconds for what begins with a start of Spark: 25 on two free cores, 100 where many others work too."""

STARVED = "Python worker failed to connect back"
"""How a start ends on a machine that is too busy: Spark gives the Python worker of a source 10 s, which is fixed."""

STARTS = 5
"""How often to try then."""


_BEGUN = re.compile("INFO replicas.job batch |INFO replicas.report ready")


class MarkedProcess:
    """A process that runs Spark, with everything that it starts; all of it can be recognised by a mark."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._log = log
        self._module = module
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.outlived_seconds = 0.0
        """How long, at its last end, something that it had started was still there."""

    def start(self, **environment: str) -> None:
        """Start it, or start it again, and wait for its first batch; if it starves, again, as a supervisor does."""
        for _ in range(STARTS):
            said = len(self.log())
            self.launch(**environment)
            wait_seldom(lambda said=said: self._has_begun_or_ended(said), "its first batch", seconds=DEADLINE)  # type: ignore[misc]
            if STARVED not in self.log()[said:]:
                return
            self.wait_for_end()

    def launch(self, **environment: str) -> None:
        """Start it, and wait for nothing."""
        command = failpoints.command(self._module, *self._arguments, environment=environment)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, MARKER: self._mark, **environment}, stdout=log, stderr=log
            )

    def _has_begun_or_ended(self, said: int) -> bool:
        assert self._process is not None
        # One that has nothing to read is ready without a batch.
        return bool(_BEGUN.search(self.log(), said)) or self._process.poll() is not None

    def check(self) -> None:
        """Check that it runs."""
        assert self._process is not None
        assert self._process.poll() is None, self.log()[-3_000:]

    def wait_for_end(self) -> int:
        """Wait until the process and everything that it started is gone, and give its exit code."""
        assert self._process is not None
        code = self._process.wait(DEADLINE)
        ended = time.monotonic()
        wait_seldom(lambda: not self._marked(), "nothing is left of the replica", seconds=30)
        self.outlived_seconds = time.monotonic() - ended
        return code

    def signal(self, number: signal.Signals) -> int:
        """Send a signal, wait for the end, and give the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait_for_end()

    def let_run(self, *, seconds: float) -> None:
        """Let it run on for so long."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.check()

    def log(self) -> str:
        """Give what it has written, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """End what still runs, one by one."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        for pid in self._marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def tree(self) -> dict[int, str]:
        """Give the process and all that descend from it now, with their command lines."""
        assert self._process is not None
        return descendants(self._process.pid)

    def _marked(self) -> list[int]:
        mark = f"{MARKER}={self._mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


class Probed:
    """What a replica shows at its port."""

    def __init__(self) -> None:
        (self.port,) = ports.choose(1)

    def get(self, path: str) -> tuple[int, str]:
        """Ask; 0 if nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float | None:
        """Give the value of the one series of this name, None if there is none."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"lmerge_replica_{name}{{"):
                return float(line.rsplit(" ", 1)[1])
        return None

    def is_ready(self) -> bool:
        """Tell whether it is."""
        return self.get("/readyz")[0] == 200


class ReplicaProcess(MarkedProcess):
    """`python -m replicas`, of a query by its name or its file."""

    def __init__(
        self,
        world: FeedWorld,
        directory: Path,
        *,
        query: str = "hot_items",
        plan: str,
        lanes: int,
        max_cuts: int,
        options: Sequence[str] = (),
    ) -> None:
        topics = [part for name, topic in world.topics.items() for part in ("--topic", f"{name}={topic}")]
        arguments = [
            *("--bootstrap-servers", world.settings.bootstrap_servers),
            *("--merge", world.name, "--replica", directory.name, "--feed", str(world.feed_file(directory.parent))),
            *("--query", query, "--plan", plan, "--checkpoint", str(directory), "--partitions", str(lanes)),
            *("--max-cuts", str(max_cuts), "--trigger-ms", "0", "--master", "local[2]", *topics, *options),
        ]
        super().__init__("replicas", arguments, directory.parent / f"{directory.name}.log")
        self._kafka = world.settings
        self._directory = directory
        self._lanes = lanes
        self._topic_name = f"{world.name}.replica.{directory.name}"
        self.topic = ReplicaTopic(world.settings, self._topic_name, lanes)

    def committed_batch(self) -> int:
        """Give the last batch in the lanes; -2 if there is none."""
        return committed_batch(self._kafka, self._topic_name, self._lanes)

    def wait_for_batch(self, batch: int) -> None:
        """Wait until this batch, or a later one, is in the lanes."""

        def is_there() -> bool:
            self.check()
            return self.committed_batch() >= batch

        wait_seldom(is_there, f"batch {batch} is committed", seconds=DEADLINE)

    def kill_between_the_commits(self, *, batch: int) -> None:
        """Let it kill itself right after the sink's commit of this batch, or of the next one that writes something."""
        self.start(**{KILL_AFTER_COMMIT: str(batch)})
        assert self.wait_for_end() == -signal.SIGKILL
        committed = self.committed_batch()
        assert committed >= batch
        assert is_between_the_commits(self._directory, committed)


def is_between_the_commits(directory: Path, batch: int) -> bool:
    """Tell whether Spark has planned a batch and not noted that it is done."""
    spark = directory / "spark"
    return (spark / "offsets" / str(batch)).exists() and not (spark / "commits" / str(batch)).exists()


def committed_batch(kafka: KafkaSettings, topic: str, lanes: int) -> int:
    """Give the last batch in the lanes of a replica's topic; -2 if there is none."""
    with TailReader(kafka) as reader:
        tails = [reader.read_tail(topic, lane) for lane in range(lanes)]
    return max((Tag.decode(dict(tail.headers)[HEADER] or b"").batch for tail in tails if tail), default=-2)
