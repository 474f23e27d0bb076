"""Failures at an exact moment of a real process, planted from outside: the code that runs in production knows nothing.

    python -m tests.support.failpoints <module> <its arguments>

runs a module as `python -m` does, with what the environment asks for.
"""

import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lmerge.kafka import KeyValue, TransactionalWriter
from replicas.sink import Sink
from replicas.state import Tag
from services.merge import lane_runner

KILL_AFTER_COMMIT: Final = "LMERGE_TEST_KILL_AFTER_COMMIT"
"""A replica kills itself right after its first commit of this batch or a later one, before Spark notes the batch."""

WAIT_BEFORE_COMMIT: Final = "LMERGE_TEST_WAIT_BEFORE_COMMIT"
"""While there is a file of this name, lanes wait between the last record of a transaction and its commit, so that the
process can be killed or stopped, or the broker, with transactions open."""


def command(module: str, *arguments: str, environment: Mapping[str, str]) -> list[str]:
    """Give the command of a module: its own, or if the environment asks for failures, that with them planted."""
    planted = (
        ["-m", __name__, module] if {KILL_AFTER_COMMIT, WAIT_BEFORE_COMMIT} & environment.keys() else ["-m", module]
    )
    return [sys.executable, *planted, *arguments]


def kill_after_commit(is_due: Callable[[Tag], bool]) -> None:
    """Let this process kill itself right after the sink's commit of a batch of which that is true."""
    commit = Sink._commit

    def deadly(self: Sink, tag: Tag, records: Mapping[int, Sequence[KeyValue]]) -> None:
        commit(self, tag, records)
        if is_due(tag):
            os.kill(os.getpid(), signal.SIGKILL)

    Sink._commit = deadly  # type: ignore[method-assign]


def wait_before_commit(file: Path) -> None:
    """Let the lanes of this process wait before every commit while there is such a file."""

    class Waiting(TransactionalWriter):
        def commit(self) -> None:
            while file.exists():
                time.sleep(0.005)
            super().commit()

    assert lane_runner.TransactionalWriter is TransactionalWriter, "else nothing is planted"  # type: ignore[attr-defined]
    lane_runner.TransactionalWriter = Waiting  # type: ignore[attr-defined]


def main() -> None:
    """Plant what is asked for, and run the module."""
    if batch := os.environ.get(KILL_AFTER_COMMIT):
        kill_after_commit(lambda tag: tag.batch >= int(batch))
    if file := os.environ.get(WAIT_BEFORE_COMMIT):
        wait_before_commit(Path(file))
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
