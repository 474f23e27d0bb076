"""What R3 and R4 share: an index of live nodes, and recovery by re-feeding."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from lmerge.elements import Adjust, Element, Insert
from lmerge.facts import Fact, StreamId
from lmerge.membership import Stream
from lmerge.merge import Merge
from lmerge.state import MergeState, NodeState, StreamState
from lmerge.top_tier import TopTier


class IndexedMerge(Merge):
    """A merge of streams with disorder and revisions."""

    _index: TopTier[Any]

    @abstractmethod
    def _output_ends(self, node: Any) -> tuple[int, ...]:
        """Return the live ends that the output gives a node."""

    @abstractmethod
    def _refeed_one(self, slot: int, element: Insert | Adjust) -> None:
        """Note what a stream says about an event again, silently and unchecked."""

    def _inserts(
        self, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        """Take inserts; the most common, of an event that the output has with the same end, without any call."""
        find, slot, crowd = self._index.nodes.get, stream.slot, self._index.crowd
        lowest = max(stream.own_stable, self._floor)
        for place in range(begin, len(elements)):
            element = elements[place]
            if type(element) is not Insert:  # a run of inserts is over; isinstance would cost twice as much
                return place, None
            vs = element.vs
            if vs >= lowest:
                node = find((vs, element.payload))
                if node is not None and node.out == element.ve and slot not in node.ends and len(node.ends) < crowd:
                    node.ends[slot] = node.out
                    continue
            stop = self._insert_one(stream, element, output)
            if stop is not None:
                return place, stop
        return len(elements), None

    def _reached(self) -> int:
        return self._max_stable

    def _held(self) -> int:
        return len(self._index)

    def _admit(self, stream: Stream) -> None:
        self._index.admit(stream.slot)

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        self._index.forget(stream.slot)

    @property
    def oldest_batch(self) -> int | None:
        """The batch that made the oldest live node; None if there is none."""
        return self._index.oldest_batch

    def dump(self) -> MergeState:
        """Return the scalars and the output's part of every node."""
        nodes = (NodeState(node.vs, node.payload, self._output_ends(node)) for node in self._index.nodes.values())
        return msgspec.structs.replace(self.scalars(), nodes=tuple(nodes))

    def _restore(self, stream: Stream, kept: StreamState) -> None:
        super()._restore(stream, kept)
        self._members.refeed(stream, done=False)

    def refeed(self, stream_id: StreamId, elements: Sequence[Element], *, done: bool) -> None:
        """Take again what a stream said (RS 3.4); what it said of itself came with the state."""
        super().refeed(stream_id, elements, done=done)
        slot = self._members[stream_id].slot
        for element in elements:
            if isinstance(element, Insert | Adjust):
                self._refeed_one(slot, element)
