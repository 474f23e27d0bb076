"""A process that owns a lane, around the `Lane` that production runs, and the broker that it talks to, in memory.

    broker = Broker()
    owner = Owner.take_over(broker, config, wanted)
    owner.poll({"r1": 5})
    owner.commit()

The broker fences: whoever takes a lane over is given a new epoch, and a commit with an older one is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from lmerge import MINUS_INFINITY
from lmerge.codec import decode_batch
from lmerge.signals import Signal
from services.merge.definitions import Attachment
from services.merge.lane import Lane, Prepared
from services.merge.lane_config import LaneConfig
from services.merge.lane_record import LaneRecord, decode, encode
from services.merge.recovery import Recovery
from tests.support.memory_log import Gone, Log


class Broker:
    """The topics of one lane, and who may write to it."""

    def __init__(self) -> None:
        self.topics: dict[str, Log] = {}
        self.merged = Log()
        self.signals: list[Signal] = []
        self.epoch = 0
        self.record: LaneRecord | None = None
        """The committed lane record."""

    def fence(self) -> int:
        """Shut out whoever has the lane; return the epoch of the one who asks."""
        self.epoch += 1
        return self.epoch

    def commit(self, epoch: int, prepared: Prepared, *, markers: int) -> bool:
        """Make a transaction durable, unless its writer is fenced."""
        if epoch != self.epoch:
            return False
        self.merged.append(prepared.values, markers=markers)
        self.signals += prepared.signals
        self.record = decode(encode(prepared.record))
        return True


def recover(broker: Broker, config: LaneConfig, wanted: Mapping[str, Attachment]) -> Lane:
    """Make a lane from what is committed; its inputs are still to be re-fed."""
    record = broker.record
    if record is None:
        lane = Lane(config)
        lane.open()
        return lane
    recovery = Recovery(config, record, wanted)
    if recovery.needs_merged:
        elements, error = decode_batch(broker.merged.read(record.merged_safe)[1])
        assert error is None
        recovery.merged(elements)
    return recovery.lane()


class Owner:
    """One process with one lane."""

    def __init__(self, broker: Broker, epoch: int, lane: Lane) -> None:
        self.broker = broker
        self.epoch = epoch
        self.lane = lane
        self.may_be_gone: Callable[[str, int], bool] = lambda topic, offset: False  # noqa: ARG005
        self._merged_end = broker.merged.end
        # Where the consumer stands in each topic that it reads.
        self._reading: dict[str, int] = {}

    @classmethod
    def take_over(
        cls,
        broker: Broker,
        config: LaneConfig,
        wanted: Mapping[str, Attachment],
        *,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> "Owner":
        """Fence, and only then read (RS 1.2); `meanwhile` is what the former owner does in between."""
        epoch = broker.fence()
        meanwhile()
        owner = cls(broker, epoch, recover(broker, config, wanted))
        owner.follow(wanted)
        return owner

    def follow(self, wanted: Mapping[str, Attachment]) -> None:
        """Let the lane have the inputs that are wanted."""
        for name in self.lane.follow(wanted):
            log = self.broker.topics[wanted[name].definition.topic]
            self.lane.attach(name, wanted[name], low=log.low, until=log.until)

    def poll(self, topics: Mapping[str, int], *, now_ms: int = 0) -> bool:
        """Read at most so many records of each topic and process them as one batch; tell whether there were any."""
        self._assign()
        batch = {}
        for topic, count in topics.items():
            if topic not in self._reading:
                continue
            try:
                records = self.broker.topics[topic].read(self._reading[topic], count)
            except Gone:
                if not self.may_be_gone(topic, self._reading[topic]):
                    raise
                self._gap(topic)
                continue
            if records[0]:
                batch[topic] = records
        if batch:
            self.lane.begin_batch(merged_end=self._merged_end, now_ms=now_ms)
            names = {state.topic: name for name, state in self.lane.inputs.items()}
            for topic, (offsets, values) in batch.items():
                self._reading[topic] = offsets[-1] + 1
                self.lane.take(names[topic], offsets, values, now_ms=now_ms)
        self.tell_ends(topics)
        return bool(batch)

    def tell_ends(self, topics: Iterable[str]) -> None:
        """Tell the lane of which topics all was read, as a consumer is told."""
        for name, state in self.lane.inputs.items():
            log = self.broker.topics[state.topic]
            if state.topic in topics and log.until <= state.cursor < log.end:
                self.lane.met_end(name, log.end)
                if state.topic in self._reading and name not in self.lane.moved:
                    self._reading[state.topic] = state.cursor

    def _gap(self, topic: str) -> None:
        (name,) = [name for name, state in self.lane.inputs.items() if state.topic == topic]
        log = self.broker.topics[topic]
        self.lane.gap(name, "its records are gone", low=log.low, until=log.until)

    def _assign(self) -> None:
        """Read what the lane wants from where it wants it."""
        reads = self.lane.reads()
        moved = {self.lane.inputs[name].topic for name in self.lane.moved if name in self.lane.inputs}
        self.lane.moved.clear()
        kept = {topic: at for topic, at in self._reading.items() if topic in reads and topic not in moved}
        self._reading = {**reads, **kept}
        for topic, at in kept.items():
            assert at == reads[topic], f"{topic} is read at {at}, and the lane expects {reads[topic]}"

    def refeed(self, counts: Callable[[], int]) -> None:
        """Re-feed every input as far as it had come, and no further; `counts` gives the sizes of the batches."""
        for name, state in self.lane.inputs.items():
            while state.cursor < state.position and state.is_wanted:
                offsets, values = self.broker.topics[state.topic].read(state.cursor, counts())
                known = sum(offset < state.position for offset in offsets)
                if not known:  # only markers are left
                    self.lane.met_end(name, state.position)
                    continue
                self.lane.begin_batch(merged_end=self._merged_end, now_ms=0)
                self.lane.take(name, offsets[:known], values[:known])
        self._reading = {}

    def observable(self) -> dict[str, object]:
        """Return what the lane knows, as far as it can make a difference to what comes."""
        lane, merge = self.lane, self.lane.merge
        stable = merge.max_stable
        names = {stream.slot: stream.stream_id for stream in merge._members}
        nodes = {}
        for key, node in getattr(getattr(merge, "_index", None), "nodes", {}).items():
            ends = {names[slot]: _live(each, stable) for slot, each in node.claims().items() if slot in names}
            known = {"output": _live(node.out, stable), **ends}
            if any(known.values()):
                nodes[key] = {who: each for who, each in known.items() if each}
        return {
            "scalars": merge.scalars(),
            "payloads": merge.dump().payloads if merge.scalars().max_vs >= stable else None,
            "joined": {stream.stream_id for stream in merge._members if stream.joined},
            "nodes": nodes,
            "lane": (lane.notes.signals, lane.notes.divergences, lane.notes.samples),
            "inputs": {
                name: (
                    *(each.attachment, each.topic, each.start, each.incarnation, each.seek, each.stop),
                    self.broker.topics[each.topic].next(each.position),
                    *(each.skipped, each.handled, each.paused, each.signalled, each.counts),
                )
                for name, each in lane.inputs.items()
            },
        }

    def prepare(self, *, now_ms: int = 0) -> Prepared | None:
        """Write a transaction and leave it open; None if there is nothing to write."""
        return self.lane.prepare(merged_end=self._merged_end, now_ms=now_ms)

    def commit(self, *, markers: int = 0, now_ms: int = 0) -> Prepared | None:
        """Commit; None if there is nothing to.

        Raises:
            Refused: somebody else has the lane.
        """
        prepared = self.prepare(now_ms=now_ms)
        if prepared is None:
            return None
        if not self.broker.commit(self.epoch, prepared, markers=markers):
            raise Refused
        self.lane.committed(now_ms=now_ms)
        self._merged_end += len(prepared.values)  # markers are not counted: it may be too small
        return prepared


class Refused(Exception):
    """The writer is fenced."""


def _live(ends: object, stable: int) -> dict[int, int]:
    """Return the ends that a node of R3 (one number) or R4 (a multiset) has for somebody, as far as they can change."""
    if isinstance(ends, int):
        return {ends: 1} if MINUS_INFINITY < ends >= stable else {}
    return {end: count for end, count in cast("dict[int, int]", ends).items() if end >= stable}
