"""A lane: one partition of one merge. Pure: records and time in; values to write, a lane record and reads to make out.

    follow     what is wanted: inputs come, go, are held or released
    reads      what is to be read, and from where
    take       records of one input: sought, re-fed or merged (`lane_input`)
    met_end    all of one input was read
    prepare    the next transaction: merged elements, signals to laggards, the lane record
    committed  it is durable

Only what is committed counts: if a transaction fails, the lane is thrown away and made anew from the last committed
record (`recovery`). What an input does wrong stops that input and no other.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lmerge import INFINITY, MINUS_INFINITY, Divergence, Element, Hello, Skip, Violation
from lmerge.codec import encode_batch
from lmerge.errors import IllegalElement, UsageError
from lmerge.facts import Dropped, Fact, Joined
from lmerge.signals import Signal
from lmerge.state import MergeState, StreamState
from services.merge import feedback
from services.merge.decoding import Decoder
from services.merge.definitions import Attachment
from services.merge.feedback import Told
from services.merge.lane_config import LaneConfig
from services.merge.lane_input import NONE, Input, Values, begin_without_hello, finite, hellos, looks_like_hello, search
from services.merge.lane_notes import LaneNotes, shortened, shortened_plan
from services.merge.lane_record import VERSION, InputRecord, LaneRecord, Seek, Stop
from services.merge.safe_points import Note, SafePoints

FRAMING_BYTES: Final = 512
"""What a record of the merged topic has beside its payload, at most: an adjust's fields, a run's label, Kafka's own."""

POSITIONS_MS: Final = 200
"""Positions alone wait for so long: of n inputs that agree, n - 1 put out nothing, and their transactions would cost a
broker more than all the others (RS 2). A successor reads a little more again."""

IDLE_MS: Final = 3_000
"""A lane commits at least so often, so that everyone sees that it is owned, and a re-feed stays short (RS 2)."""


class Prepared(NamedTuple):
    """What the next transaction of the lane holds."""

    values: list[bytes]
    signals: list[Signal]
    record: LaneRecord


class Lane:
    """One merge of one partition.

    Args:
        config: what the lane has to know of its merge.
    """

    def __init__(self, config: LaneConfig) -> None:
        self.config = config
        self.inputs: dict[str, Input] = {}
        self.merge = config.new_merge()
        self._decoder = Decoder()
        self.notes = LaneNotes()
        self.moved: set[str] = set()
        """Inputs whose reading has to begin anew at another offset; the caller empties it."""
        self.max_record_bytes: int | None = None
        """The largest record that the merged topic takes; None: any."""
        self._pending: list[Element] = []
        self._signals: list[Signal] = []
        self._batch = 0
        self._safe = SafePoints(Note(0, {}, 0, 0))
        # R2: where in the merged topic the events with the largest vs begin, since when, and that vs.
        self._vs_began = self._vs_began_ms = 0
        self._max_vs = MINUS_INFINITY
        # Something that others want to see at once; or only that elements were taken, which put out nothing.
        self._changed = self._advanced = False
        self._committed_at_ms = 0

    def open(self) -> None:
        """Begin the merged stream: it says where it is complete from, so that it can be merged itself (RS 5.6).

        Raises:
            UsageError: that cannot be known.
        """
        joins_at = self.config.complete_from
        if joins_at is None:
            where = f"merge {self.config.merge}: it begins at {self.config.origin}, and "
            if self.config.normal_form:
                raise UsageError(where + "without cuts its runs may reach back further: say cut_every_ms")
            raise UsageError(where + "puts out nothing that began before: say longest_lifetime_ms in its definition")
        self._pending.append(
            Hello(replica=self.config.merge, incarnation=1, joins_at=joins_at, feed=self.config.feed, plan="merge")
        )

    def resume(self, state: MergeState, inputs: dict[str, Input], record: LaneRecord) -> None:
        """Go on after a recovery; loaded nodes keep the recovered safe point, also through a second crash (E3)."""
        self._batch = record.batch + 1
        safe = {each.attachment: each.safe for each in record.inputs.values()}
        self._safe = SafePoints(Note(self._batch, safe, record.merged_safe, record.safe_at_ms))
        self._vs_began, self._vs_began_ms, self._max_vs = record.merged_safe, record.safe_at_ms, state.max_vs
        self.notes.resume(record)
        self.inputs = inputs
        self.merge.begin_batch(self._batch)
        self.merge.load(state)
        for name, each in inputs.items():
            if self.config.is_indexed and each.is_merged and each.cursor >= each.position:
                self._refed(name, [])
        self._changed = True

    # -- inputs come and go

    def follow(self, wanted: Mapping[str, Attachment]) -> list[str]:
        """Let go of inputs that are not wanted any more, carry out orders, and return the names of those to attach."""
        for name, state in list(self.inputs.items()):
            if name not in wanted or wanted[name].attachment != state.attachment:
                self.detach(name)
        for name, attachment in wanted.items():
            if name in self.inputs:
                self._obey(name, attachment)
        return [name for name in wanted if name not in self.inputs]

    def attach(self, name: str, wanted: Attachment, *, low: int, until: int, topic_id: str = "") -> None:
        """Attach an input whose topic holds records from `low` on; `until` is the offset after its last record.

        Its newest incarnation is looked for first; where the topic is empty, its first record is awaited, since that
        may be a hello.
        """
        definition = wanted.definition
        joins_at = MINUS_INFINITY if definition.joins_at is None else definition.joins_at
        state = Input(wanted.attachment, definition.topic, low, low, topic_id, joins_at, form=self.config.new_form())
        state.paused = wanted.paused
        state.handled = _standing(wanted)
        state.seek = Seek(until, begin_without_hello(definition, low))
        self.inputs[name] = state
        self.moved.add(name)  # its topic may be being read, for one who was detached in the same moment
        self._changed = True
        self._happen("attached", name, f"its topic {definition.topic} is read from offset {low} on")

    def attach_missing(self, name: str, wanted: Attachment, reason: str) -> None:
        """Attach an input whose topic cannot be read."""
        gap = Stop("gap", reason)
        self.inputs[name] = Input(wanted.attachment, wanted.definition.topic, 0, 0, stop=gap, handled=_standing(wanted))
        self._happen("attached", name, f"its topic {wanted.definition.topic} cannot be read")
        self._happen("gap", name, reason)

    def detach(self, name: str) -> None:
        """Forget an input."""
        state = self.inputs.pop(name)
        if state.is_merged:
            self.merge.detach(name)
        self.moved.discard(name)
        self._changed = True
        self._happen("detached", name, "by order; what it has said stays")

    def gap(self, name: str, reason: str, *, low: int | None = None, until: int = 0) -> None:
        """Let go of an input whose records are gone: it would look complete and is not (RS 4.7).

        It comes back with its next hello, if its topic is still there (`low` is where that begins now).
        """
        state = self.inputs[name]
        if state.is_merged:
            self.merge.detach(name)
        state.backlog = NONE
        if low is None:
            state.stop = Stop("gap", reason)
        else:
            state.seek = Seek(until, None, why=reason)
            state.go_to(low)
            self.moved.add(name)
        self._happen("gap", name, reason)

    def _obey(self, name: str, wanted: Attachment) -> None:
        state = self.inputs[name]
        if state.paused != wanted.paused:
            state.paused = wanted.paused
            self._changed = True
            if state.backlog.offsets:  # nothing new of it is merged during a pause: it is read again after
                state.backlog, state.cursor = NONE, state.position
                self.moved.add(name)
        forward, release = wanted.fast_forward, wanted.release
        if forward is not None and forward.id not in state.handled and self._may_skip(forward.before):
            _note_handled(state, wanted, forward.id)
            self._signal(name, forward.before)
        if release is not None and release.id not in state.handled:
            _note_handled(state, wanted, release.id)
            self._release(name, skip_record=release.skip_record)

    def _may_skip(self, before: int) -> bool:
        bound = self.config.may_skip_to(self.merge.max_stable)
        return bound is not None and before <= bound

    def _release(self, name: str, *, skip_record: bool) -> None:
        """Lift a quarantine: going on at the present position would not be sound (RS 5.7).

        Nor would it be to leave out a hello: what follows it would be merged into the incarnation before, or be taken
        for complete. Whatever the order says, the next hello is awaited then.
        """
        state = self.inputs[name]
        stop = state.stop
        if stop is None:
            return
        if stop.kind == "gap":
            self.detach(name)  # the topic may be there again: attach it anew
        elif skip_record and not stop.at_hello:
            state.skipped += () if stop.offset is None else (stop.offset,)
            state.form = self.config.new_form()
            state.stop, state.seek = None, Seek(state.start + 1, state.start)
            state.go_to(state.start)
            self.moved.add(name)
        else:
            state.stop, state.seek = None, Seek(0, None, why=stop.reason)
            state.go_to(state.position if stop.offset is None else stop.offset + 1)
            self.moved.add(name)
        self._happen("released", name, f"by order; it had been stopped: {stop.reason}")

    # -- records in

    def reads(self) -> dict[str, int]:
        """Return what is to be read: topic to offset."""
        return {state.topic: state.cursor for state in self.inputs.values() if state.is_wanted}

    def begin_batch(self, *, merged_end: int, now_ms: int) -> None:
        """Note where everything stands. `merged_end` may be too small, never too large."""
        self._batch += 1
        self._safe.add(self._note(merged_end, now_ms))
        self.merge.begin_batch(self._batch)

    def _note(self, merged_end: int, at_ms: int) -> Note:
        # While it is re-fed an input is read below its position, and while it is held beyond it.
        vector = {s.attachment: min(s.cursor, s.position) for s in self.inputs.values() if s.is_merged}
        return Note(self._batch, vector, merged_end, at_ms)

    def take(self, name: str, offsets: Sequence[int], values: Sequence[bytes | None], *, now_ms: int = 0) -> None:
        """Process records of one input, in order. Those that it does not want now are to be read again (`moved`)."""
        state = self.inputs[name]
        late = sum(offset < state.cursor for offset in offsets) if offsets and offsets[0] < state.cursor else 0
        records = Values(offsets, values).since(late)
        if not records.offsets:
            return
        if not state.is_wanted:
            self.moved.add(name)
            return
        if state.seek is not None:
            # It speaks, though nothing of it is merged; a search that is taken over goes on where it was.
            state.heard_at_ms = now_ms
            self._search(name, state.seek, records)
            return
        if state.cursor < state.position:
            records = self._refeed(name, records)
        if records.offsets and state.is_merged:
            if state.paused:
                self.moved.add(name)
            else:
                state.heard_at_ms = now_ms  # here: what is re-fed was heard before, perhaps long ago
                self._merge(name, records)
        self._let_held_go_on()

    def met_end(self, name: str, end: int) -> None:
        """Note that all was read that was committed before an offset: behind the last record come markers only.

        If retention empties the topic of an idle input, these go too, and nothing is lost with them.
        """
        state = self.inputs[name]
        if not state.is_wanted or name in self.moved or state.cursor >= end:
            return
        if state.cursor < state.position <= end:
            state.cursor = state.position
            self._refed(name, [])
        if state.cursor == state.position:
            state.go_to(end)

    def _search(self, name: str, seek: Seek, records: Values) -> None:
        state = self.inputs[name]
        state.go_to(records.offsets[-1] + 1)
        state.seek, begin = search(seek, records, state.skipped)
        self._changed = True
        if begin is not None:
            self._begin(name, begin)

    def _begin(self, name: str, offset: int) -> None:
        """Begin to merge an input, at its hello or where its topic begins.

        Where there is a hello, only that says from where it is complete. Until it is read the input must not look
        joined: a commit may come between, and somebody may detach the others because of it (E21).
        """
        state = self.inputs[name]
        at_hello = state.seek is not None and state.seek.found == offset
        state.seek = None
        state.start = offset
        self._safe.forget_input(state.attachment)
        if state.cursor != offset:
            self.moved.add(name)
        state.go_to(offset)
        self.merge.attach(name, joins_at=INFINITY if at_hello else self.config.joins_at(state.joins_at))
        self._changed = True

    def _refeed(self, name: str, records: Values) -> Values:
        """Note again, silently, what an input said before the recovery; return what is new (RS 3.4)."""
        state = self.inputs[name]
        known = sum(offset < state.position for offset in records.offsets)
        again = Values(records.offsets[:known], records.values[:known]).without(state.skipped)
        elements, error = self._decoder.decode(again.values)
        assert error is None, "what was taken before can be decoded"
        if known < len(records.offsets):
            state.cursor = state.position  # between the last of them and what is new there were markers only
        else:
            state.cursor = records.offsets[-1] + 1
        formed = self._formed(state, elements)
        if state.cursor >= state.position:
            self._refed(name, formed)
        else:
            self.merge.refeed(name, formed, done=False)
        return records.since(known)

    def _refed(self, name: str, rest: Sequence[Element]) -> None:
        """Note the last of what an input said before the recovery: it may lead now (E8)."""
        self.merge.refeed(name, rest, done=True)
        self._pending += self.merge.process(name, [])
        self._digest(self.merge.take_facts())
        self._changed = True

    def _formed(self, state: Input, elements: Sequence[Element]) -> Sequence[Element]:
        if state.form is None:
            return elements
        return [formed for element in elements for formed in state.form.process(element)]

    def _merge(self, name: str, records: Values) -> None:
        """Merge records as far as they go: to the end, to one that must wait, or to one that breaks the contract."""
        state = self.inputs[name]
        end = records.offsets[-1] + 1
        records = records.without(state.skipped)
        most = None if self.max_record_bytes is None else self.max_record_bytes - FRAMING_BYTES
        elements, malformed = self._decoder.decode(records.values, most=most)
        begin = 0
        for place in [*hellos(elements), len(elements)]:
            some = elements if place - begin == len(elements) else elements[begin:place]
            if not self._process(name, some, records.since(begin)):
                return
            if place < len(elements) and (verdict := self.config.why_refused(elements[place])):
                state.go_to(records.offsets[place])
                self._stop(name, Stop("quarantined", verdict, records.offsets[place], at_hello=True))
                return
            begin = place
        state.go_to(end)
        self._advanced = True  # also over records that are left out by order
        if malformed is not None:
            bad = records.offsets[malformed.index]
            state.go_to(bad)
            at_hello = looks_like_hello(records.values[malformed.index])
            self._stop(name, Stop("quarantined", f"offset {bad}: {malformed.reason}", bad, at_hello))

    def _process(self, name: str, elements: Sequence[Element], records: Values) -> bool:
        """Merge elements between two hellos, the first of which may be one; tell whether all were taken."""
        state = self.inputs[name]
        taken = len(elements)
        illegal: Stop | None = None
        if state.form is None:
            self._pending += self.merge.process(name, elements)
            taken = self.merge.consumed(name)
        else:
            taken, illegal = self._process_formed(name, elements, records)
        self._advanced = self._advanced or taken > 0
        skips = state.taken[Skip]
        state.taken.update(map(type, elements if taken == len(elements) else elements[:taken]))
        if taken and isinstance(first := elements[0], Hello):
            state.start, state.incarnation = records.offsets[0], first.incarnation
            state.plan = shortened_plan(first.plan)
            state.skip = None
        if state.taken[Skip] > skips:
            self._note_skip(name, elements[:taken])
        if self.config.algorithm == "R2":
            self._note_max_vs()
        violation = self._digest(self.merge.take_facts())
        if state.stop is not None:  # by the majority
            if taken:
                state.go_to(records.offsets[taken - 1] + 1)
            return False
        if taken == len(elements) and illegal is None:
            return True
        state.go_to(records.offsets[taken])
        if illegal is not None:
            self._stop(name, illegal)
        elif violation is not None:
            where = records.offsets[taken]
            text = f"offset {where}: {violation.detail} ({violation.rule.value})"
            self._stop(name, Stop("quarantined", text, where))
        else:
            state.backlog = records.since(taken)
            state.cursor = records.offsets[-1] + 1
        return False

    def _note_skip(self, name: str, elements: Sequence[Element]) -> None:
        skips = [element for element in elements if isinstance(element, Skip)]
        skip = self.inputs[name].skip = max(skips, key=lambda skip: skip.before)
        not_read = f"; so far it did not read {skip.cuts} cuts with {skip.rows} rows" if skip.cuts else ""
        self._happen("skipped", name, f"it lacks what ends before {skip.before}{not_read}")

    def _process_formed(self, name: str, elements: Sequence[Element], records: Values) -> tuple[int, Stop | None]:
        state = self.inputs[name]
        assert state.form is not None
        for index, element in enumerate(elements):
            try:
                formed = state.form.process(element)
            except IllegalElement as error:
                where = records.offsets[index]
                return index, Stop("quarantined", f"offset {where}: {error}", where, isinstance(element, Hello))
            self._pending += self.merge.process(name, formed)
        return len(elements), None

    def _let_held_go_on(self) -> None:
        """Take what waits in R0 to R2 of inputs that have joined meanwhile; that may let others join."""
        while ready := [n for n, s in self.inputs.items() if s.backlog.offsets and self.merge.is_joined(n)]:
            for name in ready:
                state = self.inputs[name]
                waiting, state.backlog = state.backlog, NONE
                self._merge(name, waiting)

    def _note_max_vs(self) -> None:
        max_vs = self.merge.scalars().max_vs
        if max_vs != self._max_vs:
            self._max_vs, newest = max_vs, self._safe.newest
            self._vs_began, self._vs_began_ms = newest.merged_end, newest.at_ms

    def _digest(self, facts: Sequence[Fact]) -> Violation | None:
        violation = None
        for fact in facts:
            if isinstance(fact, Violation):
                violation = fact
            elif isinstance(fact, Dropped):
                self.inputs[str(fact.stream_id)].dropped[fact.reason.name.lower()] += fact.count
            elif isinstance(fact, Joined):
                self._happen("joined", str(fact.stream_id), "it may lead from now on")
            elif isinstance(fact, Divergence):
                self._note_divergence(fact)
        return violation

    def _note_divergence(self, fact: Divergence) -> None:
        odd, text = self.notes.diverged(fact)
        self._changed = True
        if self.config.quarantine_diverging and odd is not None and self.inputs[odd].is_merged:
            self._stop(odd, Stop("quarantined", f"it contradicts the majority about an event: {text}"))

    def _stop(self, name: str, stop: Stop) -> None:
        state = self.inputs[name]
        stop = shortened(stop)
        state.stop = stop
        state.cursor, state.backlog = state.position, NONE
        self.merge.detach(name)
        self._happen(stop.kind, name, stop.reason)

    def _happen(self, kind: str, name: str, text: str) -> None:
        self.notes.happen(kind, name, text)
        self._changed = True

    # -- transactions out

    def prepare(
        self, *, merged_end: int = 0, now_ms: int = 0, owner: str = "", control_offset: int = 0
    ) -> Prepared | None:
        """Return what is to be committed now; None if nothing has changed and the last commit is not long ago.

        `merged_end` is as in `begin_batch`.
        """
        longest = POSITIONS_MS if self._advanced else IDLE_MS
        if not self._changed and not self._pending and now_ms - self._committed_at_ms < longest:
            return None
        scalars = self.merge.scalars()
        stats = self.merge.stats()
        self._signal_laggards(scalars, now_ms)
        note = self._safe_point(merged_end, now_ms)
        record = LaneRecord(
            v=VERSION,
            merge_id=self.config.merge_id,
            batch=self._batch,
            at_ms=now_ms,
            owner=owner,
            max_stable=finite(scalars.max_stable),
            origin=finite(self.config.origin),
            leader=self.notes.led_by(scalars.leader),
            max_vs=finite(scalars.max_vs),
            emitted=scalars.emitted,
            merged_safe=self._vs_began if self.config.algorithm == "R2" else note.merged_end,
            safe_at_ms=self._vs_began_ms if self.config.algorithm == "R2" else note.at_ms,
            control_offset=control_offset,
            nodes=stats.nodes,
            bytes=stats.bytes,
            out=self.notes.put_out(stats),
            output_at_ms=now_ms if self._pending else self.notes.output_at_ms,
            leader_changes=self.notes.leader_changes,
            signals=self.notes.signals,
            divergences=self.notes.divergences,
            samples=self.notes.samples,
            inputs={
                name: self._input_record(name, each, scalars.streams.get(name), note)
                for name, each in self.inputs.items()
            },
        )
        return Prepared(encode_batch(self._pending), list(self._signals), record)

    def _input_record(self, name: str, each: Input, kept: StreamState | None, note: Note) -> InputRecord:
        # The normal form's state is a function of the whole incarnation: it is read again from its hello. And a search
        # may end where it began.
        whole = self.config.normal_form or each.seek is not None
        safe = each.start if whole else note.vector.get(each.attachment, each.start)
        joined = each.is_merged and self.merge.is_joined(name)
        return each.record(kept or StreamState(), safe=max(safe, each.start), joined=joined)

    def _safe_point(self, merged_end: int, now_ms: int) -> Note:
        """Return from where a successor has to read; without live nodes, from here."""
        oldest = self.merge.oldest_batch
        if oldest is not None:
            return self._safe.of(oldest)
        return self._note(max(merged_end, self._safe.newest.merged_end), now_ms)

    def committed(self, *, now_ms: int = 0) -> None:
        """Say that what `prepare` returned is committed."""
        if self._pending:
            self.notes.output_at_ms = now_ms
        self._pending, self._signals = [], []
        self._changed = self._advanced = False
        self._committed_at_ms = now_ms
        self._safe.forget_before(self.merge.oldest_batch)

    # -- feedback

    def _signal_laggards(self, scalars: MergeState, now_ms: int) -> None:
        lag_ms = self.config.lag_ms
        before = self.config.may_skip_to(scalars.max_stable)
        if lag_ms is None or before is None or scalars.max_stable == MINUS_INFINITY:
            return
        for name, state in self.inputs.items():
            kept = scalars.streams.get(name)
            if kept is None or state.paused or kept.own_stable == MINUS_INFINITY:
                continue
            told = Told(state.signalled, state.signalled_at_ms)
            reached = {"stable": scalars.max_stable, "own_stable": kept.own_stable, "lag_ms": lag_ms}
            if told.before is not None and feedback.has_caught_up(**reached):
                state.signalled = None
            elif kept.own_stable < before and feedback.is_due(
                told, **reached, interval_ms=self.config.signal_interval_ms, now_ms=now_ms
            ):
                self._signal(name, before)
                state.signalled_at_ms = now_ms

    def _signal(self, name: str, before: int) -> None:
        self.notes.signals += 1
        signal_id = f"{self.config.merge}/{self.config.partition}/{self.notes.signals}"
        merge_id, partition = self.config.merge_id, self.config.partition
        self._signals.append(Signal(id=signal_id, input=name, partition=partition, before=before, merge_id=merge_id))
        self.inputs[name].signalled = before
        self._happen("fast-forward", name, f"told to skip what ends before {before}")


def _standing(wanted: Attachment) -> tuple[str, ...]:
    """Return the ids of the orders that stand in what is wanted, carried out or not."""
    return tuple(order.id for order in (wanted.release, wanted.fast_forward) if order is not None)


def _note_handled(state: Input, wanted: Attachment, order_id: str) -> None:
    """Remember that an order was carried out, for as long as it stands: else it would be carried out again."""
    standing = _standing(wanted)
    state.handled = (*(each for each in state.handled if each in standing), order_id)
