"""Downloading by Maven coordinates with the Ivy that PySpark ships, showing progress.

So a user needs neither Maven nor any address of a registry in our files. What Ivy brings is not trusted here:
`artifacts.py` compares it with a committed list.
"""

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.processes import bound_to_us

_STALL_SECONDS = 120  # Ivy prints a dot per 16 KiB; two minutes of nothing is a connection that died
_LOG_TAIL_LINES = 25
_CLEAR = "\r\033[K"  # back to the start of the terminal's line, and empty it


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One module of a Maven registry, with what it depends on if `transitive`."""

    group: str
    module: str
    version: str
    transitive: bool = False


class _Progress:
    """One line that advances on a terminal; elsewhere a line every ten seconds."""

    _PERIOD_SECONDS = 10.0

    def __init__(self, *, label: str, jars: int) -> None:
        self._label = label
        self._jars = jars
        self._redraws = sys.stdout.isatty()
        self._started = self._printed = time.monotonic()
        print(f"fetching {label}: {jars} jars", flush=True)

    def show(self, log: Path) -> None:
        now = time.monotonic()
        if self._redraws:
            print(f"{_CLEAR}  {self._line(log)}", end="", flush=True)
        elif now - self._printed >= self._PERIOD_SECONDS:
            self._printed = now
            print(f"  {self._line(log)}", flush=True)

    def end(self, log: Path) -> None:
        print(f"{_CLEAR if self._redraws else ''}  {self._line(log)}", flush=True)

    def _line(self, log: Path) -> str:
        """Say how far Ivy's output shows it to be: it finds all modules first, then downloads them."""
        text = log.read_text(errors="replace")
        found = min(text.count("\tfound "), self._jars)
        downloaded = text.count("[SUCCESSFUL ]")
        megabytes = sum(int(size) for size in re.findall(r"\((\d+)kB\)", text)) / 1000
        seconds = time.monotonic() - self._started
        return f"{found} of {self._jars} found, {downloaded} downloaded, {megabytes:.1f} MB, {seconds:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ivy:
    """Ivy with a cache of its own: what a failed download got so far is not fetched again."""

    java: Path
    cache: Path

    def retrieve(self, coordinates: Sequence[Coordinate], *, into: Path, label: str, jars: int) -> None:
        """Put the jars of all coordinates into a directory.

        Args:
            coordinates: what to fetch.
            into: the directory; the jars are called `<module>-<version>.jar`.
            label: what to call it in the progress line.
            jars: how many there will be, for the progress line.

        Raises:
            StackError: Ivy failed or stalled; the text has the end of its output and where the rest is.
        """
        self.cache.mkdir(parents=True, exist_ok=True)
        log = self.cache / f"{label}.log"
        log.write_text("")
        progress = _Progress(label=label, jars=jars)
        try:
            for coordinate in coordinates:
                self._run(coordinate, into=into, log=log, progress=progress)
        finally:
            progress.end(log)

    def _run(self, coordinate: Coordinate, *, into: Path, log: Path, progress: _Progress) -> None:
        with log.open("a") as output:
            command = bound_to_us(self._command(coordinate, into))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _watch(process, log, progress)
        finally:
            process.kill()  # a no-op unless we are leaving early
            process.wait()
        if process.returncode != 0:
            raise _failure(log, f"{coordinate.group}:{coordinate.module}:{coordinate.version} was not brought")

    def _command(self, coordinate: Coordinate, into: Path) -> list[str]:
        command = [str(self.java), "-jar", str(_ivy_jar()), "-confs", "default", "-cache", str(self.cache)]
        command += ["-dependency", coordinate.group, coordinate.module, coordinate.version]
        command += [] if coordinate.transitive else ["-notransitive"]
        return [*command, "-retrieve", f"{into}/[artifact]-[revision].[ext]"]


def _watch(process: subprocess.Popen[bytes], log: Path, progress: _Progress) -> None:
    size, grown = -1, time.monotonic()
    while True:
        try:
            process.wait(timeout=0.25)
        except subprocess.TimeoutExpired:
            progress.show(log)
        else:
            return
        if log.stat().st_size != size:
            size, grown = log.stat().st_size, time.monotonic()
        elif time.monotonic() - grown > _STALL_SECONDS:
            raise _failure(log, f"nothing came for {_STALL_SECONDS} s")


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # finds without importing, which would take longer than all the rest
    if spec is None or spec.origin is None:
        raise StackError("PySpark is not installed, and Ivy comes with it: run `make setup`")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise StackError(f"there is no Ivy among the jars of {spec.origin}: install PySpark anew with `make setup`")
    return found[-1]


def _failure(log: Path, reason: str) -> StackError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return StackError(
        f"the download failed: {reason}. The end of {log}:\n"
        + "\n".join(f"  | {line}" for line in lines[-_LOG_TAIL_LINES:])
        + "\nCheck the network and run it again; it goes on where it stopped. Java takes a proxy from"
        " JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... -Dhttps.proxyPort=...'"
    )
