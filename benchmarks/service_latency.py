"""How long an element takes, to an input topic and through the merge to the merged topic.

One producer writes each element to all inputs at the same moment; a reader of committed records notes when it arrives.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import quantiles
from typing import Any, NamedTuple

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import calm
from deploy.local import ports
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec

Row = dict[str, Any]

INPUTS = 3
START_MS = 1_700_000_000_000


class Load(NamedTuple):
    """How an input is written: so many elements a second, together so often."""

    name: str
    rate: int
    every_seconds: float


BATCHES = Load("batches", 2_000, 0.1)
"""As replicas write: what a batch gives, to all lanes at once. A heartbeat comes every 100 ms."""

TRICKLE = Load("one by one", 200, 0.005)
"""About half of what one small broker takes beside the transactions: a producer asks it once for each partition that it
has records for, and every answer ends a fetch. At 500 with four lanes records waited before it for a second."""

LINGER_MS = 5
"""How long the producer collects."""


def latency(settings: KafkaSettings, lanes: int, load: Load, *, seconds: float, rounds: int) -> Row:
    """Measure some calm rounds, after one that warms up the broker, and return the one in the middle."""
    numbers = itertools.count()
    with _service(settings) as api:

        def one() -> Row:
            return _round(settings, api, f"l{lanes}-{load.rate}-{next(numbers)}", lanes, load, seconds=seconds)

        one()
        row, figures = calm.middle(calm.rounds(one, rounds), lambda row: float(row["added_p50_ms"]))
    return {**row, "rounds": figures}


def _round(settings: KafkaSettings, api: httpx.Client, name: str, lanes: int, load: Load, *, seconds: float) -> Row:
    topics = [f"{name}.r{number}" for number in range(INPUTS)]
    TopicAdmin(settings).ensure(*(TopicSpec(topic, lanes) for topic in topics))
    _ok(api.put(f"/v1/merges/{name}", json={"partitions": lanes, "algorithm": "R3"}))
    for number, topic in enumerate(topics):
        _ok(api.put(f"/v1/merges/{name}/inputs/r{number}", json={"topic": topic}))
    _send(settings, topics, lanes, load, 4 * load.every_seconds)  # a lane begins when an input has said something
    wait_until(lambda: _is_running(api, name), "the merge runs")
    direct, merged = _Arrivals(settings, topics[0], lanes), _Arrivals(settings, f"{name}.merged", lanes)
    sent = _send(settings, topics, lanes, load, seconds)
    wait_until(lambda: len(merged.seconds) >= sent * 0.99, "the elements arrive")
    _ok(api.delete(f"/v1/merges/{name}"))
    row: Row = {"what": "latency", "load": load.name, "lanes": lanes, "rate": load.rate, "elements": sent}
    for which, found in {"direct": direct.stop(), "merged": merged.stop()}.items():
        cuts = quantiles(found, n=100)
        row |= {f"{which}_p50_ms": round(cuts[49] * 1000, 1), f"{which}_p99_ms": round(cuts[98] * 1000, 1)}
    row["added_p50_ms"] = round(row["merged_p50_ms"] - row["direct_p50_ms"], 1)
    row["added_p99_ms"] = round(row["merged_p99_ms"] - row["direct_p99_ms"], 1)
    return row


def _send(settings: KafkaSettings, topics: Sequence[str], lanes: int, load: Load, seconds: float) -> int:
    """Write every element to all inputs at the same moment, each to the next lane; stables follow now and then."""
    # A producer for each input, as replicas have: a broker takes the requests of one connection one after the other.
    producers = [Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": LINGER_MS}) for _ in topics]
    began = time.perf_counter()
    sent = 0
    for turn in range(max(lanes, round(seconds / load.every_seconds))):
        while (left := began + turn * load.every_seconds - time.perf_counter()) > 0:
            time.sleep(min(left, 0.0005))
        vs = START_MS + int((time.time() - 1_700_000_000) * 1000)
        for _ in range(max(1, round(load.rate * load.every_seconds))):
            payload = b'{"id":%d,"sent":"%.6f"}' % (sent, time.time())
            value = b'{"kind":"insert","payload":%b,"vs":%d,"ve":%d}' % (payload, vs, vs + 100)
            for topic, producer in zip(topics, producers, strict=True):
                producer.produce(topic, value, partition=sent % lanes)
            sent += 1
        for topic, producer in zip(topics, producers, strict=True):
            if turn % 20 == 19 or load is BATCHES:
                for lane in range(lanes):
                    producer.produce(topic, b'{"kind":"stable","vc":%d}' % (vs - 50), partition=lane)
            producer.poll(0)
    for producer in producers:
        producer.flush()
    return sent


class _Arrivals(threading.Thread):
    """Reads a topic from its end and notes how old each insert that is sent from now on is when it arrives."""

    def __init__(self, settings: KafkaSettings, topic: str, lanes: int) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self._began = time.time()  # what was sent before, for the merge to begin, may still be on its way
        self._stop_now = threading.Event()
        self._consumer = Consumer(settings.consumer("arrivals"))
        ends = [self._consumer.get_watermark_offsets(TopicPartition(topic, lane))[1] for lane in range(lanes)]
        self._consumer.assign([TopicPartition(topic, lane, end) for lane, end in enumerate(ends)])
        self.start()

    def run(self) -> None:
        while not self._stop_now.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            value = message.value() or b""
            if b'"sent":"' in value and (sent := float(value.split(b'"sent":"')[1].split(b'"')[0])) >= self._began:
                self.seconds.append(time.time() - sent)

    def stop(self) -> list[float]:
        self._stop_now.set()
        self.join()
        self._consumer.close()
        return self.seconds


@contextmanager
def _service(settings: KafkaSettings) -> Iterator[httpx.Client]:
    """Run the service as a process of its own."""
    (port,) = ports.choose(1)
    token = uuid.uuid4().hex
    command = [sys.executable, "-m", "services.merge", "--bootstrap-servers", settings.bootstrap_servers]
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        env={**os.environ, "LMERGE_ADMIN_TOKEN": token},
        stderr=subprocess.DEVNULL,
    )
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=30) as api:
            wait_until(lambda: _answers(api), "the service is ready")
            yield api
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(api: httpx.Client) -> bool:
    try:
        return api.get("/readyz").is_success
    except httpx.TransportError:
        return False


def _is_running(api: httpx.Client, name: str) -> bool:
    observed = _ok(api.get(f"/v1/merges/{name}")).json()["observed"]
    return all(lane["state"] == "running" and len(lane["inputs"]) == INPUTS for lane in observed["lanes"])


def _ok(response: httpx.Response) -> httpx.Response:
    assert response.is_success, response.text
    return response


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait for something, up to a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
