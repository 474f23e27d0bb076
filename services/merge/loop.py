"""The loop of one merge: read all inputs of the lanes that this process owns, merge, commit, again. One thread.

    step:  which lanes are ours  ->  what is wanted  ->  poll  ->  lanes take their records  ->  lanes commit

The group of the merged topic says which lanes are ours (`GroupMember`); inputs are assigned by hand, so that attach and
detach move no lane. A lane whose transaction fails is thrown away and taken over anew, from what is committed. An input
that is silent, slow, paused or gone never holds the others: a poll returns whatever is there.
"""

import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, NamedTuple

from lmerge import LMergeError
from lmerge.kafka import Batch, BrokerError, Fenced, GroupMember, KafkaSettings, Partition, PartitionReader, TopicAdmin
from lmerge.kafka.group import SESSION_MS
from services.log import Level, log
from services.merge.control import Control
from services.merge.definitions import Desired
from services.merge.lane_record import LaneRecord
from services.merge.lane_runner import LaneRunner
from services.merge.metrics import MergeMetrics
from services.merge.setup import fix_origin, make_topics, topic_ids
from services.merge.topics import group_id

POOL_THREADS: Final = 8
"""Lanes commit at the same time; beyond 8 one broker gains nothing."""

AGAIN_SECONDS: Final = 1.0
"""Pause before a lane, or the whole loop, is begun anew after a failure."""

LOOK_SECONDS: Final = 2.0
"""How often it is looked whether the inputs' topics are still there."""

FENCED_SECONDS: Final = 5.0
"""Pause after being fenced: the group needs a moment to tell us that the lane is another's."""

LEVELS: Final[dict[str, Level]] = {"quarantined": "error", "gap": "error", "divergence": "error"}


class Pace(NamedTuple):
    """How often a process acts."""

    commit_seconds: float = 0.02
    """A lane commits so often if it has anything to: p50 latency is half of it plus 6 ms (kafka-facts B2)."""
    session_ms: int = SESSION_MS
    """After how long without a sign of life another process takes the lanes over."""


class MergeLoop:
    """Runs the lanes of one merge that this process owns.

    Args:
        settings: the cluster.
        control: the desired state.
        metrics: what to count.
        name: the merge.
        owner: the name of this process, for people.
        pace: how often to commit, and when a silent process counts as dead.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        control: Control,
        metrics: MergeMetrics,
        name: str,
        *,
        owner: str,
        pace: Pace,
    ) -> None:
        self.name = name
        self._settings = settings
        self._control = control
        self._metrics = metrics
        self._owner = owner
        self._pace = pace
        self._stop = threading.Event()
        self._lanes: dict[int, LaneRunner] = {}
        # Lanes that could not be run: not before this time of the monotonic clock again.
        self._not_before: dict[int, float] = {}
        self._followed: Desired | None = None
        self._commit_at = 0.0
        self._admin = TopicAdmin(settings)
        self._look_at = 0.0
        self._looking: Future[dict[str, str | None]] | None = None

    def stop(self) -> None:
        """Ask the loop to end after the present step; callable from anywhere."""
        self._stop.set()

    @property
    def records(self) -> Mapping[int, LaneRecord]:
        """The last committed record of every lane that this process owns."""
        return {p: runner.committed for p, runner in self._lanes.copy().items() if runner.committed is not None}

    def run(self) -> None:
        """Go on until `stop`; what fails is begun anew."""
        while not self._stop.is_set():
            try:
                self._run()
            except LMergeError as error:
                self._failed("merge_failed", error)
            except Exception as error:  # noqa: BLE001  # a defect of ours must not end the other merges, nor be silent
                log("error", "defect", merge=self.name, text=str(error), trace=traceback.format_exc())
            self._stop.wait(AGAIN_SECONDS)

    def _run(self) -> None:
        desired = self._wanted()
        if desired is None:
            return
        make_topics(self._settings, self.name, desired)
        if not fix_origin(self._settings, self._control, self.name):
            return  # no input has said anything yet
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(POOL_THREADS, thread_name_prefix=f"commit-{self.name}"))
            reader = stack.enter_context(PartitionReader(self._settings))
            member = stack.enter_context(
                GroupMember(self._settings, group_id(self.name), session_ms=self._pace.session_ms)
            )
            member.subscribe([desired.definition.merged(self.name)])
            stack.callback(lambda: self._leave(list(self._lanes)))
            while not self._stop.is_set() and self._wanted() is not None:
                self._step(member, reader, pool)
            self._commit(pool)

    def _wanted(self) -> Desired | None:
        return self._control.desired.get(self.name)

    # -- one step: this is the whole path

    def _step(self, member: GroupMember, reader: PartitionReader, pool: ThreadPoolExecutor) -> None:
        if not self._lanes:
            member.poll(self._pace.commit_seconds)
        self._own(member, pool)
        self._follow()
        self._watch_topics(pool)
        self._read_on(reader)  # an input that was attached again must not get what was read for it before
        batches = self._poll(reader)
        for partition, runner in self._lanes.items():
            mine = {topic: batch for (topic, number), batch in batches.items() if number == partition}
            if mine:
                runner.take(mine)
                self._metrics.took(mine.values())
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._pace.commit_seconds
            self._commit(pool)

    def _own(self, member: GroupMember, pool: ThreadPoolExecutor) -> None:
        """Take over the lanes that have become ours, and leave those that are another's."""
        member.poll(0)
        ours = {partition for _, partition in member.owned}
        self._leave([partition for partition in self._lanes if partition not in ours])
        now = time.monotonic()
        new = [p for p in sorted(ours) if p not in self._lanes and self._not_before.get(p, 0.0) <= now]
        if not new:
            return
        try:
            self._control.follow()  # at least as far as the lanes' last owner had (RS 1.5)
        except LMergeError as error:
            self._not_before.update(dict.fromkeys(new, now + AGAIN_SECONDS))
            self._failed("take_over_failed", error)
            return
        desired = self._wanted()
        if desired is None:
            return
        for runner in pool.map(lambda p: self._take_over(p, desired), new):
            if runner is not None:
                self._lanes[runner.partition] = runner
        self._followed = None

    def _take_over(self, partition: int, desired: Desired) -> LaneRunner | None:
        try:
            runner = LaneRunner(
                self._settings, self._admin, owner=self._owner, merge=self.name, partition=partition, desired=desired
            )
        except LMergeError as error:
            self._not_before[partition] = time.monotonic() + AGAIN_SECONDS
            self._failed("take_over_failed", error, lane=partition)
            return None
        runner.check_topics(topic_ids(self._admin, runner.topics))
        seconds = runner.recovery_seconds
        self._metrics.recovery_seconds.observe(seconds)
        log(
            "info",
            "took over",
            merge=self.name,
            lane=partition,
            seconds=round(seconds, 3),
            live=runner.lane.merge.stats().nodes,
        )
        return runner

    def _follow(self) -> None:
        """Attach and detach inputs, if something has changed."""
        desired = self._wanted()
        if desired is None or desired is self._followed:
            return
        for runner in self._lanes.values():
            runner.follow(desired.inputs)
        waiting = any(name not in runner.lane.inputs for runner in self._lanes.values() for name in desired.inputs)
        self._followed = None if waiting else desired

    def _watch_topics(self, pool: ThreadPoolExecutor) -> None:
        """Look now and then whether the inputs' topics are still there: the client library says nothing if not."""
        if self._looking is not None and self._looking.done():
            ids = self._looking.result()
            self._looking = None
            for runner in self._lanes.values():
                runner.check_topics(ids)
        if self._looking is None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            topics = {topic for runner in self._lanes.values() for topic in runner.topics}
            self._looking = pool.submit(topic_ids, self._admin, topics)

    def _poll(self, reader: PartitionReader) -> Mapping[Partition, Batch]:
        try:
            return reader.poll_batches(max(0.0, self._commit_at - time.monotonic()))
        except BrokerError as error:
            failed = reader.failed
            if not failed:
                raise
            for (topic, partition), reason in failed.items():
                if partition in self._lanes:
                    self._lanes[partition].lose(topic, reason)
                reader.remove((topic, partition))
            log("warning", "records gone", merge=self.name, text=str(error))
            return {}

    def _read_on(self, reader: PartitionReader) -> None:
        """Let the reader have exactly the partitions that the lanes want, from where they want them."""
        wanted: dict[Partition, int] = {}
        moved: list[Partition] = []
        for partition, runner in self._lanes.items():
            lane = runner.lane
            wanted.update({(topic, partition): offset for topic, offset in lane.reads().items()})
            moved += [(lane.inputs[name].topic, partition) for name in lane.moved]
            lane.moved.clear()
        present = reader.partitions | reader.failed.keys()  # those that failed come back when that was dealt with
        gone = [where for where in present if where not in wanted] + [where for where in moved if where in present]
        if gone:
            reader.remove(*gone)
        missing = {where: offset for where, offset in wanted.items() if where not in present or where in gone}
        if missing:
            reader.add(missing)

    def _commit(self, pool: ThreadPoolExecutor) -> None:
        """Let every lane commit what it has, at the same time."""
        for partition, failure in pool.map(self._commit_lane, list(self._lanes.values())):
            if failure is None:
                continue
            self._failed("commit_failed", failure, lane=partition)
            self._metrics.transactions.labels(self.name, str(partition), "failed").inc()
            pause = FENCED_SECONDS if isinstance(failure, Fenced) else AGAIN_SECONDS
            self._not_before[partition] = time.monotonic() + pause
            self._lanes.pop(partition).close()

    def _commit_lane(self, runner: LaneRunner) -> tuple[int, BrokerError | None]:
        began = time.perf_counter()
        before = runner.committed
        try:
            prepared = runner.commit(control_offset=self._control.offset)
        except BrokerError as error:
            return runner.partition, error
        if prepared is not None:
            self._metrics.committed(runner.partition, prepared, time.perf_counter() - began, before)
        for kind, name, text in runner.lane.happenings:
            self._metrics.happened(kind, name)
            log(LEVELS.get(kind, "info"), kind, merge=self.name, lane=runner.partition, input=name, text=text)
        runner.lane.happenings.clear()
        return runner.partition, None

    def _leave(self, partitions: list[int]) -> None:
        """Let go of lanes; what they have not committed comes again, to whoever has them next."""
        for partition in partitions:
            self._lanes.pop(partition).close()
            log("info", "left", merge=self.name, lane=partition)

    def _failed(self, event: str, error: LMergeError, *, lane: int | None = None) -> None:
        self._metrics.failures.labels(self.name, event).inc()
        log("warning", event.replace("_", " "), merge=self.name, lane=lane, text=str(error))
