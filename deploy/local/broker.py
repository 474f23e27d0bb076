"""One broker: its process and its directory.

In the directory are

- `server.properties`, `log4j2.properties`: written anew at each start (`settings.py`);
- `data/`: Kafka's own;
- `broker.log`: all that the process prints, over all its starts;
- `pid`: believed only if the process with this number is ours (`processes.py`).
"""

import shutil
import signal
import subprocess
import time
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.layout import Layout, Node
from deploy.local.processes import bound_to_us, read_pid, send
from deploy.local.settings import LOG4J, server_properties

_LOG_TAIL_LINES = 25
_POLL_SECONDS = 0.02
_FORMAT_SECONDS = 60  # takes 1.3 s on a quiet machine
_KILL_SECONDS = 15  # only a process that hangs in its disk takes this long to die
# A small heap and the quick compiler only: a test broker lives for seconds and shares two cores.
_JVM = ("-XX:+UseSerialGC", "-Djava.awt.headless=true")
_SHORT = ("-XX:TieredStopAtLevel=1",)
"""Compiles fast code quickly instead of the fastest late: what most stacks live for is over before that repays."""
_HEAP = ("-Xms128m", "-Xmx384m")


class Broker:
    """One node of a stack; the object may be made anew in another process and finds the broker by its pid file."""

    def __init__(self, directory: Path, node: Node) -> None:
        self.directory = directory
        self.node = node
        self.log = directory / "broker.log"
        self._pid_file = directory / "pid"
        self._process: subprocess.Popen[bytes] | None = None  # ours to reap; None if another process started it

    @property
    def pid(self) -> int | None:
        """The process id, or None if the broker does not run."""
        if self._process is not None and self._process.poll() is None:
            return self._process.pid
        return read_pid(self._pid_file, command_ends=" ".join(self._main))

    @property
    def _main(self) -> tuple[str, str]:
        """How the command line ends. The path makes it ours: no other process has this one."""
        return "kafka.Kafka", str(self.directory / "server.properties")

    def prepare(self, layout: Layout, *, java: Path, jars: Path) -> None:
        """Write the configuration and, if there is no data yet, format the data directory.

        Raises:
            StackError: Kafka's storage tool failed; the text has the end of its output.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(LOG4J)
        (self.directory / "server.properties").write_text(server_properties(layout, self.node))
        data = self.directory / "data"
        if (data / "meta.properties").exists():
            return
        shutil.rmtree(data, ignore_errors=True)  # formatting was cut off
        tool = ("kafka.tools.StorageTool", "format", "-t", layout.cluster_id, "-c", "server.properties")
        process = self._spawn([*_jvm(java, jars), *tool])
        try:
            process.wait(timeout=_FORMAT_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()  # a no-op unless we are leaving early
            process.wait()
        if process.returncode != 0:
            raise StackError(f"the data directory {data} could not be formatted. {self.log_tail()}")

    def launch(self, *, java: Path, jars: Path, dies_with_parent: bool, steady: bool) -> None:
        """Start the process; it is not ready yet."""
        command = [*_jvm(java, jars, steady=steady), *_HEAP, *self._main]
        self._process = self._spawn(bound_to_us(command) if dies_with_parent else command)
        self._pid_file.write_text(f"{self._process.pid}\n")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker if it runs."""
        if (pid := self.pid) is not None:
            send(pid, number)

    def wait_until_gone(self, deadline: float) -> bool:
        """Wait for the process to end, up to a time of the monotonic clock; return whether it has."""
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def log_tail(self) -> str:
        """Return the end of the log, as a part of an error's text."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        except FileNotFoundError:
            lines = []
        return "\n".join([f"The end of {self.log}:", *(f"  | {line}" for line in lines)])

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("a") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C at the terminal is for us; we then stop the broker in order
            )


def brokers_in(directory: Path, layout: Layout) -> list[Broker]:
    """Return the brokers, running or not, of the stack in a directory."""
    return [Broker(directory / str(node.id), node) for node in layout.nodes]


def end(brokers: list[Broker], number: signal.Signals, *, patience_seconds: float = _KILL_SECONDS) -> None:
    """Send the signal to all, SIGKILL to those that still run when patience is over, and wait until all are gone.

    Raises:
        StackError: a process does not end.
    """
    for broker in brokers:
        broker.signal(number)
    deadline = time.monotonic() + patience_seconds
    for broker in brokers:
        if not broker.wait_until_gone(deadline):
            broker.signal(signal.SIGKILL)
    for broker in brokers:
        if not broker.wait_until_gone(time.monotonic() + _KILL_SECONDS):
            raise StackError(f"broker {broker.node.id} (process {broker.pid}) does not end: is its disk hanging?")


def _jvm(java: Path, jars: Path, *, steady: bool = False) -> list[str]:
    return [
        str(java),
        *_JVM,
        *(() if steady else _SHORT),
        "-Dlog4j2.configurationFile=log4j2.properties",
        "-cp",
        f"{jars}/*",
    ]
