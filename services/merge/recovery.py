"""Making a lane anew from its last record and its own output (recovery-and-sink 3). Pure: the loop reads.

    recovery = Recovery(record, desired)
    recovery.merged(elements)  ...      the merged topic from record.merged_safe to its end
    lane = recovery.lane()
    recovery.refeed(name, elements)  ...  each input of `to_refeed` from `safe` to `position`
    recovery.done(name)

Nothing is written and nothing is put out, so a crash in here is harmless.
"""

from collections.abc import Iterable, Mapping

from lmerge import MINUS_INFINITY, Adjust, Element, Insert, MergeState, NodeState, OutputPolicy, Payload, StreamState
from lmerge.facts import StreamId
from services.merge.definitions import Attachment
from services.merge.lane import Input, Lane, Note
from services.merge.lane_record import InputRecord, LaneRecord


class Recovery:
    """One recovery of one lane.

    Args:
        record: the last committed lane record.
        desired: the inputs that are wanted now; those of the record with another attachment, or none, are dropped.
        policy: the output policy.
    """

    def __init__(self, record: LaneRecord, desired: Mapping[str, Attachment], policy: OutputPolicy) -> None:
        self._record = record
        self._policy = policy
        self._known = {
            name: each
            for name, each in record.inputs.items()
            if name in desired and desired[name].attachment == each.attachment
        }
        # The output's end of each event key that the suffix of the merged topic has.
        self._ends: dict[tuple[int, Payload], int] = {}
        self._lane: Lane | None = None

    def merged(self, elements: Iterable[Element]) -> None:
        """Take elements of the merged topic; an adjust of an event that is not in the suffix is ignored (E20)."""
        for element in elements:
            if isinstance(element, Insert):
                self._ends[element.vs, element.payload] = element.ve
            elif isinstance(element, Adjust) and (element.vs, element.payload) in self._ends:
                if element.ve > element.vs:
                    self._ends[element.vs, element.payload] = element.ve
                else:
                    del self._ends[element.vs, element.payload]

    def lane(self) -> Lane:
        """Return the lane with the output's part loaded; its inputs still have to be re-fed."""
        record = self._record
        lane = Lane(self._policy, _instant(record.origin))
        batch = record.batch + 1
        stable = _instant(record.max_stable)
        nodes = (NodeState(vs, payload, (ve,)) for (vs, payload), ve in self._ends.items() if ve >= stable)
        streams: dict[StreamId, StreamState] = {
            name: StreamState(joins_at=_instant(each.joins_at), own_stable=_instant(each.own_stable))
            for name, each in self.to_refeed.items()
        }
        lane.merge.begin_batch(batch)
        lane.merge.load(MergeState(max_stable=stable, leader=record.leader, streams=streams, nodes=tuple(nodes)))
        # Loaded nodes keep the recovered safe point, also through a second crash (E3).
        safe = {each.attachment: each.safe for each in self._known.values()}
        lane.resume(
            Note(batch, safe, record.merged_safe, record.safe_at_ms),
            {name: _input(each) for name, each in self._known.items()},
        )
        self._lane = lane
        return lane

    @property
    def to_refeed(self) -> dict[str, InputRecord]:
        """The inputs that have to be re-fed, from `safe` to `position`; those that were stopped stay so."""
        return {name: each for name, each in self._known.items() if not each.verdict}

    def refeed(self, name: str, elements: list[Element], *, done: bool) -> None:
        """Give back elements of an input, in order; `done` with the last of them."""
        assert self._lane is not None
        self._lane.merge.refeed(name, elements, done=done)


def _input(each: InputRecord) -> Input:
    return Input(
        attachment=each.attachment,
        topic=each.topic,
        position=each.position,
        start=each.start,
        incarnation=each.incarnation,
        verdict=each.verdict,
    )


def _instant(t: int | None) -> int:
    return MINUS_INFINITY if t is None else t
