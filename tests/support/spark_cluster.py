"""A standalone Spark cluster on this machine: a master and a worker, on the loopback interface."""

import json
import os
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

from deploy.local import ports
from tests.support.processes import descendants, end_tree
from tests.support.replica import wait_seldom

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"


class SparkCluster:
    """A master and a worker with two cores; `close` ends them and what they have started.

    Args:
        directory: for logs, and for the worker's files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        port, self._page, worker_page = ports.choose(3)
        self.master = f"spark://{HOST}:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(self._page))
        self._start(
            *("worker.Worker", "--host", HOST, "--webui-port", str(worker_page), "--cores", "2", "--memory", "1g"),
            *("--work-dir", str(directory / "work"), self.master),
        )

    def wait(self) -> None:
        """Wait until the worker has found the master."""
        wait_seldom(lambda: self._state().get("aliveworkers") == 1, "the worker is registered", seconds=90)

    def executors(self) -> dict[int, str]:
        """Give the processes that the worker runs for drivers, with their command lines."""
        worker = self._processes[1].pid
        return {pid: command for pid, command in descendants(worker).items() if pid != worker}

    def close(self) -> None:
        """End both, and what the worker has started."""
        for process in self._processes:
            end_tree(process)

    def _state(self) -> Any:
        for process in self._processes:
            assert process.poll() is None, "a part of the cluster has ended"
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as page:
            return json.loads(page.read())
        return {}

    def _start(self, kind: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": str(ROOT),  # for the Python workers of executors
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        with (self._directory / f"{kind}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log))
