"""The merge service as a process on a real broker, driven over REST."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local import ports
from lmerge import INFINITY, TDB, Element, Event, Hello, reconstitute
from lmerge.canonical import payload
from lmerge.codec import decode_batch, encode_batch
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.logical import on_the_wire, present
from tests.support.streams import ins, stb

ROOT = Path(__file__).parents[2]
DEADLINE = 60
TOKEN = "secret-of-this-test"


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, with a deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE} s: {what}"
        time.sleep(0.02)


class Service:
    """One merge service process and a client of its API."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._servers = settings.bootstrap_servers
        (self.port,) = ports.choose(1)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "LMERGE_ADMIN_TOKEN": TOKEN, "LMERGE_READ_TOKEN": "reader"}
        command = [
            sys.executable,
            "-m",
            "services.merge",
            "--bootstrap-servers",
            self._servers,
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen(command, env=env, cwd=ROOT)
        until(lambda: self.call("GET", "/readyz")[0] == 200, "the service is ready")

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=DEADLINE)

    def call(self, method: str, path: str, body: object = None, token: str = TOKEN) -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=10) as response:  # noqa: S310
                text = response.read()
                return response.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except (urllib.error.URLError, ConnectionError):
            return 0, None


@contextmanager
def running(settings: KafkaSettings) -> Iterator[Service]:
    service = Service(settings)
    service.start()
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.end(signal.SIGKILL)


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


def append(settings: KafkaSettings, topic: str, elements: list[Element], partition: int = 0) -> None:
    with TransactionalWriter(settings, f"test/{uuid.uuid4().hex}") as writer:
        writer.fence()
        with writer.transaction():
            writer.write(topic, partition, [(None, value) for value in encode_batch(elements)])


def merged(settings: KafkaSettings, topic: str, partition: int = 0) -> list[Element]:
    with TailReader(settings) as reader:
        low = reader.watermarks(topic, partition).low
        values = [r.value for batch in reader.read_range(topic, partition, start=low) for r in batch]
    elements, error = decode_batch(values)
    assert error is None
    return elements


def test_the_merged_topic_is_right_through_kills_attach_and_detach(settings: KafkaSettings) -> None:
    """Three presentations of one TDB; the service is killed in the middle, inputs come and go."""
    rng = random.Random(5)
    merge = f"m{uuid.uuid4().hex[:8]}"
    reference = [Event(f"e{n}", 10 * n, 10 * n + rng.choice([5, 25, 90])) for n in range(60)]
    third = f"/v1/merges/{merge}/inputs/r3"
    streams = {name: on_the_wire(present("R3", reference, rng)) for name in ("r1", "r2", "r3")}
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=1) for name in streams))
    with running(settings) as service:
        assert service.call("PUT", f"/v1/merges/{merge}", {})[0] == 200
        for name in ("r1", "r2"):
            assert service.call("PUT", f"/v1/merges/{merge}/inputs/{name}", {"topic": f"{merge}.{name}"})[0] == 200
        chunks = {name: [stream[i : i + 25] for i in range(0, len(stream), 25)] for name, stream in streams.items()}
        for step in range(max(map(len, chunks.values()))):
            for name, parts in chunks.items():
                if step < len(parts):
                    append(settings, f"{merge}.{name}", parts[step])
            if step == 1:
                service.end(signal.SIGKILL)
                service.start()
            if step == 2:
                assert service.call("PUT", third, {"topic": f"{merge}.r3"})[0] == 200
                until(lambda: _joined(service, third), "r3 is joined")
                assert service.call("DELETE", f"/v1/merges/{merge}/inputs/r1")[0] == 204
        until(lambda: merged(settings, f"{merge}.merged")[-1:] == [stb(INFINITY)], "the merge comes to its end")
        output = merged(settings, f"{merge}.merged")
        assert isinstance(output[0], Hello)
        assert reconstitute(output) == TDB(Event(payload(e.payload), e.vs, e.ve) for e in reference)
        status, view = service.call("GET", f"/v1/merges/{merge}")
        assert status == 200
        assert (view["lanes"][0]["state"], sorted(view["lanes"][0]["inputs"])) == ("running", ["r2", "r3"])
        assert view["lanes"][0]["may_die"] == 1
        status, metrics = service.call("GET", "/metrics")
        assert f'lmerge_transactions_total{{lane="0",merge="{merge}"}}' in metrics
        assert service.end(signal.SIGTERM) == 0


def _joined(service: Service, path: str) -> bool:
    lanes = service.call("GET", path)[1]["lanes"]
    return bool(lanes) and all(lane is not None and lane["membership"] == "joined" for lane in lanes)


def test_an_input_that_breaks_its_contract_is_named_and_the_others_go_on(settings: KafkaSettings) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=2) for name in ("good", "bad")))
    a, b = payload({"k": "a"}), payload({"k": "b"})
    with running(settings) as service:
        assert service.call("PUT", f"/v1/merges/{merge}", {"partitions": 2})[0] == 200
        for name in ("good", "bad"):
            assert service.call("PUT", f"/v1/merges/{merge}/inputs/{name}", {"topic": f"{merge}.{name}"})[0] == 200
        append(settings, f"{merge}.bad", [ins(a, 5, 8), stb(10), ins(b, 6, 9)])
        for partition in (0, 1):
            append(settings, f"{merge}.good", [ins(a, 5, 8), ins(b, 12, 20), stb(30)], partition)
        path = f"/v1/merges/{merge}/inputs/bad"
        until(lambda: (service.call("GET", path)[1]["lanes"] or [None])[0] is not None, "bad is seen")
        until(lambda: service.call("GET", path)[1]["lanes"][0]["membership"] == "gap", "bad is stopped")
        assert "Insert" in service.call("GET", path)[1]["lanes"][0]["reason"]
        until(lambda: all(merged(settings, f"{merge}.merged", p)[-1:] == [stb(30)] for p in (0, 1)), "good goes on")


def test_who_may_call_and_what_is_refused(settings: KafkaSettings) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    topic = f"{merge}.r1"
    TopicAdmin(settings).ensure(TopicSpec(topic, partitions=3))
    with running(settings) as service:
        path = f"/v1/merges/{merge}"
        assert service.call("PUT", path, {}, token="wrong")[0] == 401
        assert service.call("PUT", path, {}, token="reader")[0] == 403
        assert service.call("GET", "/v1/merges", token="reader")[0] == 200
        assert service.call("GET", path)[1]["code"] == "not_found"
        assert service.call("PUT", path, {"partitions": 0})[1]["code"] == "invalid"
        assert service.call("PUT", path, {"policy": "sometimes"})[1]["code"] == "invalid"
        assert service.call("PUT", "/v1/merges/Not-An-Id", {})[0] == 422
        assert service.call("PUT", path, {})[0] == 200
        assert service.call("PUT", path, {})[0] == 200
        assert service.call("PUT", path, {"partitions": 2})[1]["code"] == "conflict"
        assert service.call("PUT", f"{path}/inputs/r1", {"topic": "no.such.topic"})[1]["code"] == "missing_topic"
        assert service.call("PUT", f"{path}/inputs/r1", {"topic": topic})[1]["code"] == "conflict"
        assert service.call("DELETE", f"{path}/inputs/r1")[0] == 404
        assert service.call("GET", path)[1]["lanes"][0]["state"] == "stalled"
        assert service.call("DELETE", path)[0] == 204
        assert service.call("GET", path)[0] == 404
