"""in2t, the index of R3 (paper 000, IV-D and Figure 1): one node per live (vs, payload), ends per stream below it.

Top tier      the nodes, found by (vs, payload), each event's payload kept once for all inputs (top_tier.py).
Bottom tier   for each stream the end that it gives the event, and beside it the end that the output has.

An end in a stream that is not below the output's needs no index: the node is reached through the output's end no later
than through its own. So the ends of a stream are indexed only where they lie *below* the output's (see top_tier.py).
"""

from collections.abc import Sequence
from typing import Final

from lmerge.elements import INFINITY, MINUS_INFINITY
from lmerge.top_tier import TopNode, TopTier

NOT_OUTPUT: Final = MINUS_INFINITY
"""The output's end of a node that has not been put out (policies other than `first`; nodes being re-fed)."""


class Node(TopNode, eq=False, gc=False):
    """One live event key; `out` is its end in the output, or NOT_OUTPUT. A stream that has removed it says nothing."""

    def end(self, slot: int, otherwise: int) -> int:
        """Return the end that a stream gives, or another number if it gives none."""
        end: int | None = self.of(slot)
        return otherwise if end is None else end


class In2T(TopTier[Node]):
    """The live nodes of R3."""

    def set_end(self, node: Node, slot: int, ve: int) -> None:
        """Note the end that a stream gives the event. O(1), and O(log w) if it lies below a half-frozen output's."""
        self._say(node, slot, ve)
        if node.frozen and ve < node.out:
            self._enter_own(slot, ve, node)

    def drop_end(self, node: Node, slot: int) -> None:
        """Note that a stream does not have the event any more. O(1)."""
        self._say(node, slot, None)

    def set_output(self, node: Node, ve: int) -> None:
        """Note the end that the output has given the event. O(s + log w) for s streams if the node is half frozen."""
        before = node.out
        self._change_output(node, ve)
        if node.frozen:
            self._out_ends.add(ve, node)
            self._index_ends(node, before)

    def keep(self, nodes: Sequence[Node]) -> None:
        """Go on with nodes that `freeze_below` gave: they are half frozen now. O(s + log w) each."""
        self._half_frozen += len(nodes)
        self._out_ends.add_all([node.out for node in nodes], nodes)
        for node in nodes:
            node.frozen = True
            if node.ends is not None:
                self._index_ends(node, MINUS_INFINITY)

    def _index_ends(self, node: Node, before: int) -> None:
        """Enter the ends that lie below the output's but did not lie below the one that it had before."""
        for slot, ve in (node.ends or {}).items():
            if before <= ve < node.out and slot in self._own_ends:
                self._enter_own(slot, ve, node)

    def touched(self, slot: int, t: int) -> list[Node]:
        """Take the half-frozen nodes whose end in the output or in stream `slot` lies below `t`, each once.

        A node that lives on must be given an output end at or above `t`, or lose its end in the stream, so that no end
        below `t` is left outside the indexes. O((k + stale) log w).
        """
        popped = self._pop_touched(slot, t)
        return [node for node in popped if node.alive and (node.out < t or node.end(slot, INFINITY) < t)]

    def touched_own(self, slot: int, t: int) -> list[Node]:
        """Take the half-frozen nodes whose end in stream `slot` lies below `t` and below the output's.

        The stream's end on each of them must then be dropped. O((k + stale) log w).
        """
        nodes = dict.fromkeys(self._own_ends[slot].pop_below(t))
        return [node for node in nodes if node.alive and node.end(slot, INFINITY) < min(t, node.out)]

    def _is_output_end(self, end: int, node: Node) -> bool:
        out: int = node.out
        return node.alive and out == end

    def _is_own_end(self, slot: int, end: int, node: Node) -> bool:
        out: int = node.out
        return node.alive and node.end(slot, INFINITY) == end < out

    def check_invariants(self) -> None:
        """Assert what the code above relies on; for tests. O(everything)."""
        super().check_invariants()
        frozen = [node for node in self.nodes.values() if node.frozen]
        assert all(node.out > NOT_OUTPUT for node in frozen)
        out_ends = {(end, id(node)) for end, node in self._out_ends.entries()}
        assert all((node.out, id(node)) in out_ends for node in frozen if node.out < INFINITY)
        for slot, index in self._own_ends.items():
            low = {(end, id(node)) for end, node in index.entries()}
            ends = ((node.end(slot, INFINITY), node) for node in frozen)
            assert all((end, id(node)) in low for end, node in ends if end < node.out)
