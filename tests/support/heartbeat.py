"""The heartbeat service as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class HeartbeatProcess:
    """A running service; its log is a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "services.heartbeat", *arguments]
        with log.open("wb") as stream:
            self.process = subprocess.Popen(command, stderr=stream)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        text = self._log.read_text()
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line) for line in whole if not line.startswith("%")]  # librdkafka's last words

    def events(self) -> list[str]:
        """The events that it has logged so far."""
        return [line["event"] for line in self.lines]

    def wait(self) -> int:
        """Wait for its end, and give the exit code."""
        return self.process.wait(20)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and give the exit code."""
        os.kill(self.process.pid, number)
        return self.wait()

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
