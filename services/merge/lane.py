"""A lane: one partition of one merge. Pure: records and time in; values to write, a lane record and reads to make out.

The loop around it reads partition p of every input from where `reads` says, hands the records over with `take`, and
writes what `prepare` returns in one transaction. Only what is committed counts: if a transaction fails, the lane is
thrown away and made anew from the last committed record, with `Recovery`.

Batches are numbered. At the start of each the lane notes where every input and the merged topic stand; the safe point
is the note of the batch that made the oldest live node (recovery-and-sink 4).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lmerge import (
    MINUS_INFINITY,
    Divergence,
    Element,
    Hello,
    Merge,
    OutputPolicy,
    Stats,
    Violation,
    create,
)
from lmerge.codec import decode_batch, encode_batch
from lmerge.facts import Fact
from lmerge.kafka import Record
from services.merge.lane_record import InputRecord, LaneRecord

MAX_SAMPLES: Final = 20
"""Divergences kept for people to look at; the counters go on."""

MAX_NOTES: Final = 1024
"""Notes kept of batches. Where there are more, every second is dropped: an earlier note is as safe, only longer ago."""


@dataclass
class Input:
    """One attached input of the lane."""

    attachment: str
    topic: str
    position: int
    start: int
    incarnation: int = 0
    verdict: str = ""  # why it is not read any more: a violation, a malformed record, records that are gone


@dataclass(frozen=True)
class Note:
    """Where everything stood at the start of a batch."""

    batch: int
    vector: Mapping[str, int]  # by attachment
    merged_end: int
    at_ms: int


@dataclass(frozen=True)
class Prepared:
    """What the next transaction of the lane holds."""

    values: list[bytes]
    record: LaneRecord


@dataclass
class Lane:
    """One merge of one partition.

    Args:
        policy: the output policy.
        origin: where the merge begins.
    """

    policy: OutputPolicy
    origin: int
    inputs: dict[str, Input] = field(default_factory=dict)
    divergences: list[Divergence] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin empty."""
        self.merge: Merge = create("R3", policy=self.policy, origin=self.origin)
        self._pending: list[Element] = []
        self._notes: list[Note] = []  # in the order of batches
        self._batch = 0
        self._changed = False

    @property
    def max_stable(self) -> int:
        """The merged stable, committed or about to be."""
        return self.merge.max_stable

    def stats(self) -> Stats:
        """Return the merge's counters."""
        return self.merge.stats()

    def reads(self, partition: int) -> dict[tuple[str, int], int]:
        """Return what is to be read: topic and partition to offset."""
        return {(state.topic, partition): state.position for state in self.inputs.values() if not state.verdict}

    def attach(self, name: str, attachment: str, topic: str, *, start: int, joins_at: int) -> None:
        """Attach an input that is read from offset `start` on."""
        self.merge.attach(name, joins_at=joins_at)
        self.inputs[name] = Input(attachment, topic, position=start, start=start)
        self._changed = True

    def detach(self, name: str) -> None:
        """Forget an input."""
        if not self.inputs[name].verdict:
            self.merge.detach(name)
        del self.inputs[name]
        self._changed = True

    def open(self, merge: str) -> None:
        """Begin the merged stream: it says where it is complete from, so that it can be merged itself (RS 5.6)."""
        self._pending.append(Hello(replica=merge, incarnation=1, joins_at=self.origin))

    def resume(self, note: Note, inputs: dict[str, Input]) -> None:
        """Go on after a recovery: where its loaded nodes can be rebuilt from, and the inputs as they were."""
        self._batch = note.batch
        self._notes = [note]
        self.inputs = inputs

    def begin_batch(self, *, merged_end: int, now_ms: int) -> None:
        """Note where everything stands. `merged_end` may be too small, never too large."""
        self._batch += 1
        self._notes.append(self._note(merged_end, now_ms))
        if len(self._notes) > MAX_NOTES:
            del self._notes[1::2]
        self.merge.begin_batch(self._batch)

    def _note(self, merged_end: int, now_ms: int) -> Note:
        vector = {state.attachment: state.position for state in self.inputs.values()}
        return Note(self._batch, vector, merged_end, now_ms)

    def take(self, name: str, records: Sequence[Record]) -> None:
        """Process records of one input, in order. What it may not say stops it, and no other."""
        state = self.inputs[name]
        records = [record for record in records if record.offset >= state.position]
        elements, malformed = decode_batch([record.value for record in records])
        self._pending += self.merge.process(name, elements)
        taken = self.merge.consumed(name)
        for element, record in zip(elements[:taken], records, strict=False):
            if isinstance(element, Hello):
                state.start, state.incarnation = record.offset, element.incarnation
        if taken:
            state.position = records[taken - 1].offset + 1
            self._changed = True
        self._digest(self.merge.take_facts(), records)
        if not state.verdict and malformed is not None and taken == len(elements):
            self._stop(name, f"offset {records[malformed.index].offset}: {malformed.reason}")

    def gap(self, name: str, reason: str) -> None:
        """Stop an input whose records are gone: it would look complete and is not (RS 4.7)."""
        self._stop(name, reason)

    def _digest(self, facts: Sequence[Fact], records: Sequence[Record]) -> None:
        for fact in facts:
            if isinstance(fact, Violation):
                name = str(fact.stream_id)
                at = records[self.merge.consumed(name)].offset
                self._stop(name, f"offset {at}: {fact.detail} ({fact.rule.value})")
            elif isinstance(fact, Divergence) and len(self.divergences) < MAX_SAMPLES:
                self.divergences.append(fact)

    def _stop(self, name: str, verdict: str) -> None:
        self.inputs[name].verdict = verdict
        self.merge.detach(name)
        self._changed = True

    def prepare(self, *, control_offset: int) -> Prepared | None:
        """Return what is to be committed now; None if nothing has changed since the last commit."""
        if not self._changed and not self._pending:
            return None
        state = self.merge.dump()
        note = self._safe_point()
        inputs = {}
        for name, each in self.inputs.items():
            kept = state.streams.get(name)
            inputs[name] = InputRecord(
                attachment=each.attachment,
                topic=each.topic,
                position=each.position,
                start=each.start,
                safe=max(note.vector.get(each.attachment, each.start), each.start),
                joins_at=_finite(kept.joins_at) if kept else None,
                own_stable=_finite(kept.own_stable) if kept else None,
                incarnation=each.incarnation,
                verdict=each.verdict,
            )
        record = LaneRecord(
            batch=self._batch,
            max_stable=_finite(state.max_stable),
            origin=_finite(self.origin),
            leader=None if state.leader is None else str(state.leader),
            merged_safe=note.merged_end,
            safe_at_ms=note.at_ms,
            control_offset=control_offset,
            inputs=inputs,
        )
        return Prepared(encode_batch(self._pending), record)

    def committed(self) -> None:
        """Say that what `prepare` returned is committed."""
        self._pending = []
        self._changed = False
        del self._notes[: self._oldest_note()]

    def _oldest_note(self) -> int:
        """Return the place of the note that the oldest live node needs: that of its batch, or an earlier one."""
        oldest = self.merge.oldest_batch
        if oldest is None:
            return len(self._notes) - 1
        return bisect_right(self._notes, oldest, key=lambda note: note.batch) - 1

    def _safe_point(self) -> Note:
        """Return from where a successor has to read; without live nodes, from here."""
        note = self._notes[self._oldest_note()]
        return self._note(note.merged_end, note.at_ms) if self.merge.oldest_batch is None else note


def _finite(t: int) -> int | None:
    return None if t == MINUS_INFINITY else t
