"""How long an element takes, to an input topic and through the merge to the merged topic.

Each element is written to all inputs at the same moment; a reader of committed records notes when it arrives.
The load is half of the most that comes through with so many lanes (`most`), or a fixed one.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any, NamedTuple

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import calm
from deploy.local import ports
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec

Row = dict[str, Any]

INPUTS = 3


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

PORTION = 500
"""So many elements are written together while the most is measured that comes through, and at half of it."""

STABLE_SECONDS = 0.1
"""How often a stable follows them, as a heartbeat does."""

ON_THEIR_WAY = 3_000
"""So many elements are ahead of the merged topic while the most is measured that comes through: less than come in a
second, since a merge commits a backlog less often."""

LINGER_MS = 5
"""How long the producer collects."""


def most(settings: KafkaSettings, lanes: int, *, seconds: float, rounds: int) -> Row:
    """Measure how many elements a second come through, with three inputs, while there are always more to be merged.

    That is what the whole machine takes, with its broker, who writes and who reads.
    """

    def one(world: _World) -> Row:
        began = time.perf_counter()
        ahead = []
        while time.perf_counter() - began < seconds:
            ahead.append(world.inputs.sent - len(world.merged.seconds))
            if ahead[-1] < ON_THEIR_WAY:
                world.inputs.write(PORTION)
            else:
                time.sleep(0.0005)
        per_second = round(len(world.merged.seconds) / seconds)
        row: Row = {"what": "most", "lanes": lanes, "per_second": per_second, "ahead": round(median(ahead))}
        world.inputs.flush()
        world.wait_for_all()
        return row

    return _measure(settings, lanes, one, rounds=rounds, figure="per_second")


def half(found: Row) -> Load:
    """Return half of the most that was measured: the same portions, half as often."""
    rate = found["per_second"] // 2
    return Load("half load", rate, PORTION / rate)


def latency(settings: KafkaSettings, lanes: int, load: Load, *, seconds: float, rounds: int) -> Row:
    """Measure how old elements are when they are seen in an input topic, and in the merged one."""

    def one(world: _World) -> Row:
        per_second = _send(world.inputs, load, seconds)
        world.wait_for_all()
        row: Row = {
            "what": "latency",
            "load": load.name,
            "lanes": lanes,
            "rate": load.rate,
            "sent_per_second": per_second,
        }
        for which, found in {"direct": world.direct, "merged": world.merged}.items():
            cuts = quantiles(found.seconds, n=100)
            row |= {f"{which}_p50_ms": round(cuts[49] * 1000, 1), f"{which}_p99_ms": round(cuts[98] * 1000, 1)}
        row["added_p50_ms"] = round(row["merged_p50_ms"] - row["direct_p50_ms"], 1)
        row["added_p99_ms"] = round(row["merged_p99_ms"] - row["direct_p99_ms"], 1)
        return row

    return _measure(settings, lanes, one, rounds=rounds, figure="added_p50_ms")


def _measure(settings: KafkaSettings, lanes: int, one: "Callable[[_World], Row]", *, rounds: int, figure: str) -> Row:
    """Measure some calm rounds, after one that warms up the broker, and return the one in the middle."""
    with _service(settings) as api:

        def work() -> Row:
            with _world(settings, api, lanes) as world:
                return one(world)

        work()
        row, figures = calm.middle(calm.rounds(work, rounds), lambda row: float(row[figure]))
    return {**row, "rounds": figures}


class _World(NamedTuple):
    """A merge that runs, who writes its inputs, and who reads one of them and the merged topic."""

    inputs: "_Inputs"
    direct: "_Arrivals"
    merged: "_Arrivals"

    def wait_for_all(self) -> None:
        """Wait until all that was written is seen."""
        for found in (self.direct, self.merged):
            wait_until(lambda found=found: len(found.seconds) >= self.inputs.sent, "the elements arrive")  # type: ignore[misc]


@contextmanager
def _world(settings: KafkaSettings, api: httpx.Client, lanes: int) -> Iterator[_World]:
    name = f"l{lanes}-{uuid.uuid4().hex[:8]}"
    topics = [f"{name}.r{number}" for number in range(INPUTS)]
    TopicAdmin(settings).ensure(*(TopicSpec(topic, lanes) for topic in topics))
    _ok(api.put(f"/v1/merges/{name}", json={"partitions": lanes, "algorithm": "R3"}))
    for number, topic in enumerate(topics):
        _ok(api.put(f"/v1/merges/{name}/inputs/r{number}", json={"topic": topic}))
    first = _Inputs(settings, topics, lanes)
    first.write(lanes)  # a lane begins when an input has said something
    first.flush()
    wait_until(lambda: _is_running(api, name), "the merge runs")
    direct, merged = _Arrivals(settings, topics[0], lanes), _Arrivals(settings, f"{name}.merged", lanes)
    try:
        yield _World(_Inputs(settings, topics, lanes), direct, merged)
    finally:
        direct.stop()
        merged.stop()
    _ok(api.delete(f"/v1/merges/{name}"))


def _send(inputs: "_Inputs", load: Load, seconds: float) -> int:
    """Write elements at the pace of a load; return how many a second it came to."""
    began = time.perf_counter()
    for turn in range(round(seconds / load.every_seconds)):
        while (left := began + turn * load.every_seconds - time.perf_counter()) > 0:
            time.sleep(min(left, 0.0005))
        inputs.write(max(1, round(load.rate * load.every_seconds)))
    inputs.flush()
    return round(inputs.sent / (time.perf_counter() - began))


class _Inputs:
    """Writes every element to all inputs at the same moment, each to the next lane; stables follow now and then."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str], lanes: int) -> None:
        self.sent = 0
        self._lanes = lanes
        self._stable_due = 0.0
        # A producer for each input, as replicas have: a broker takes the requests of a connection one after the other.
        options = {"bootstrap.servers": settings.bootstrap_servers, "linger.ms": LINGER_MS}
        self._producers = [(topic, Producer(options)) for topic in topics]

    def write(self, count: int) -> None:
        """Write so many elements, and stables if it is time for them."""
        now = time.time()
        vs = int(now * 1000)
        lanes: list[list[Any]] = [[] for _ in range(self._lanes)]
        for number in range(self.sent, self.sent + count):
            payload = b'{"id":%d,"sent":"%.6f"}' % (number, time.time())
            value = b'{"kind":"insert","payload":%b,"vs":%d,"ve":%d}' % (payload, vs, vs + 100)
            lanes[number % self._lanes].append({"value": value})
        self.sent += count
        if now >= self._stable_due - 0.01:  # portions that come as often as stables are not quite punctual
            self._stable_due = now + STABLE_SECONDS
            for batch in lanes:
                batch.append({"value": b'{"kind":"stable","vc":%d}' % (vs - 50)})
        for topic, producer in self._producers:
            for lane, batch in enumerate(lanes):
                taken = producer.produce_batch(topic, batch, partition=lane) if batch else 0
                assert taken == len(batch), "the producer's queue is full"
            producer.poll(0)

    def flush(self) -> None:
        """Wait until all is written."""
        for _, producer in self._producers:
            producer.flush()


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
            first = self._consumer.poll(0.1)
            if first is None:
                continue
            messages = [first, *self._consumer.consume(999, 0)]
            now = time.time()
            values = [message.value() or b"" for message in messages if message.error() is None]
            sent = [float(value.split(b'"sent":"')[1].split(b'"')[0]) for value in values if b'"sent":"' in value]
            self.seconds += [now - each for each in sent if each >= self._began]

    def stop(self) -> None:
        self._stop_now.set()
        self.join()
        self._consumer.close()


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
    limits = httpx.Limits(max_keepalive_connections=0)  # a connection that the server is about to end takes no call
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=30, limits=limits
        ) as api:
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
