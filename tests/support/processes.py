"""Processes and what descends from them, by Linux's own account."""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def descendants(root: int) -> dict[int, str]:
    """Give a process and all that descend from it now, with their command lines."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name, in parentheses, may have blanks of its own; behind it come the state and the parent.
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: line for pid in sorted(found) if (line := command(pid))}


def alive(processes: Mapping[int, str]) -> dict[int, str]:
    """Give those that are still there; another process that was given the number is not taken for it."""
    return {pid: line for pid, line in processes.items() if command(pid) == line}


def command(pid: int) -> str:
    """Give the command line of a process, empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def end_tree(process: "subprocess.Popen[bytes]") -> None:
    """End a process that we have started, and what descends from it."""
    tree = descendants(process.pid) if process.poll() is None else {}
    if process.poll() is None:
        process.kill()
    process.wait(30)
    for pid in alive(tree):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
