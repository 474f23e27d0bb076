"""What R3 and R4 share: an index of live nodes, and recovery by re-feeding."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Insert
from lmerge.facts import Fact, StreamId
from lmerge.membership import Stream
from lmerge.merge import Merge
from lmerge.state import MergeState, NodeState, StreamState
from lmerge.top_tier import TopNode, TopTier


class IndexedMerge(Merge):
    """A merge of streams with disorder and revisions."""

    _index: TopTier[Any]
    _new_node: type[TopNode]
    _puts_out_first = True
    """Whether an event goes out as soon as one stream has it."""

    @abstractmethod
    def _output_ends(self, node: Any) -> tuple[int, ...]:
        """Return the live ends that the output gives a node."""

    @abstractmethod
    def _refeed_one(self, slot: int, element: Insert | Adjust) -> None:
        """Note what a stream says about an event again, silently and unchecked."""

    def _inserts(
        self, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        """Take inserts; without any call the most common: of an event that nobody has told of yet, of one that the
        output has with the same end, and of one that was settled before (line 6 of the paper's R3 and R4).
        """  # noqa: D205
        nodes, slot, batch, new_node = self._index.nodes, stream.slot, self._batch, self._new_node
        find = nodes.get
        own_stable, max_stable = stream.own_stable, self._max_stable
        # What begins before the floor is settled: a laggard's inserts are dropped by it without a look-up.
        lowest = max(own_stable, self._index.floor)
        new_from = max(max_stable, lowest) if self._puts_out_first else INFINITY
        new: list[Any] = []
        place, stop = begin, None
        for element in islice(elements, begin, None):
            if type(element) is not Insert:  # a run of inserts is over; isinstance would cost twice as much
                break
            vs = element.vs
            if vs >= lowest:
                key = vs, element.payload
                node = find(key)
                if node is None:
                    if vs >= new_from:
                        nodes[key] = node = new_node(vs, element.payload, batch, element.ve, slot)
                        new.append(node)
                        output.append(element)
                        place += 1
                        continue
                    if vs < max_stable:
                        self._settled += 1
                        place += 1
                        continue
                elif (
                    node.out == element.ve
                    and not node.agree & slot
                    and ((others := node.ends) is None or slot not in others)
                ):
                    node.agree |= slot
                    place += 1
                    continue
            elif vs >= own_stable:
                self._settled += 1
                place += 1
                continue
            stop = self._insert_one(stream, element, output)
            if stop is not None:
                break
            place += 1
        self._index.enter(new)
        return place, stop

    def _spoken_beyond(self) -> Callable[[int], int]:
        """Return a function that tells how far those joined streams have come whose slots are not in a sum of slots.

        What they do not say about an event that begins at or after that, they may still say.
        """
        joined = [(stream.slot, stream.own_stable) for stream in self._members if stream.joined]
        known: dict[int, int] = {}

        def spoken(agree: int) -> int:
            latest = known.get(agree)
            if latest is None:
                silent = (own_stable for slot, own_stable in joined if not agree & slot)
                latest = known[agree] = max(silent, default=MINUS_INFINITY)
            return latest

        return spoken

    def _reached(self) -> int:
        return self._max_stable

    def _held(self) -> int:
        return len(self._index)

    def _held_bytes(self) -> int:
        return self._index.estimate_bytes()

    def _admit(self, stream: Stream) -> None:
        stream.slot = self._index.admit()

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
