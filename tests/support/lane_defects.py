"""The defects of recovery-and-sink 10 that concern the merge, each planted in what production runs.

Left out: carried without entries, carried not written through, carried fed again (carried nodes are to come); sink
keyed by task, tail read before fence, batch compared without incarnation, rows unsorted (the sink's, which has tests of
its own); before per lane (the replica's, which takes the minimum over the lanes). "No skip record" is the replica's
too; here the merge does not heed it. In which order a lane is taken over, and what is shown of it, is the runner's
business: `read before fence`, `before from memory` (a signal is sent before its transaction is committed) and `joined
by uncommitted stable` are planted in the owner and in the outside of the simulated world.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from lmerge import MINUS_INFINITY, Adjust, Element, Insert, MergeState, Stable
from lmerge.codec import decode_batch
from lmerge.elements import Skip
from lmerge.facts import Fact, Violation
from lmerge.in3t import Ends, In3T, Node
from lmerge.indexed import IndexedMerge
from lmerge.membership import Membership, Stream
from lmerge.merge import Merge
from lmerge.ordered import OrderedMerge
from lmerge.r1 import R1
from lmerge.r3 import R3
from lmerge.r4 import R4
from lmerge.state import StreamState
from services.merge.lane import Lane, Prepared
from services.merge.lane_input import Input, Values
from services.merge.lane_record import InputRecord, LaneRecord, Stop
from services.merge.recovery import Recovery
from services.merge.safe_points import Note, SafePoints
from tests.support.lane import MemoryLane
from tests.support.lane_owner import Owner, recover
from tests.support.lane_world import LaneWorld

Plant = Callable[[pytest.MonkeyPatch], None]

DEFECTS: dict[str, Plant] = {}


def defect(name: str) -> Callable[[Plant], Plant]:
    """Enter a defect under its name."""

    def enter(plant: Plant) -> Plant:
        DEFECTS[name] = plant
        return plant

    return enter


@defect("safe point after the batch")
def _(patch: pytest.MonkeyPatch) -> None:
    take = Lane.take

    def begin_batch(self: Lane, *, merged_end: int, now_ms: int) -> None:
        self._batch += 1
        self._after = merged_end, now_ms  # type: ignore[attr-defined]
        self.merge.begin_batch(self._batch)

    def take_and_note(self: Lane, *arguments: Any, **options: Any) -> None:
        take(self, *arguments, **options)
        self._safe.add(self._note(*self._after))  # type: ignore[attr-defined]

    patch.setattr(Lane, "_after", (0, 0), raising=False)  # some cases take without a batch
    patch.setattr(Lane, "begin_batch", begin_batch)
    patch.setattr(Lane, "take", take_and_note)


@defect("safe point by output events")
def _(patch: pytest.MonkeyPatch) -> None:
    def oldest_batch(self: IndexedMerge) -> int | None:
        return min((node.batch for node in self._index.nodes.values() if self._output_ends(node)), default=None)

    patch.setattr(IndexedMerge, "oldest_batch", property(oldest_batch))


@defect("loaded nodes stamped now")
def _(patch: pytest.MonkeyPatch) -> None:
    resume = Lane.resume

    def resume_now(self: Lane, state: MergeState, inputs: dict[str, Input], record: LaneRecord) -> None:
        resume(self, state, inputs, record)
        now = {each.attachment: each.position for each in inputs.values()}
        self._safe = SafePoints(Note(self._batch, now, record.merged_safe, record.at_ms))

    patch.setattr(Lane, "resume", resume_now)


@defect("ms from the suffix")
def _(patch: pytest.MonkeyPatch) -> None:
    merged = Recovery.merged

    def merged_with_stables(self: Recovery, elements: Sequence[Element]) -> None:
        stables = [element.vc for element in elements if isinstance(element, Stable)]
        self._record = msgspec.structs.replace(self._record, max_stable=stables[-1] if stables else None)
        merged(self, elements)

    patch.setattr(Recovery, "merged", merged_with_stables)


@defect("J not stored")
def _(patch: pytest.MonkeyPatch) -> None:
    _store(patch, joins_at=lambda _: None)


@defect("own stable not stored")
def _(patch: pytest.MonkeyPatch) -> None:
    _store(patch, own_stable=lambda _: None)


@defect("re-feed cursor committed as P")
def _(patch: pytest.MonkeyPatch) -> None:
    _store(patch, position=lambda state: state.cursor)


def _store(patch: pytest.MonkeyPatch, **fields: Callable[[Input], Any]) -> None:
    """Let the lane record of an input have other values in some fields."""
    stored = Lane._input_record

    def stored_otherwise(self: Lane, name: str, each: Input, kept: StreamState | None, note: Note) -> InputRecord:
        record = stored(self, name, each, kept, note)
        return msgspec.structs.replace(record, **{field: value(each) for field, value in fields.items()})

    patch.setattr(Lane, "_input_record", stored_otherwise)


@defect("late input re-fed from P")
def _(patch: pytest.MonkeyPatch) -> None:
    stored = Lane._input_record

    def stored_otherwise(self: Lane, name: str, each: Input, kept: StreamState | None, note: Note) -> InputRecord:
        vector = {each.attachment: each.position, **note.vector}
        return stored(self, name, each, kept, Note(note.batch, vector, note.merged_end, note.at_ms))

    patch.setattr(Lane, "_input_record", stored_otherwise)


@defect("lead while re-feeding")
def _(patch: pytest.MonkeyPatch) -> None:
    def refeed(self: Membership, stream: Stream, *, done: bool) -> None:  # noqa: ARG001
        self._find_earliest()

    patch.setattr(Membership, "refeed", refeed)


@defect("contract check in the re-feed")
def _(patch: pytest.MonkeyPatch) -> None:
    refeed = Lane._refeed

    def checked(self: Lane, name: str, records: Values) -> Values:
        own_stable = self.merge.scalars().streams[name].own_stable
        rest = refeed(self, name, records)
        for element in decode_batch(records.values)[0]:
            if isinstance(element, Insert) and element.vs < own_stable and self.inputs[name].is_merged:
                self._stop(name, Stop("quarantined", "it comes after its own stable"))
        return rest

    patch.setattr(Lane, "_refeed", checked)


@defect("R1 counters lost")
def _(patch: pytest.MonkeyPatch) -> None:
    load = R1.load

    def load_without(self: R1, state: MergeState) -> None:
        streams = {name: msgspec.structs.replace(kept, count=0) for name, kept in state.streams.items()}
        load(self, msgspec.structs.replace(state, streams=streams))

    patch.setattr(R1, "load", load_without)


@defect("MAX over attached")
def _(patch: pytest.MonkeyPatch) -> None:
    def is_new(self: R1, stream: Stream, element: Insert) -> bool:
        vs = element.vs
        most = max((other.count for other in self._members if other.last_vs == vs), default=0)
        stream.count = stream.count + 1 if stream.last_vs == vs else 1
        return stream.count > most

    patch.setattr(R1, "_is_new", is_new)


def _without_floor(method: Callable[[In3T, Node, Ends, int], None]) -> Callable[[In3T, Node, Ends, int], None]:
    """Let a node keep what is final."""

    def keeping(self: In3T, node: Node, out: Ends, _floor: int) -> None:
        method(self, node, out, MINUS_INFINITY)

    return keeping


@defect("R4 compares frozen parts")
def _(patch: pytest.MonkeyPatch) -> None:
    reconcile = R4._reconcile

    def whole(self: R4, slot: int, node: Node, t: int, output: list[Element]) -> Ends:
        stable, self._max_stable = self._max_stable, MINUS_INFINITY
        try:
            return reconcile(self, slot, node, t, output)
        finally:
            self._max_stable = stable

    patch.setattr(R4, "_reconcile", whole)
    for name in ("freeze_at", "set_output"):
        patch.setattr(In3T, name, _without_floor(getattr(In3T, name)))


@defect("read before fence")
def _(patch: pytest.MonkeyPatch) -> None:
    def take_over(
        cls: type[Owner], broker: Any, config: Any, wanted: Any, *, meanwhile: Callable[[], object] = lambda: None
    ) -> Owner:
        lane = recover(broker, config, wanted)
        meanwhile()
        owner = cls(broker, broker.fence(), lane)
        owner.follow(wanted)
        return owner

    patch.setattr(Owner, "take_over", classmethod(take_over))


@defect("joined by uncommitted stable")
def _(patch: pytest.MonkeyPatch) -> None:
    def is_joined(self: LaneWorld, name: str) -> bool:
        state = self.owner.lane.inputs[name]
        return state.is_merged and not state.paused and self.owner.lane.merge.is_joined(name)

    def joined(self: MemoryLane, name: str) -> bool:
        return self.lane.merge.is_joined(name)

    patch.setattr(LaneWorld, "is_joined", is_joined)
    patch.setattr(MemoryLane, "joined", joined)


@defect("joiner ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    for algorithm in (R3, R4):
        for kind in ("_insert", "_adjust"):
            _ignore_joiner(patch, algorithm, kind)
    inserts = IndexedMerge._inserts

    def taken(
        self: IndexedMerge, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        return inserts(self, stream, elements, begin, output) if stream.joined else (begin + 1, None)

    patch.setattr(IndexedMerge, "_inserts", taken)


def _ignore_joiner(patch: pytest.MonkeyPatch, algorithm: type[Merge], kind: str) -> None:
    take = getattr(algorithm, kind)

    def taken(self: Merge, stream: Stream, element: Element, output: list[Element]) -> Fact | None:
        result: Fact | None = take(self, stream, element, output) if stream.joined else None
        return None if isinstance(element, Adjust) and isinstance(result, Violation) else result

    patch.setattr(algorithm, kind, taken)


@defect("joiner used in R0-R2")
def _(patch: pytest.MonkeyPatch) -> None:
    inserts = OrderedMerge._inserts

    def used(
        self: OrderedMerge, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        stream.joined = True
        return inserts(self, stream, elements, begin, output)

    patch.setattr(OrderedMerge, "_inserts", used)


@defect("joiner's stable forgotten")
def _(patch: pytest.MonkeyPatch) -> None:
    def lead_joined(self: Merge, output: list[Element]) -> None:  # noqa: ARG001
        self._members.join(self._reached())

    patch.setattr(Merge, "_lead_joined", lead_joined)


@defect("before from an input's stable")
def _(patch: pytest.MonkeyPatch) -> None:
    signal = Lane._signal

    def too_far(self: Lane, name: str, before: int) -> None:
        furthest = max(kept.own_stable for kept in self.merge.scalars().streams.values())
        signal(self, name, max(before, furthest))

    patch.setattr(Lane, "_signal", too_far)


@defect("before from memory")
def _(patch: pytest.MonkeyPatch) -> None:
    prepare = Owner.prepare

    def prepare_and_tell(self: Owner, **options: Any) -> Prepared | None:
        prepared = prepare(self, **options)
        if prepared is None:
            return None
        self.broker.signals += prepared.signals
        return prepared._replace(signals=[])

    prepare_alone = MemoryLane.prepare

    def prepare_alone_and_tell(self: MemoryLane) -> Prepared | None:
        prepared = prepare_alone(self)
        if prepared is None:
            return None
        self.signals += prepared.signals
        return prepared._replace(signals=[])

    patch.setattr(Owner, "prepare", prepare_and_tell)
    patch.setattr(MemoryLane, "prepare", prepare_alone_and_tell)


@defect("no skip record heeded")
def _(patch: pytest.MonkeyPatch) -> None:
    def skip(self: Merge, stream: Stream, skip: Skip) -> None:
        """Do nothing."""

    patch.setattr(Merge, "_skip", skip)
