"""`make bench-service`: the merge service against a plain copier, on one broker of its own.

Throughput: three inputs are full before the clock starts. The copier consumes all three and produces what it read to
one topic, with the same client settings. The service merges them. Both are measured by the processor time of the
threads that do the work (librdkafka's own threads are in the process's time). Latency: one producer writes each element
to all inputs at the same moment; a reader of committed records notes when it arrives, on an input and on the merged
topic. Every ratio is from one run; lines and a plot are left under `benchmarks/results/`.

    python -m benchmarks.service             everything, some minutes
    python -m benchmarks.service --quick     small sizes; bars are shown, not judged
    python -m benchmarks.service --profile   the loop's profile as well
"""

import argparse
import cProfile
import io
import json
import os
import pstats
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.core import RESULTS, Bar
from benchmarks.service_plot import draw
from deploy.local import LocalStack, ports
from lmerge import INFINITY, Adjust, Element, Insert, Stable
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from services.merge import desired as decide
from services.merge import loop as loop_module
from services.merge.control import Control
from services.merge.definitions import Desired, InputDefinition, MergeDefinition
from services.merge.loop import MergeLoop, Pace
from services.merge.metrics import Metrics
from services.merge.supervisor import Supervisor

Row = dict[str, Any]

INPUTS = 3
THREAD = "thread_seconds_per_million"
START_MS = 1_700_000_000_000
BARS = {"R0": 0.5, "R1": 0.5, "R2": 0.5, "R3": 0.35, "R4": 0.35}
MAX_RATE = 500
"""Elements a second and input in the latency runs: what one Python process can send and time on two shared cores. With
2,000 they waited in it for seconds, and the direct path was as slow as the merged one."""


def elements(algorithm: str, seed: int, count: int) -> Iterator[Element]:
    """Give one input's stream: 110 bytes an element, a stable after every 100, and what the algorithm is for.

    R3 and R4 get disorder within 100 elements and one adjust for ten inserts, different on every input.
    """
    facts, order = Random(1), Random(seed)
    batch: list[Element] = []
    for n in range(count):
        vs = START_MS + 10 * n if algorithm == "R0" else START_MS + n // 10 * 100
        payload = b'{"auction":%d,"count":%d,"plan":"abcdefgh"}' % (n, facts.randrange(1_000))
        end = vs + 10_000 + facts.randrange(50)
        if algorithm in ("R3", "R4") and n % 10 == 0:
            batch += [Insert(payload, vs, end + 1_000), Adjust(payload, vs, end + 1_000, end)]
        else:
            batch.append(Insert(payload, vs, end))
        if n % 100 == 99:
            if algorithm in ("R3", "R4"):
                inserts = [element for element in batch if isinstance(element, Insert)]
                order.shuffle(inserts)
                batch = [*inserts, *(element for element in batch if isinstance(element, Adjust))]
            yield from batch
            yield Stable(vs)
            batch = []
    yield from batch
    yield Stable(INFINITY)


class Bench:
    """One broker with what is measured on it."""

    def __init__(self, servers: str) -> None:
        self.settings = KafkaSettings(servers)
        self._admin = TopicAdmin(self.settings)
        self._producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})

    def make(self, *topics: str, partitions: int = 1) -> None:
        """Make topics."""
        self._admin.ensure(*(TopicSpec(topic, partitions) for topic in topics))

    def fill(self, topic: str, values: Sequence[bytes]) -> None:
        """Write values to a topic."""
        for first in range(0, len(values), 1_000):
            batch: list[Any] = [{"value": value} for value in values[first : first + 1_000]]
            self._producer.produce_batch(topic, batch, partition=0)
        self._producer.flush()

    def copy(self, topics: Sequence[str], target: str, count: int) -> Row:
        """Consume all topics and produce what they hold to one: the least that any merge has to do."""
        consumer = Consumer(self.settings.consumer("copier"))
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        producer = Producer({"bootstrap.servers": self.settings.bootstrap_servers, "enable.idempotence": True})
        copied = 0
        wall, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
        while copied < count:
            first = consumer.poll(0.1)
            if first is None:
                continue
            messages = [first, *consumer.consume(999, 0)]
            batch: list[Any] = [{"value": each.value()} for each in messages if each.error() is None]
            copied += len(batch)
            producer.produce_batch(target, batch, partition=0)
            producer.poll(0)
            if len(producer) > 50_000:
                producer.flush()
        producer.flush()
        used = _used(copied, wall, process, time.thread_time() - thread)
        consumer.close()
        return {"what": "copier", **used}

    def merge(self, algorithm: str, count: int, rounds: int, profile: cProfile.Profile | None = None) -> list[Row]:
        """Measure the copier and the service on the same inputs, in turns; of each the round in the middle.

        On a shared machine the same work takes up to twice as long from one second to the next, and the copier's rounds
        are short: its best would be compared with an average.
        """
        streams = [encode_batch(elements(algorithm, number, count)) for number in range(INPUTS)]
        both = [self._round(f"{algorithm.lower()}-{number}", algorithm, streams, profile) for number in range(rounds)]
        rounds_of = (sorted(rows, key=lambda row: float(row[THREAD])) for rows in zip(*both, strict=True))
        return [{"algorithm": algorithm, **rows[len(rows) // 2]} for rows in rounds_of]

    def _round(
        self, name: str, algorithm: str, streams: Sequence[Sequence[bytes]], profile: cProfile.Profile | None
    ) -> tuple[Row, Row]:
        topics = [f"{name}.r{number}" for number in range(INPUTS)]
        self.make(*topics, f"{name}.copy")
        total = sum(map(len, streams))
        with _service(self.settings, name, algorithm, topics) as (control, loop):
            for topic, values in zip(topics, streams, strict=True):
                self.fill(topic, values)
            copier = self.copy(topics, f"{name}.copy", total)
            before = {each.ident: _cpu(each) for each in threading.enumerate()}
            wall, process = time.perf_counter(), time.process_time()
            if profile is not None:
                _profiled.append(profile)
            _change(control, name, lambda now: _released(now, name))
            _wait(lambda: _is_done(loop), "all is merged")
            working = [each for each in threading.enumerate() if each.name.startswith(("merge-", "commit-"))]
            thread = sum(_cpu(each) - before.get(each.ident, 0.0) for each in working)
            return copier, {"what": "merge", **_used(total, wall, process, thread)}

    def latency(self, lanes: int, rate: int, seconds: float) -> Row:
        """Measure how long an element takes, to an input topic and through the merge to the merged topic."""
        name = f"l{lanes}"
        topics = [f"{name}.r{number}" for number in range(INPUTS)]
        self.make(*topics, partitions=lanes)
        with _process(self.settings) as api:
            _ok(api.put(f"/v1/merges/{name}", json={"partitions": lanes, "algorithm": "R3"}))
            for number, topic in enumerate(topics):
                _ok(api.put(f"/v1/merges/{name}/inputs/r{number}", json={"topic": topic}))
            direct = _Arrivals(self.settings, topics[0], lanes)
            self._send(topics, lanes, 1, 0.2)  # the merge begins when an input has said something
            _wait(lambda: _is_running(api, name), "the merge runs")
            merged = _Arrivals(self.settings, f"{name}.merged", lanes)
            sent = self._send(topics, lanes, rate, seconds)
            _wait(lambda: len(merged.seconds) >= sent * 0.99, "the elements arrive")
            _ok(api.delete(f"/v1/merges/{name}"))
            times = {"direct": direct.stop(), "merged": merged.stop()}
        row: Row = {"what": "latency", "lanes": lanes, "rate": rate, "elements": sent}
        for which, found in times.items():
            cuts = quantiles(found, n=100)
            row |= {f"{which}_p50_ms": round(cuts[49] * 1000, 1), f"{which}_p99_ms": round(cuts[98] * 1000, 1)}
        row["added_p50_ms"] = round(row["merged_p50_ms"] - row["direct_p50_ms"], 1)
        row["added_p99_ms"] = round(row["merged_p99_ms"] - row["direct_p99_ms"], 1)
        return row

    def _send(self, topics: Sequence[str], lanes: int, rate: int, seconds: float) -> int:
        producer = Producer({"bootstrap.servers": self.settings.bootstrap_servers, "linger.ms": 0})
        began = time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - began) < seconds:
            if sent >= now * rate + 1:
                time.sleep(0.0005)
                continue
            payload = b'{"id":%d,"sent":"%.6f"}' % (sent, time.time())
            vs = START_MS + int((time.time() - 1_700_000_000) * 1000)
            lane = sent % lanes
            for topic in topics:
                value = b'{"kind":"insert","payload":%b,"vs":%d,"ve":%d}' % (payload, vs, vs + 100)
                producer.produce(topic, value, partition=lane)
                if sent // lanes % 20 == 19:
                    producer.produce(topic, b'{"kind":"stable","vc":%d}' % (vs - 50), partition=lane)
            producer.poll(0)
            sent += 1
        producer.flush()
        return sent


class _Arrivals(threading.Thread):
    """Reads a topic from its end and notes how old each insert is when it arrives."""

    def __init__(self, settings: KafkaSettings, topic: str, lanes: int) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
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
            if b'"sent":"' in value:
                self.seconds.append(time.time() - float(value.split(b'"sent":"')[1].split(b'"')[0]))

    def stop(self) -> list[float]:
        self._stop_now.set()
        self.join()
        self._consumer.close()
        return self.seconds


_profiled: list[cProfile.Profile] = []


def _used(count: int, wall: float, process: float, thread: float) -> Row:
    """Return what a run has used since these clocks."""
    return {
        "elements": count,
        "wall_per_second": round(count / (time.perf_counter() - wall)),
        "process_seconds_per_million": round((time.process_time() - process) / count * 1e6, 2),
        THREAD: round(thread / count * 1e6, 2),
    }


def _cpu(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _change(control: Control, name: str, decision: Callable[[Any], Any]) -> None:
    control.change(name, decision, by="benchmark", what="set up")


def _released(now: Desired | None, name: str) -> Desired | None:
    """Let all inputs go at the same moment: they are replicas of one query, and as fast as each other."""
    for number in range(INPUTS):
        now = decide.set_paused(now, name, f"r{number}", paused=False)
    return now


@contextmanager
def _service(
    settings: KafkaSettings, name: str, algorithm: str, topics: Sequence[str]
) -> Iterator[tuple[Control, Callable[[], MergeLoop]]]:
    """Run the service in this process, with the inputs attached to empty topics and paused."""
    control, metrics = Control(settings), Metrics()
    definition = MergeDefinition.model_validate({"algorithm": algorithm})
    _change(control, name, lambda now: decide.put_merge(now, name, definition, lambda: uuid.uuid4().hex))
    _change(control, name, lambda now: decide.fix_origin(now, name, None, ""))
    for number, topic in enumerate(topics):
        attach = InputDefinition(topic=topic)
        _change(control, name, lambda now, n=number, d=attach: decide.put_input(now, name, f"r{n}", d, lambda: f"a{n}"))  # type: ignore[misc]
        _change(control, name, lambda now, n=number: decide.set_paused(now, name, f"r{n}", paused=True))  # type: ignore[misc]
    supervisor = Supervisor(settings, control, metrics, owner="benchmark", pace=Pace())
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    def loop() -> MergeLoop:
        (found,) = [each for each in supervisor.loops if each.name == name]
        return found

    try:
        _wait(lambda: bool(supervisor.loops), "the loop runs")
        _wait(lambda: any(len(each.inputs) == INPUTS for each in loop().records.values()), "the inputs are attached")
        yield control, loop
    finally:
        _change(control, name, lambda _: None)
        supervisor.stop()
        thread.join()
        control.close()


def _is_done(loop: Callable[[], MergeLoop]) -> bool:
    records = loop().records
    return bool(records) and all(each.own_stable == INFINITY for each in records[0].inputs.values())


@contextmanager
def _process(settings: KafkaSettings) -> Iterator[httpx.Client]:
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
            _wait(lambda: _answers(api), "the service is ready")
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


def _wait(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


@contextmanager
def _profiling() -> Iterator[None]:
    """Let a merge's loop be profiled while a profile waits for it."""
    step = loop_module.MergeLoop._step  # noqa: SLF001

    def profiled(self: MergeLoop, *given: Any) -> None:
        if not _profiled:
            step(self, *given)
            return
        _profiled[-1].enable()
        try:
            step(self, *given)
        finally:
            _profiled[-1].disable()

    loop_module.MergeLoop._step = profiled  # type: ignore[method-assign,assignment]  # noqa: SLF001
    try:
        yield
    finally:
        loop_module.MergeLoop._step = step  # type: ignore[method-assign]  # noqa: SLF001


def _write_profile(bench: Bench, count: int) -> None:
    with _profiling():
        profile = cProfile.Profile()
        bench.merge("R3", count, 1, profile)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(25)
    (RESULTS / "profile-service-R3.txt").write_text(text.getvalue())


def run(*, quick: bool, profile: bool, say: Callable[[str], object] = print) -> list[Bar]:
    """Measure everything, and return the bars."""
    rows: list[Row] = []
    bars: list[Bar] = []

    def note(row: Row) -> Row:
        rows.append(row)
        say(json.dumps(row))
        return row

    with LocalStack() as stack:
        bench = Bench(stack.bootstrap_servers)
        for algorithm, bar in BARS.items():
            copier, merge = map(note, bench.merge(algorithm, 20_000 if quick else 200_000, 1 if quick else 5))
            ratio = copier[THREAD] / merge[THREAD]
            bars.append(Bar(f"{algorithm}: thread CPU of the copier to that of the loop", round(ratio, 2), bar))
        for lanes in (1, 4, 16):
            row = note(bench.latency(lanes, 200 if quick else MAX_RATE, 2 if quick else 10))
            if lanes < 16:
                bars.append(Bar(f"{lanes} lanes: latency added, p50 ms", row["added_p50_ms"], at_most=30.0))
        if profile:
            _write_profile(Bench(stack.bootstrap_servers), 50_000)
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        lines = [*rows, *({"bar": bar.claim, "value": bar.value, "met": bar.met} for bar in bars)]
        (RESULTS / "service.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        draw(rows, RESULTS / "service.png")
    return bars


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes; bars are shown, not judged")
    parser.add_argument("--profile", action="store_true", help="write the loop's profile to benchmarks/results/")
    options = parser.parse_args(arguments)
    bars = run(quick=options.quick, profile=options.profile)
    for bar in bars:
        print(json.dumps({"bar": bar.claim, "value": bar.value, "met": bar.met}))
    return 0 if options.quick or all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    if Path.cwd() != Path(__file__).parents[1]:
        os.chdir(Path(__file__).parents[1])
    sys.exit(main())
