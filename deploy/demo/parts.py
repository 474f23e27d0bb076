"""The processes of the demo. Each has a session of its own, so that all it starts can be found and ended with it.

A replica is a tree: Python, Spark's JVM, and Python workers in a process group that Spark makes for them. The session
is what they share. If the demo itself is killed, the kernel ends its parts (`deploy/local/processes.py`), and Spark's
processes follow theirs.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.demo.errors import DemoError
from deploy.local.processes import bound_to_us

_PROC: Final = Path("/proc")
_POLL_SECONDS: Final = 0.02
_KILL_SECONDS: Final = 15.0
_TAIL_LINES: Final = 20


class Part:
    """One process of the demo and all that it starts.

    Args:
        name: what people call it.
        command: the program and its arguments.
        directory: where it runs, and where its log is.
        environment: all of its environment.
    """

    def __init__(self, name: str, command: list[str], *, directory: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.output = directory / f"{name}.out"
        self.may_end = False
        """Set by whoever ends it: an end that nobody asked for ends the demo."""
        with self.log.open("ab") as log, self.output.open("ab") as output:
            self._process = subprocess.Popen(
                bound_to_us(command),
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for the demo, which then ends its parts
            )

    @property
    def pid(self) -> int:
        """The process id, which is that of the session too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM, which every part takes as a wish to end in good order."""
        self.may_end = True
        self._process.terminate()

    def halt(self) -> None:
        """Stop the whole session where it is; it does not notice."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on from there."""
        self._send(signal.SIGCONT)

    def kill(self) -> int:
        """Send SIGKILL to the whole session, wait until nothing of it is left, and return how many were killed.

        Raises:
            DemoError: a process does not end.
        """
        self.may_end = True
        killed = set[int]()
        deadline = time.monotonic() + _KILL_SECONDS
        while members := _session(self.pid) or [self.pid] * (self._process.poll() is None):
            if time.monotonic() > deadline:
                raise DemoError(f"{self.name}: processes {members} do not end; is a disk hanging? End them by hand")
            _signal(members, signal.SIGKILL)
            killed.update(members)
            self._process.poll()  # reaps it
            time.sleep(_POLL_SECONDS)
        return len(killed)

    def _send(self, number: signal.Signals) -> None:
        _signal(_session(self.pid), number)

    def log_tail(self) -> str:
        """Return the end of the log, as a part of an error's text."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"The end of its log, {self.log.name}:", *(f"  | {line}" for line in lines)])


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _session(leader: int) -> list[int]:
    """Return the processes of a session that are alive, as far as the system tells."""
    found = []
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            # After the command, which may hold anything: state, parent, group, session.
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state not in "ZX":
                found.append(int(entry.name))
    return found
