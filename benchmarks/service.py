"""`make bench-service`: the merge service against a plain copier, on one broker of its own.

Throughput: three inputs are full before the clock starts. The copier consumes all three and produces what it read to
one topic, with the same client settings. The service merges them. Both are measured by the processor time of the
threads that do the work (librdkafka's own threads are in the process's time). Latency: see
service_latency.py. Every ratio is from one run, of rounds that nobody disturbed (calm.py); lines and a plot are left
under `benchmarks/results/`.

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
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import calm
from benchmarks.core import RESULTS, Bar
from benchmarks.service_latency import BATCHES, INPUTS, TRICKLE, Row, half, latency, most, wait_until
from benchmarks.service_plot import draw
from deploy.local import LocalStack
from lmerge import INFINITY, Adjust, Element, Insert, Stable
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from services.merge import desired as decide
from services.merge import loop as loop_module
from services.merge.control import Control
from services.merge.definitions import Desired, InputDefinition, MergeDefinition
from services.merge.loop import MergeLoop
from services.merge.metrics import Metrics
from services.merge.pace import Pace
from services.merge.supervisor import Supervisor

START_MS = 1_700_000_000_000
THREAD = "thread_seconds_per_million"
ROUNDS = 9
"""Of the copier and the service, four seconds each: the ratio of one is 0.75 to 1.25 of that of the middle one."""

BARS = {"R0": 0.5, "R1": 0.5, "R2": 0.5, "R3": 0.35, "R4": 0.35}


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
        """Measure the copier and the service on the same inputs, one right after the other; give the middle round.

        On a shared machine the same work takes up to twice as long from one second to the next. So a ratio is of one
        round, and the round is the one in the middle of some calm ones.
        """
        streams = [encode_batch(elements(algorithm, number, count)) for number in range(INPUTS)]
        one = partial(self._round, algorithm, streams, profile)
        pair, figures = calm.middle(calm.rounds(one, rounds), _ratio)
        return [{"algorithm": algorithm, "rounds": figures, **row} for row in pair]

    def _round(
        self, algorithm: str, streams: Sequence[Sequence[bytes]], profile: cProfile.Profile | None
    ) -> tuple[Row, Row]:
        name = f"{algorithm.lower()}-{uuid.uuid4().hex[:6]}"
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
            wait_until(lambda: _is_done(loop), "all is merged")
            working = [each for each in threading.enumerate() if each.name.startswith(("merge-", "commit-"))]
            thread = sum(_cpu(each) - before.get(each.ident, 0.0) for each in working)
            merge: Row = {"what": "merge", **_used(total, wall, process, thread)}
        # The broker is to have as little to do in a late round as in an early one.
        self._admin.delete(*topics, f"{name}.copy", *(f"{name}.{role}" for role in ("merged", "state", "feedback")))
        return copier, merge


_profiled: list[cProfile.Profile] = []


def _ratio(pair: Sequence[Row]) -> float:
    """Return the processor time of the copier's thread against that of the merge's."""
    copier, merge = pair
    return round(float(copier[THREAD]) / float(merge[THREAD]), 3)


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
        wait_until(lambda: bool(supervisor.loops), "the loop runs")
        wait_until(
            lambda: any(len(each.inputs) == INPUTS for each in loop().records.values()), "the inputs are attached"
        )
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

    with LocalStack(steady=not quick) as stack:
        bench = Bench(stack.bootstrap_servers)
        for algorithm, bar in BARS.items():
            pair = [*map(note, bench.merge(algorithm, 20_000 if quick else 200_000, 1 if quick else ROUNDS))]
            bars.append(Bar(f"{algorithm}: thread CPU of the copier to that of the loop", _ratio(pair), bar))
        size = {"seconds": 2, "rounds": 1} if quick else {"seconds": 4, "rounds": 3}
        for lanes in (1, 4, 16):
            for load in (half(note(most(bench.settings, lanes, **size))), BATCHES, TRICKLE):
                row = note(latency(bench.settings, lanes, load, **size))
                if lanes < 16:
                    claim = f"{lanes} lanes, {load.name}: latency added, p50 ms"
                    bars.append(Bar(claim, row["added_p50_ms"], at_most=30.0))
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
