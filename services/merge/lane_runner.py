"""A lane with its Kafka side: fence, recover, write. What to write is decided by `Lane`."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lmerge import Element
from lmerge.codec import decode_batch
from lmerge.errors import UsageError
from lmerge.kafka import (
    Batch,
    BrokerError,
    KafkaSettings,
    TailReader,
    TopicDescription,
    TransactionalWriter,
)
from services.clock import now_ms
from services.merge.attaching import Extent
from services.merge.definitions import Attachment, Desired
from services.merge.lane import Lane, Prepared
from services.merge.lane_config import LaneConfig
from services.merge.lane_input import Input
from services.merge.lane_record import LANE_KEY, LaneRecord, decode, encode
from services.merge.recovery import Recovery
from services.merge.topics import transactional_id

REFEED_RECORDS: Final = 5_000
"""Records per batch of a recovery: large enough that decoding dominates, small enough to hold."""

MISSES: Final = 3
"""So many looks in a row must miss a topic before its input is let go: one broker may have old metadata."""

ASK_EVERY_COMMITS: Final = 50
"""How often the end of the merged topic is asked for: half a millisecond each time, and markers add up."""


class LaneRunner:
    """One lane that this process owns.

    Making it takes the lane over, in the only order that is sound (recovery-and-sink 1.2): fence whoever had it, wait
    until everything in the log is decided, read the last record, rebuild.

    Args:
        settings: the cluster.
        owner: the name of this process, for people.
        merge: the name of the merge.
        partition: which of its lanes.
        desired: what is wanted of the merge.
        wanted_at: returns what is wanted at this offset of the control topic, or later; the last owner had come so far.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        owner: str,
        merge: str,
        partition: int,
        desired: Desired,
        wanted_at: Callable[[int], Desired],
    ) -> None:
        began = time.perf_counter()
        self.partition = partition
        self._commits = 0
        # By topic, how many looks in a row have missed it.
        self._misses: dict[str, int] = {}
        self._owner = owner
        self._merged = desired.definition.merged(merge)
        self._state = desired.definition.state(merge)
        self._signals = desired.definition.signals(merge)
        self._writer = TransactionalWriter(settings, transactional_id(merge, partition))
        self._reader = TailReader(settings)
        self._max_message_bytes = settings.max_message_bytes
        try:
            self._writer.fence()
            for topic in (self._merged, self._state):
                self._reader.require_decided(topic, partition)
            tail = self._reader.read_tail(self._state, partition)
            self.committed: LaneRecord | None = None if tail is None or tail.value is None else decode(tail.value)
            """The last committed record: what the outside may see."""
            if self.committed is not None:
                desired = wanted_at(self.committed.control_offset)
            self.lane = self._recover(LaneConfig.of(merge, partition, desired), desired.inputs)
            self._merged_end = self._reader.watermarks(self._merged, partition).end
        except BaseException:
            self.close()
            raise
        self.recovery_seconds = time.perf_counter() - began

    def _recover(self, config: LaneConfig, wanted: Mapping[str, Attachment]) -> Lane:
        record = self.committed
        self._require_both(record)
        if record is None:
            lane = Lane(config)
            lane.open()
            return lane
        if record.merge_id != config.merge_id:
            raise UsageError(
                f"topics {self._merged} and {self._state} hold another merge that was called {config.merge}: delete "
                "them, or name other topics in the definition"
            )
        recovery = Recovery(config, record, wanted)
        for elements in self._merged_since(record.merged_safe) if recovery.needs_merged else ():
            recovery.merged(elements)
        return recovery.lane()

    def _require_both(self, record: LaneRecord | None) -> None:
        """See that neither topic was made anew without the other: the merged one would get everything once more."""
        if record is None and self._reader.read_tail(self._merged, self.partition) is not None:
            gone, left = self._state, self._merged
        elif record is not None and self._reader.watermarks(self._merged, self.partition).end < record.merged_safe:
            gone, left = self._merged, self._state
        else:
            return
        raise UsageError(
            f"topic {gone} was made anew, and {left} was not: only both together hold a merge. Delete {left} too, and "
            "the merge begins anew"
        )

    def _merged_since(self, start: int) -> Iterator[list[Element]]:
        for batch in self._reader.read_range(self._merged, self.partition, start=start, batch_records=REFEED_RECORDS):
            elements, error = decode_batch([record.value for record in batch])
            if error is not None:
                raise error  # we wrote it
            yield elements

    @property
    def topics(self) -> set[str]:
        """The topics that have to be looked at: those of its inputs, and the merged one."""
        return {self._merged, *(state.topic for state in self.lane.inputs.values())}

    def attach(self, name: str, wanted: Attachment, found: Extent | BrokerError) -> None:
        """Attach an input, by what was found of its topic."""
        if isinstance(found, BrokerError):
            self.lane.attach_missing(name, wanted, str(found))
        else:
            self.lane.attach(name, wanted, low=found.low, until=found.until, topic_id=found.topic_id)

    def check_topics(self, found: Mapping[str, TopicDescription | None]) -> None:
        """Let go of inputs whose topic is gone, or is another one under the same name: offsets mean nothing there.

        That it is another one is believed at once, since its records must not be taken for those of the old one. That
        it is gone is believed when it was missed several times: nothing is read meanwhile.

        Args:
            found: each topic that was looked at; None: it does not exist.
        """
        merged = found.get(self._merged)
        if merged is not None:
            self.lane.max_record_bytes = min(self._max_message_bytes, int(merged.config["max.message.bytes"]))
        for name, state in list(self.lane.inputs.items()):
            if state.topic not in found or state.stop is not None:
                continue
            topic = found[state.topic]
            misses = self._misses.pop(state.topic, 0) + 1
            if topic is not None:
                if _is_another(state, topic.topic_id):
                    self.lane.gap(name, _made_anew(state))
            elif misses >= MISSES:
                self.lane.gap(name, f"topic {state.topic} does not exist any more")
            else:
                self._misses[state.topic] = misses

    def is_reading(self, name: str, wanted: Attachment) -> bool:
        """Tell whether an input has this attachment here, and is not stopped."""
        state = self.lane.inputs.get(name)
        return state is not None and state.attachment == wanted.attachment and state.stop is None

    def lose(self, name: str, reason: BrokerError, found: Extent | BrokerError) -> None:
        """Let go of an input whose records are gone; it comes back with its next hello if its topic is there."""
        state = self.lane.inputs[name]
        if isinstance(found, BrokerError):
            self.lane.gap(name, str(reason))
        elif _is_another(state, found.topic_id):
            self.lane.gap(name, _made_anew(state))
        else:
            self.lane.gap(name, str(reason), low=found.low, until=found.until)

    def take(self, batches: Mapping[str, Batch]) -> None:
        """Process one batch: records by topic."""
        now = now_ms()
        self.lane.begin_batch(merged_end=self._merged_end, now_ms=now)
        names = {state.topic: name for name, state in self.lane.inputs.items()}
        for topic, batch in batches.items():
            if topic in names:
                self.lane.take(names[topic], batch.offsets, batch.values, now_ms=now)

    def met_end(self, topic: str, end: int) -> None:
        """Note up to where all was read of a topic that was committed."""
        for name, state in self.lane.inputs.items():
            if state.topic == topic:
                self.lane.met_end(name, end)

    def commit(self, *, control_offset: int) -> Prepared | None:
        """Write what has changed, in one transaction, and return it; None if there was nothing.

        Raises:
            Fenced: another process has the lane.
            BrokerError: the lane has to be taken over anew; what was not committed comes again.
        """
        now = now_ms()
        prepared = self.lane.prepare(
            merged_end=self._merged_end, now_ms=now, owner=self._owner, control_offset=control_offset
        )
        if prepared is None:
            return None
        with self._writer.transaction():
            if prepared.values:
                self._writer.write_values(self._merged, self.partition, prepared.values)
            if prepared.signals:
                signals = [(signal.input.encode(), signal.encode()) for signal in prepared.signals]
                self._writer.write(self._signals, 0, signals)
            self._writer.write(self._state, self.partition, [(LANE_KEY, encode(prepared.record))])
        self.lane.committed(now_ms=now)
        self.committed = prepared.record
        self._note_merged_end(len(prepared.values))
        return prepared

    def _note_merged_end(self, written: int) -> None:
        """Note where the merged topic ends, or a little before: counted, and asked for now and then (markers)."""
        self._merged_end += written
        self._commits += 1
        if self._commits % ASK_EVERY_COMMITS == 0:
            self._merged_end = max(self._merged_end, self._reader.watermarks(self._merged, self.partition).end)

    def close(self) -> None:
        """Drop the connections; what is not committed is lost, and comes again."""
        self._writer.close()
        self._reader.close()


def _is_another(state: Input, topic_id: str) -> bool:
    """Tell whether a topic is not the one that an input was attached to, as far as that is known."""
    return bool(state.topic_id) and topic_id != state.topic_id


def _made_anew(state: Input) -> str:
    return f"topic {state.topic} was deleted and made anew"
