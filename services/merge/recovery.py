"""Making a lane anew from its last record and its own output (recovery-and-sink 3). Pure: the caller reads.

    recovery = Recovery(config, record, wanted)
    recovery.merged(elements)  ...      if it needs them: the merged topic from record.merged_safe to its end
    lane = recovery.lane()

The lane then reads its inputs again from their safe points, silently (`Lane.take`). Nothing is written and nothing is
put out in here, so a crash is harmless.
"""

from collections.abc import Iterable, Mapping

from lmerge import MINUS_INFINITY, Adjust, Element, Insert, MergeState, NodeState, Payload, StreamState
from lmerge.facts import StreamId
from services.merge.definitions import Attachment
from services.merge.lane import Lane
from services.merge.lane_config import LaneConfig
from services.merge.lane_input import Input
from services.merge.lane_record import InputRecord, LaneRecord


class Recovery:
    """One recovery of one lane.

    Args:
        config: what the lane has to know of its merge.
        record: the last committed lane record.
        wanted: the inputs that are wanted now; those of the record with another attachment, or none, are dropped.
    """

    def __init__(self, config: LaneConfig, record: LaneRecord, wanted: Mapping[str, Attachment]) -> None:
        self._config = config
        self._record = record
        self._known = {
            name: each
            for name, each in record.inputs.items()
            if name in wanted and wanted[name].attachment == each.attachment
        }
        self._joins_at = {name: _instant(wanted[name].definition.joins_at) for name in self._known}
        # The output's ends of each event key that the suffix of the merged topic has.
        self._ends: dict[tuple[int, Payload], list[int]] = {}
        self._max_vs = _instant(record.max_vs)
        self._payloads: set[Payload] = set()

    @property
    def needs_merged(self) -> bool:
        """Whether anything of the merged topic has to be read: only what is live, or is compared with what comes."""
        record = self._record
        if self._config.algorithm == "R2":
            return self._max_vs >= _instant(record.max_stable)
        return self._config.is_indexed and record.nodes > 0

    def merged(self, elements: Iterable[Element]) -> None:
        """Take elements of the merged topic; an adjust of an event that is not in the suffix is ignored (E20)."""
        for element in elements:
            if isinstance(element, Insert):
                if self._config.is_indexed:
                    self._ends.setdefault((element.vs, element.payload), []).append(element.ve)
                elif element.vs == self._max_vs:
                    self._payloads.add(element.payload)
            elif isinstance(element, Adjust):
                known = self._ends.get((element.vs, element.payload), [])
                if element.vold in known:
                    known.remove(element.vold)
                    if element.ve > element.vs:
                        known.append(element.ve)

    def lane(self) -> Lane:
        """Return the lane with the output's part loaded; its inputs are still to be re-fed."""
        record = self._record
        stable = _instant(record.max_stable)
        nodes = (
            NodeState(vs, payload, tuple(ends))
            for (vs, payload), ends in self._ends.items()
            if ends and max(ends) >= stable
        )
        streams: dict[StreamId, StreamState] = {
            name: StreamState(
                joins_at=_instant(each.joins_at),
                own_stable=_instant(each.own_stable),
                last_vs=_instant(each.last_vs),
                count=each.count,
            )
            for name, each in self._known.items()
            if each.seek is None and each.stop is None
        }
        state = MergeState(
            max_stable=stable,
            leader=record.leader,
            streams=streams,
            max_vs=self._max_vs,
            emitted=record.emitted,
            payloads=frozenset(self._payloads),
            nodes=tuple(nodes),
        )
        lane = Lane(self._config)
        lane.resume(state, {name: self._input(name, each) for name, each in self._known.items()}, record)
        return lane

    def _input(self, name: str, each: InputRecord) -> Input:
        refeeds = self._config.is_indexed and each.seek is None and each.stop is None
        return Input.recovered(
            each,
            cursor=each.safe if refeeds else each.position,
            form=self._config.new_form(),
            joins_at=self._joins_at[name],
        )


def _instant(t: int | None) -> int:
    return MINUS_INFINITY if t is None else t
