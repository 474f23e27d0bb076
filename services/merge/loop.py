"""The loop of one merge: read all inputs of the lanes that this process owns, merge, commit, again. One thread.

    step:  which lanes are ours  ->  what is wanted  ->  poll  ->  lanes take their records  ->  lanes commit

The group of the merged topic says which lanes are ours (`GroupMember`); inputs are assigned by hand, so that attach and
detach move no lane. A lane whose transaction fails is thrown away and taken over anew, from what is committed. An input
that is silent, slow, paused or gone never holds the others: a poll returns whatever is there.
"""

import threading
import time
import traceback
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from lmerge import LMergeError
from lmerge.errors import UsageError
from lmerge.kafka import (
    Batch,
    BrokerError,
    Fenced,
    GroupMember,
    KafkaSettings,
    MissingTopic,
    Partition,
    PartitionReader,
    TopicAdmin,
    TopicDescription,
)
from services.log import Level, log
from services.merge.attaching import Looks, look
from services.merge.control import Control
from services.merge.definitions import Attachment, Desired
from services.merge.lane_record import LaneRecord
from services.merge.lane_runner import LaneRunner
from services.merge.metrics import Failure, MergeMetrics
from services.merge.pace import Pace, Schedule
from services.merge.setup import describe_topics, fix_origin, make_topics, require_topics
from services.merge.topics import group_id

POOL_THREADS: Final = 8
"""Lanes commit, and are taken over, at the same time; beyond 8 one broker gains nothing."""

AGAIN_SECONDS: Final = 1.0
"""Pause before a lane, or the whole loop, is begun anew after a failure."""

LOOK_SECONDS: Final = 2.0
"""How often it is looked whether the inputs' topics are still there, and which inputs are silent."""

SETTLED_SECONDS: Final = 10.0
"""For so long nothing must have come behind the end of an input before the position goes there: an end that is told too
early would lose what comes before it (ADR 9), and for retention a day would do."""

FENCED_SECONDS: Final = 5.0
"""Pause after being fenced: the group needs a moment to tell us that the lane is another's."""

LEVELS: Final[dict[str, Level]] = {"quarantined": "error", "gap": "error", "divergence": "error"}


class Pools(NamedTuple):
    """Threads for what takes long, or may: what waits for a broker in one of them holds nobody in another."""

    commit: ThreadPoolExecutor
    take_over: ThreadPoolExecutor
    look: ThreadPoolExecutor


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
        self._schedule = Schedule(pace)
        self._admin = TopicAdmin(settings)
        self._look_at = self._pass_at = 0.0
        self._looking: Future[dict[str, TopicDescription | None]] | None = None
        # The merge's own topics, as they were when it began.
        self._made: dict[str, TopicDescription] = {}
        # Lanes that are being taken over.
        self._taking: dict[int, Future[LaneRunner]] = {}

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
        self._made = make_topics(self._settings, self.name, desired)
        if not fix_origin(self._settings, self._control, self.name):
            return  # no input has said anything yet
        with ExitStack() as stack:
            stack.callback(self._close_taken)  # last: when no thread takes one over any more
            pools = Pools(*(stack.enter_context(self._pool(what)) for what in Pools._fields))
            stack.callback(lambda: pools.look.shutdown(cancel_futures=True))
            stack.callback(lambda: pools.take_over.shutdown(cancel_futures=True))
            looking = partial(look, self._settings, self._admin)
            self._looks, self._losses = Looks(pools.look, looking), Looks(pools.look, looking)
            self._looking = None
            reader = stack.enter_context(PartitionReader(self._settings))
            member = stack.enter_context(
                GroupMember(self._settings, group_id(self.name), session_ms=self._pace.session_ms)
            )
            member.subscribe([desired.definition.merged(self.name)])
            stack.callback(lambda: self._leave(list(self._lanes)))
            while not self._stop.is_set() and self._is_still_wanted(desired):
                self._step(member, reader, pools)
            self._commit(pools.commit)

    def _pool(self, what: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(POOL_THREADS, thread_name_prefix=f"{what}-{self.name}")

    def _wanted(self) -> Desired | None:
        return self._control.desired.get(self.name)

    def _wanted_at(self, offset: int) -> Desired:
        """Return what is wanted at an offset of the control topic or later (RS 1.5).

        Else an input that was detached, perhaps a broken one, would come back with a process that has not heard of it.
        """
        if self._control.offset < offset:
            self._control.follow()
        desired = self._wanted()
        if desired is None:
            raise UsageError(f"merge {self.name} is not wanted any more")
        return desired

    def _is_still_wanted(self, desired: Desired) -> bool:
        """Tell whether it is the same merge still: one deleted and defined again has other lanes and topics."""
        now = self._wanted()
        return now is not None and now.id == desired.id

    # -- one step: this is the whole path

    def _step(self, member: GroupMember, reader: PartitionReader, pools: Pools) -> None:
        if not self._lanes:
            member.poll(self._pace.commit_seconds)
        self._own(member, pools.take_over)
        self._follow()
        self._watch_topics(reader, pools.look)
        self._let_lost_go(reader)
        self._read_on(reader)  # an input that was attached again must not get what was read for it before
        self._pass_markers(reader)
        batches = self._poll(reader)
        self._schedule.came(batches.values(), time.monotonic())
        for partition, runner in self._lanes.items():
            mine = {topic: batch for (topic, number), batch in batches.items() if number == partition}
            if mine:
                runner.take(mine)
                self._metrics.took(partition, mine.values())
        now = time.monotonic()
        if now >= self._schedule.due:
            self._schedule.tried(now, has_committed=self._commit(pools.commit))

    def _own(self, member: GroupMember, pool: ThreadPoolExecutor) -> None:
        """Take over the lanes that have become ours, beside the others, and leave those that are another's."""
        member.poll(0)
        ours = {partition for _, partition in member.owned}
        self._collect(ours)
        self._leave([partition for partition in self._lanes if partition not in ours])
        desired, now = self._wanted(), time.monotonic()
        for partition in sorted(ours - self._lanes.keys() - self._taking.keys()):
            if desired is not None and self._not_before.get(partition, 0.0) <= now:
                self._taking[partition] = pool.submit(self._take_over, partition, desired)

    def _collect(self, ours: Collection[int]) -> None:
        """Collect the lanes that were taken over since the last step."""
        for partition, taking in list(self._taking.items()):
            if partition not in ours:
                taking.cancel()  # if nobody has begun: it would fence whoever has the lane now
            if not taking.done():
                continue
            del self._taking[partition]
            if taking.cancelled():
                continue
            try:
                self._lanes[partition] = taking.result()
            except LMergeError as error:
                self._not_before[partition] = time.monotonic() + AGAIN_SECONDS
                self._failed("take_over_failed", error, lane=partition)
            self._followed = None

    def _close_taken(self) -> None:
        """Let go of lanes that were taken over and never collected."""
        for taking in self._taking.values():
            if not taking.cancelled() and taking.exception() is None:
                taking.result().close()
        self._taking.clear()

    def _take_over(self, partition: int, desired: Desired) -> LaneRunner:
        """Take a lane over; nobody else knows it until it is collected."""
        runner = LaneRunner(
            self._settings,
            owner=self._owner,
            merge=self.name,
            partition=partition,
            desired=desired,
            wanted_at=self._wanted_at,
        )
        runner.check_topics(describe_topics(self._admin, runner.topics))
        seconds = runner.recovery_seconds
        self._metrics.took_over(partition, seconds)
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
        """Attach and detach inputs, if something has changed; whose topic is to be looked at first comes later."""
        desired = self._wanted()
        if desired is None or desired is self._followed:
            return
        missing: dict[str, set[int]] = {}
        for partition, runner in self._lanes.items():
            for name in runner.lane.follow(desired.inputs):
                missing.setdefault(name, set()).add(partition)
        self._looks.keep(desired.inputs.values())
        for name, partitions in missing.items():
            for partition, found in self._looks.at(desired.inputs[name], partitions).items():
                if partition in partitions:
                    self._lanes[partition].attach(name, desired.inputs[name], found)
        self._followed = None if missing else desired

    def _watch_topics(self, reader: PartitionReader, pool: ThreadPoolExecutor) -> None:
        """Look now and then whether all topics are still there: the client library says nothing if not.

        It may also say once that a topic is missing which is there, and stop reading it: then it is told to read it
        again, and likewise if nothing can be found out about the topic: the next failure tells why.

        Raises:
            MissingTopic: one of the merge itself is not.
        """
        if self._looking is not None and self._looking.done():
            found = self._looking.result()
            self._looking = None
            require_topics(self._made, found)
            for runner in self._lanes.values():
                runner.check_topics(found)
            missed = [where for where, reason in reader.failed.items() if isinstance(reason, MissingTopic)]
            reader.remove(*(where for where in missed if where[0] not in found or found[where[0]] is not None))
        if self._looking is None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            topics = {*self._made, *(topic for runner in self._lanes.values() for topic in runner.topics)}
            self._looking = pool.submit(describe_topics, self._admin, topics)

    def _pass_markers(self, reader: PartitionReader) -> None:
        """Let silent inputs stand behind the markers that follow their last record: see `Lane.met_end`."""
        if time.monotonic() < self._pass_at:
            return
        self._pass_at = time.monotonic() + LOOK_SECONDS
        for (topic, partition), end in reader.settled(SETTLED_SECONDS).items():
            if partition in self._lanes:
                self._lanes[partition].met_end(topic, end)

    def _poll(self, reader: PartitionReader) -> Mapping[Partition, Batch]:
        due = self._schedule.soonest - time.monotonic()
        if due > 0 and not reader.left_some:
            self._stop.wait(due)  # what comes until then waits for it anyway: no step for each record
        while True:
            try:
                return reader.poll_batches(0.0 if due > 0 else self._pace.commit_seconds)
            except BrokerError as error:  # each is raised once
                if not any(error is reason for reason in reader.failed.values()):
                    raise
                log("warning", "input cannot be read", merge=self.name, text=str(error))

    def _let_lost_go(self, reader: PartitionReader) -> None:
        """Let go of inputs whose records are gone, when it was seen what is left; until then they are only silent.

        Of a topic that is said to be missing `_watch_topics` decides.
        """
        desired, failed = self._wanted(), reader.failed
        if desired is None or not failed:
            self._losses.keep(())  # what a look has found is not for the next time
            return
        lost = {name: self._lost(name, wanted, failed) for name, wanted in desired.inputs.items()}
        self._losses.keep([desired.inputs[name] for name, reasons in lost.items() if reasons])
        for name, reasons in lost.items():
            if reasons:
                for partition, found in self._losses.at(desired.inputs[name], reasons).items():
                    if partition in reasons:
                        self._lanes[partition].lose(name, reasons[partition], found)

    def _lost(self, name: str, wanted: Attachment, failed: Mapping[Partition, BrokerError]) -> dict[int, BrokerError]:
        """Return in which lanes the records of an input are gone, and why."""
        return {
            partition: reason
            for (topic, partition), reason in failed.items()
            if topic == wanted.definition.topic and not isinstance(reason, MissingTopic)
            if partition in self._lanes and self._lanes[partition].is_reading(name, wanted)
        }

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

    def _commit(self, pool: ThreadPoolExecutor) -> bool:
        """Let every lane commit what it has, at the same time; return whether any had something."""
        lanes = list(self._lanes.values())
        any_had = False
        # One alone is committed here: this thread would only wait for another, with what it works on in another cache.
        for partition, has_committed, failure in (pool.map if len(lanes) > 1 else map)(self._commit_lane, lanes):
            any_had |= has_committed
            if failure is None:
                continue
            self._failed("commit_failed", failure, lane=partition)
            self._metrics.transactions.labels(self.name, str(partition), "failed").inc()
            pause = FENCED_SECONDS if isinstance(failure, Fenced) else AGAIN_SECONDS
            self._not_before[partition] = time.monotonic() + pause
            self._lanes.pop(partition).close()
        return any_had

    def _commit_lane(self, runner: LaneRunner) -> tuple[int, bool, BrokerError | None]:
        began = time.perf_counter()
        before = runner.committed
        try:
            prepared = runner.commit(control_offset=self._control.offset)
        except BrokerError as error:
            return runner.partition, False, error
        if prepared is not None:
            self._metrics.committed(runner.partition, prepared, time.perf_counter() - began, before)
        for kind, name, text in runner.lane.notes.happenings:
            self._metrics.happened(kind, name)
            log(LEVELS.get(kind, "info"), kind, merge=self.name, lane=runner.partition, input=name, text=text)
        for (kind, name), count in runner.lane.notes.left_out.items():
            self._metrics.happened(kind, name, count)
            text = f"{count} more, left out here"
            log(LEVELS.get(kind, "info"), kind, merge=self.name, lane=runner.partition, input=name, text=text)
        runner.lane.notes.forget_happenings()
        return runner.partition, prepared is not None, None

    def _leave(self, partitions: list[int]) -> None:
        """Let go of lanes; what they have not committed comes again, to whoever has them next."""
        for partition in partitions:
            self._lanes.pop(partition).close()
            log("info", "left", merge=self.name, lane=partition)

    def _failed(self, event: Failure, error: LMergeError, *, lane: int | None = None) -> None:
        self._metrics.failures.labels(self.name, event).inc()
        log("warning", event.replace("_", " "), merge=self.name, lane=lane, text=str(error))
