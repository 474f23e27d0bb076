"""The loop: read all inputs of all lanes, merge, commit, again. The only thread that touches lanes.

    step:  follow what is wanted  ->  poll  ->  each lane takes its records  ->  each lane commits

A lane whose transaction fails is thrown away and taken over anew, from what is committed. One input that is silent,
slow or gone never holds the others: a poll returns whatever is there.
"""

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lmerge import Hello
from lmerge.codec import decode
from lmerge.errors import MalformedRecord
from lmerge.kafka import (
    BrokerError,
    KafkaSettings,
    PartitionReader,
    RebuildError,
    Record,
    RetryError,
    TailReader,
    TopicAdmin,
    TopicSpec,
)
from services.merge import desired as decide
from services.merge.control import Control
from services.merge.definitions import Desired
from services.merge.lane_runner import LaneRunner
from services.merge.metrics import Metrics
from services.merge.status import LaneStatus, lane_status

POLL_SECONDS: Final = 0.02
"""How long a step waits for records, and so about how often a lane commits: p50 latency is half of it plus 6 ms."""

STATE_CONFIG: Final = {
    "cleanup.policy": "compact",
    # Small segments: a successor reads what is not compacted yet, and by default that is up to a week.
    "segment.bytes": "1048576",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.1",
}


class _Running:
    """One merge that this process runs: its lanes, and the reader of their inputs."""

    def __init__(self, settings: KafkaSettings, name: str, desired: Desired) -> None:
        self.name = name
        self.reader = PartitionReader(settings)
        self.lanes = [LaneRunner(settings, name, p, desired) for p in range(desired.definition.partitions)]

    def follow(self, desired: Desired) -> None:
        """Attach and detach inputs, and read what the lanes want to read."""
        for runner in self.lanes:
            runner.reconcile(desired.inputs)
        self.read_on()

    def read_on(self) -> None:
        """Let the reader have exactly the partitions that the lanes want."""
        wanted = {
            where: offset for runner in self.lanes for where, offset in runner.lane.reads(runner.partition).items()
        }
        gone = [where for where in self.reader.partitions if where not in wanted]
        if gone:
            self.reader.remove(*gone)
        missing = {where: offset for where, offset in wanted.items() if where not in self.reader.partitions}
        if missing:
            self.reader.add(missing)

    def close(self) -> None:
        self.reader.close()
        for runner in self.lanes:
            runner.close()


class MergeLoop:
    """Runs every merge that is wanted.

    Args:
        settings: the cluster.
        control: the desired state.
        metrics: what to count.
    """

    def __init__(self, settings: KafkaSettings, control: Control, metrics: Metrics) -> None:
        self._settings = settings
        self._control = control
        self._metrics = metrics
        self._admin = TopicAdmin(settings)
        self._running: dict[str, _Running] = {}
        self._followed: Mapping[str, Desired] = {}
        self._stop = threading.Event()
        self.is_running = False
        self.status: Mapping[str, list[LaneStatus]] = MappingProxyType({})
        """What is committed, by merge and lane; replaced as a whole, so that any thread may read it."""

    def stop(self) -> None:
        """Ask the loop to end after the present step; callable from anywhere."""
        self._stop.set()

    def run(self) -> None:
        """Go on until `stop`.

        Raises:
            BrokerError: one that no repetition helps against, such as being fenced by another process.
        """
        self.is_running = True
        try:
            while not self._stop.is_set():
                self._step()
        finally:
            self.is_running = False
            for name in list(self._running):
                self._end(name)

    def _step(self) -> None:
        self._follow()
        if not self._running:
            self._stop.wait(POLL_SECONDS)
        for name, running in list(self._running.items()):
            try:
                self._advance(running)
            except (RebuildError, RetryError):
                self._end(name)  # what was not committed comes again: the next step takes the lanes over anew
                self._followed = {}
        self._show()

    def _follow(self) -> None:
        desired = self._control.desired
        if desired is self._followed:
            return
        for name in [name for name in self._running if name not in desired]:
            self._end(name)
        for name in desired:
            self._follow_merge(name)
        self._followed = desired if all(name in self._running for name in self._control.desired) else {}

    def _follow_merge(self, name: str) -> None:
        desired = self._control.desired[name]
        if name not in self._running:
            self._make_topics(name, desired)
            if not desired.origin_fixed and not self._fix_origin(name, desired):
                return  # no input has said anything yet
            self._running[name] = _Running(self._settings, name, self._control.desired[name])
        self._running[name].follow(self._control.desired[name])

    def _make_topics(self, name: str, desired: Desired) -> None:
        definition = desired.definition
        self._admin.ensure(
            TopicSpec(definition.merged(name), definition.partitions),
            TopicSpec(definition.state(name), definition.partitions, config=STATE_CONFIG),
        )

    def _fix_origin(self, name: str, desired: Desired) -> bool:
        """Let the merge begin where its first input does (RS 5.6); False while that has not said anything."""
        with TailReader(self._settings) as reader:
            for attachment in desired.inputs.values():
                definition = attachment.definition
                origin = definition.joins_at
                if origin is None:
                    low = reader.watermarks(definition.topic, 0).low
                    first = next(iter(reader.read_range(definition.topic, 0, start=low, batch_records=1)), None)
                    if first is None:
                        continue
                    origin = _joins_at(first[0])
                self._control.change(name, lambda now, origin=origin: decide.fix_origin(now, name, origin))  # type: ignore[misc]
                return True
        return False

    def _advance(self, running: _Running) -> None:
        """Read once and commit once."""
        batches: dict[tuple[int, str], list[Record]] = {}
        try:
            records = running.reader.poll(POLL_SECONDS)
        except BrokerError as error:
            self._note_gaps(running, error)
            records = []
        for record in records:
            batches.setdefault((record.partition, record.topic), []).append(record)
        for runner in running.lanes:
            mine = {topic: batch for (partition, topic), batch in batches.items() if partition == runner.partition}
            runner.take(mine, now_ms=time.time_ns() // 1_000_000)
            began = time.perf_counter()
            if runner.commit(control_offset=self._control.offset):
                self._metrics.commit_seconds.observe(time.perf_counter() - began)
                self._metrics.transactions.labels(running.name, str(runner.partition)).inc()
            self._count(running.name, runner, mine)
        running.read_on()

    def _count(self, merge: str, runner: LaneRunner, records: Mapping[str, list[Record]]) -> None:
        lane = str(runner.partition)
        for name, state in runner.lane.inputs.items():
            if state.topic in records:
                self._metrics.elements_in.labels(merge, lane, name).inc(len(records[state.topic]))
        stats = runner.lane.stats()
        self._metrics.live_nodes.labels(merge, lane).set(stats.nodes)
        self._metrics.divergences.labels(merge, lane).set(stats.divergences)

    def _note_gaps(self, running: _Running, error: BrokerError) -> None:
        """Stop the inputs whose partitions have failed, and no other; a broker that is away for a moment is no gap."""
        failed = running.reader.failed
        if not failed:
            raise error
        for runner in running.lanes:
            for name, state in list(runner.lane.inputs.items()):
                reason = failed.get((state.topic, runner.partition))
                if reason is not None and not state.verdict:
                    runner.lane.gap(name, str(reason))

    def _show(self) -> None:
        shown = {name: [lane_status(r.committed) for r in running.lanes] for name, running in self._running.items()}
        for name, lanes in shown.items():
            for partition, status in enumerate(lanes):
                self._metrics.show(name, partition, status)
        self.status = MappingProxyType(shown)

    def _end(self, name: str) -> None:
        self._running.pop(name).close()


def _joins_at(record: Record) -> int | None:
    try:
        element = decode(record.value)
    except MalformedRecord:
        return None
    return element.joins_at if isinstance(element, Hello) else None
