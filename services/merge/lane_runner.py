"""The Kafka work of one lane: fence, recover, write. What to write is decided by `Lane`."""

from collections.abc import Iterator, Mapping
from typing import Final

from lmerge import MINUS_INFINITY, Element, OutputPolicy
from lmerge.codec import decode_batch
from lmerge.kafka import KafkaSettings, Record, TailReader, TransactionalWriter
from services.merge.definitions import Attachment, Desired
from services.merge.lane import Lane
from services.merge.lane_record import LANE_KEY, LaneRecord, decode, encode
from services.merge.recovery import Recovery

REFEED_RECORDS: Final = 5_000
"""Records per batch of a re-feed: large enough that decoding dominates, small enough to hold."""


class LaneRunner:
    """One lane that this process owns.

    Making it takes the lane over, in the only order that is sound (recovery-and-sink 1.2): fence whoever had it, wait
    until everything in the log is decided, read the last record, rebuild.

    Args:
        settings: the cluster.
        merge: the name of the merge.
        partition: which of its lanes.
        desired: what is wanted of the merge.
    """

    def __init__(self, settings: KafkaSettings, merge: str, partition: int, desired: Desired) -> None:
        self.partition = partition
        self._merge = merge
        self._merged = desired.definition.merged(merge)
        self._state = desired.definition.state(merge)
        self._policy = OutputPolicy.parse(desired.definition.policy)
        self._writer = TransactionalWriter(settings, f"{merge}/{partition}")
        self._reader = TailReader(settings)
        self._writer.fence()
        for topic in (self._merged, self._state):
            self._reader.require_decided(topic, partition)
        tail = self._reader.read_tail(self._state, partition)
        self.committed: LaneRecord | None = None if tail is None or tail.value is None else decode(tail.value)
        """The last committed record: what the outside may see."""
        self.lane = self._recover(desired)
        self._merged_end = self._reader.watermarks(self._merged, partition).end

    def _recover(self, desired: Desired) -> Lane:
        if self.committed is None:
            lane = Lane(self._policy, MINUS_INFINITY if desired.origin is None else desired.origin)
            lane.open(self._merge)
            return lane
        recovery = Recovery(self.committed, desired.inputs, self._policy)
        for elements in self._elements(self._merged, self.committed.merged_safe, None):
            recovery.merged(elements)
        lane = recovery.lane()
        for name, each in recovery.to_refeed.items():
            for elements in self._elements(each.topic, each.safe, each.position):
                recovery.refeed(name, elements, done=False)
            recovery.refeed(name, [], done=True)
        return lane

    def _elements(self, topic: str, start: int, end: int | None) -> Iterator[list[Element]]:
        batches = self._reader.read_range(topic, self.partition, start=start, end=end, batch_records=REFEED_RECORDS)
        for batch in batches:
            elements, error = decode_batch([record.value for record in batch])
            if error is not None:
                raise error  # it was read before: what was taken then can be decoded now
            yield elements

    def reconcile(self, inputs: Mapping[str, Attachment]) -> None:
        """Attach and detach until the lane has the inputs that are wanted."""
        for name, state in list(self.lane.inputs.items()):
            if name not in inputs or inputs[name].attachment != state.attachment:
                self.lane.detach(name)
        for name, attachment in inputs.items():
            if name not in self.lane.inputs:
                self._attach(name, attachment)

    def _attach(self, name: str, attachment: Attachment) -> None:
        definition = attachment.definition
        low = self._reader.watermarks(definition.topic, self.partition).low
        joins_at = MINUS_INFINITY if definition.joins_at is None else definition.joins_at
        self.lane.attach(name, attachment.attachment, definition.topic, start=low, joins_at=joins_at)
        if low > 0 and definition.joins_at is None:
            self.lane.gap(name, f"the log begins at offset {low}: attach with joins_at, or wait for a hello")

    def take(self, records: Mapping[str, list[Record]], *, now_ms: int) -> None:
        """Process one batch: records by topic."""
        self.lane.begin_batch(merged_end=self._merged_end, now_ms=now_ms)
        topics = {state.topic: name for name, state in self.lane.inputs.items() if not state.verdict}
        for topic, batch in records.items():
            if topic in topics:
                self.lane.take(topics[topic], batch)

    def commit(self, *, control_offset: int) -> bool:
        """Write what has changed, in one transaction; tell whether there was anything."""
        prepared = self.lane.prepare(control_offset=control_offset)
        if prepared is None:
            return False
        with self._writer.transaction():
            self._writer.write(self._merged, self.partition, [(None, value) for value in prepared.values])
            self._writer.write(self._state, self.partition, [(LANE_KEY, encode(prepared.record))])
        self.lane.committed()
        self.committed = prepared.record
        self._merged_end = self._reader.watermarks(self._merged, self.partition).end
        return True

    def close(self) -> None:
        """Drop the connections; what is not committed is lost, and comes again."""
        self._writer.close()
        self._reader.close()
