"""Knowing our own processes again: a number in a file is not enough, as the system gives numbers out anew."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from deploy.local import die_with_parent

_PROC = Path("/proc")


def bound_to_us(command: list[str]) -> list[str]:
    """Return a command that runs the given one so that it is killed when this process ends (on Linux)."""
    return [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *command]


def command_line(pid: int) -> str:
    """Return the arguments of a process, joined by blanks; empty if there is none, or it is dead and not reaped."""
    if (_PROC / "self").exists():
        try:
            raw = (_PROC / str(pid) / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ""
        return os.fsdecode(raw.rstrip(b"\0").replace(b"\0", b" "))
    shown = subprocess.run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return os.fsdecode(shown.stdout).strip()


def read_pid(file: Path, *, command_ends: str) -> int | None:
    """Return the process id in a file if that process still is the one that wrote us there.

    Args:
        file: a pid file; missing, half written or outdated ones yield None.
        command_ends: how the arguments of our process end.
    """
    try:
        pid = int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if pid > 0 and command_line(pid).endswith(command_ends) else None


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that has ended in between is fine."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
