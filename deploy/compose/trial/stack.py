"""What docker-compose.yml made, seen and driven as its user would: by docker, make, the API and Prometheus."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import httpx

from deploy.local.errors import StackError
from deploy.local.ports import HOST
from lmerge.process.api import Api

MERGE: Final = "hot_items"
_POLL_SECONDS: Final = 1.0
_COMMAND_SECONDS: Final = 1_800
"""A build on a slow network takes the longest of all."""


class Shell:
    """Runs commands; what they say goes to a log.

    Args:
        environment: further variables.
        log: where it goes.
    """

    def __init__(self, environment: dict[str, str], log: IO[bytes]) -> None:
        self._environment = environment
        self._log = log
        self.directory: Path | None = None
        """Where commands run."""

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """Run a command to its end, and return what it printed.

        Raises:
            StackError: it failed.
        """
        self._log.write(f"$ {' '.join(command)}\n".encode())
        self._log.flush()
        done = subprocess.run(
            command,
            cwd=cwd or self.directory,
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        self._log.write(done.stdout)
        self._log.flush()
        if done.returncode:
            raise StackError(f"`{' '.join(command)}` failed (exit code {done.returncode})")
        return done.stdout.decode(errors="replace")


class Stack:
    """The stack of docker-compose.yml.

    Args:
        run: runs a command in the clone.
        api_port: where the first merge service listens.
        prometheus_port: where Prometheus does.
    """

    def __init__(self, run: Callable[..., str], *, api_port: int, prometheus_port: int) -> None:
        self._run = run
        self._api_url = f"http://{HOST}:{api_port}"
        self._prometheus_url = f"http://{HOST}:{prometheus_port}"

    def compose(self, *arguments: str) -> str:
        """Run `docker compose`."""
        return self._run("docker", "compose", *arguments)

    def up(self, *services: str) -> None:
        """Type what a user types, and see that everything that should run is healthy.

        Raises:
            StackError: it is not.
        """
        self.compose("up", "--detach", "--wait", *services)
        for one in self.containers():
            if one["State"] == "exited" and one["ExitCode"] == 0:
                continue  # what ends by itself
            if one["State"] != "running" or one["Health"] not in {"healthy", ""}:
                raise StackError(f"{one['Service']} is {one['State']} {one['Health']} after `up --wait`")

    def containers(self) -> list[dict[str, Any]]:
        """Return what `docker compose ps` tells of every container."""
        return [json.loads(line) for line in self.compose("ps", "--all", "--format", "json").splitlines()]

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of the container of a service."""
        container = self.compose("ps", "--all", "--quiet", service).strip()
        found: dict[str, Any] = json.loads(self._run("docker", "inspect", container))[0]
        return found

    def leader(self) -> str:
        """Ask the API, from this machine, for the input that leads in the first lane."""
        token = self.compose("exec", "-T", "merge-1", "cat", "/run/lmerge/token").strip()
        with Api(self._api_url, token) as api:
            return str(api.get(f"/v1/merges/{MERGE}")["observed"]["lanes"][0]["leader"])

    def smoke(self, inputs: int) -> str:
        """Run the smoke test for a certain number of inputs, and return its last line."""
        command = ("python", "/etc/lmerge/smoke.py", "--merge", MERGE, "--inputs", str(inputs))
        return self.compose("run", "--rm", "--no-deps", "smoke", *command).strip().splitlines()[-1]

    def crash(self, service: str) -> None:
        """Kill the main process of a service as a defect would, and wait until it was restarted and is healthy."""
        os.kill(self.inspect(service)["State"]["Pid"], signal.SIGKILL)
        self.wait(lambda: self.inspect(service)["RestartCount"] > 0, f"{service} is restarted", seconds=120)
        self.wait(lambda: self.inspect(service)["State"]["Health"]["Status"] == "healthy", f"{service} is well again")

    def targets_up(self) -> int:
        """Return how many targets Prometheus has, 0 while one of them is down."""
        answer = httpx.get(f"{self._prometheus_url}/api/v1/targets", params={"state": "active"}, trust_env=False)
        targets = answer.json()["data"]["activeTargets"]
        return len(targets) if all(target["health"] == "up" for target in targets) else 0

    def scrapes(self, instance: str) -> bool:
        """Tell whether Prometheus reaches a process, called by the name that alerts and dashboards have for it."""
        asked = {"query": f'up{{instance="{instance}"}} == 1'}
        answer = httpx.get(f"{self._prometheus_url}/api/v1/query", params=asked, trust_env=False)
        return bool(answer.json()["data"]["result"])

    def left_over(self) -> list[str]:
        """Return the containers, volumes and networks that are there, but for those that every engine has."""
        found = self._run("docker", "ps", "--all", "--format", "container {{.Names}}")
        found += self._run("docker", "volume", "ls", "--format", "volume {{.Name}}")
        found += self._run("docker", "network", "ls", "--filter", "type=custom", "--format", "network {{.Name}}")
        return found.splitlines()

    def wait(self, condition: Callable[[], object], what: str, *, seconds: float = 300) -> None:
        """Wait until something is so.

        Raises:
            StackError: it was not in time.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise StackError(f"not within {seconds:g} s: {what}")
            time.sleep(_POLL_SECONDS)
