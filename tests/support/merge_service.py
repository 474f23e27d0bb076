"""The merge service as a process of its own, driven over REST, and what its inputs and its merged topic hold."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local import ports
from lmerge import Element
from lmerge.codec import decode_batch, encode_batch
from lmerge.kafka import KafkaSettings, TailReader, TransactionalWriter
from lmerge.process.api import TIMEOUT_SECONDS
from tests.support import failpoints
from tests.support.kafka import wait_until

ROOT = Path(__file__).parents[2]
DEADLINE = 60
TOO_MANY = 429
NOT_NOW = 503
TOKEN = "secret-of-this-test"


class Service:
    """One merge service process and a client of its API.

    Args:
        settings: the cluster.
        environment: variables for the process, such as those of failpoints.
    """

    def __init__(self, settings: KafkaSettings, environment: Mapping[str, str] | None = None) -> None:
        self._servers = settings.bootstrap_servers
        self._environment = environment or {}
        (self.port,) = ports.choose(1)
        self.process: subprocess.Popen[bytes] | None = None
        self._defined: set[str] = set()

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process."""
        tokens = {"LMERGE_ADMIN_TOKEN": TOKEN, "LMERGE_READ_TOKEN": "reader"}
        env = {**os.environ, "PYTHONPATH": str(ROOT), **tokens, **self._environment}
        arguments = ("--bootstrap-servers", self._servers, "--port", str(self.port))
        command = failpoints.command("services.merge", *arguments, environment=self._environment)
        self.process = subprocess.Popen(command, env=env, cwd=ROOT)

    def wait_until_ready(self) -> None:
        """Wait until the process runs what is defined."""
        wait_until(lambda: self.call("GET", "/readyz")[0] == 200, "the service is ready", seconds=DEADLINE)

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and give the exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=DEADLINE)

    def put(self, path: str, body: object) -> Any:
        """Put something under /v1/merges/, and give the answer."""
        status, answer = self.call("PUT", f"/v1/merges/{path}", body)
        assert status in (200, 201), answer
        self._defined.add(path.partition("/")[0])
        return answer

    def remove_merges(self) -> None:
        """Remove the merges that were defined here: else every service that is started later runs them too."""
        while self._defined:
            self.call("DELETE", f"/v1/merges/{self._defined.pop()}")

    def attach(self, merge: str, *names: str) -> None:
        """Attach inputs whose topics are called by the merge and their names."""
        for name in names:
            self.put(f"{merge}/inputs/{name}", {"topic": f"{merge}.{name}"})

    def wait_until_running(self, merge: str) -> None:
        """Wait until the lanes of a merge run, so that its topics are there."""

        def is_so() -> bool:
            lanes = self.observed(merge)["lanes"]
            return bool(lanes) and all(lane["state"] == "running" for lane in lanes)

        wait_until(is_so, f"the lanes of {merge} run", seconds=DEADLINE)

    def observed(self, path: str) -> Any:
        """Give what is observed of a merge or an input; who asks too often waits until it is answered."""
        deadline = time.monotonic() + DEADLINE
        status, answer = self.call("GET", f"/v1/merges/{path}")
        while status == TOO_MANY and time.monotonic() < deadline:
            time.sleep(0.05)
            status, answer = self.call("GET", f"/v1/merges/{path}")
        assert status == 200, answer
        return answer["observed"]

    def call(self, method: str, path: str, body: object = None, token: str = TOKEN, why: str = "") -> tuple[int, Any]:
        """Call the API; give the status and the answer, 0 and None if nobody listens."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        if why:
            request.add_header("X-Reason", why)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
                text = response.read()
                return response.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except OSError:  # nobody listens, or who listens is stopped
            return 0, None

    @property
    def owner(self) -> str:
        """The name under which the lanes show this process."""
        assert self.process is not None
        return f"{socket.gethostname()}/{self.process.pid}"

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def signal(self, how: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(how)


@contextmanager
def running(settings: KafkaSettings, environment: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Run a service, which is gone at the end whatever happens."""
    with several(settings, 1, environment) as (service,):
        yield service


@contextmanager
def several(
    settings: KafkaSettings, count: int, environment: Mapping[str, str] | None = None
) -> Iterator[list[Service]]:
    """Run several services, which are gone at the end whatever happens."""
    services = [Service(settings, environment) for _ in range(count)]
    try:
        for service in services:
            service.launch()
        for service in services:
            service.wait_until_ready()
        yield services
    finally:
        for service in services:
            if service.is_alive:
                service.remove_merges()
                service.end(signal.SIGKILL)


def append(settings: KafkaSettings, topic: str, elements: list[Element], partition: int = 0) -> None:
    """Write elements in one transaction."""
    with TransactionalWriter(settings, f"test/{uuid.uuid4().hex}") as writer:
        writer.fence()
        with writer.transaction():
            writer.write(topic, partition, [(None, value) for value in encode_batch(elements)])


def merged(settings: KafkaSettings, topic: str, partition: int = 0) -> list[Element]:
    """Read the committed elements of a topic."""
    with TailReader(settings) as reader:
        low = reader.watermarks(topic, partition).low
        values = [r.value for batch in reader.read_range(topic, partition, start=low) for r in batch]
    elements, error = decode_batch(values)
    assert error is None
    return elements
