"""in2t, the index of R3 (paper 000, IV-D and Figure 1): one node per live (vs, payload), ends per stream below it.

Top tier      the nodes, found by (vs, payload), each event's payload kept once for all inputs (top_tier.py).
Bottom tier   for each stream the end that it gives the event, and beside it the end that the output has.

An end in a stream that is not below the output's needs no index: the node is reached through the output's end no later
than through its own. So the ends of a stream are indexed only where they lie *below* the output's (see top_tier.py).
"""

from typing import Final

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY
from lmerge.top_tier import TopNode, TopTier

NOT_OUTPUT: Final = MINUS_INFINITY
"""The output's end of a node that has not been put out (policies other than `first`; nodes being re-fed)."""


class Node(TopNode, eq=False, gc=False):
    """One live event key, with the end that each stream and the output give it."""

    out: int = NOT_OUTPUT
    """The end in the output, or NOT_OUTPUT."""
    ends: dict[int, int] = msgspec.field(default_factory=dict)
    """The end in each stream, by slot. A stream that has removed the event has none."""


class In2T(TopTier[Node]):
    """The live nodes of R3."""

    def set_end(self, node: Node, slot: int, ve: int) -> None:
        """Note the end that a stream gives the event. O(1), and O(log w) if it lies below a half-frozen output's."""
        out, ends = node.out, node.ends
        # One number object for all who agree: with many inputs this is most of what a node weighs.
        ends[slot] = out if ve == out else ve
        if node.frozen and ve < out:
            self._own_ends[slot].add(ve, node)
        if len(ends) > self.crowd:  # streams that left have left their ends here: shed them before they pile up
            node.ends = {slot: end for slot, end in ends.items() if slot in self._own_ends}

    def set_output(self, node: Node, ve: int) -> None:
        """Note the end that the output has given the event. O(s + log w) for s streams if the node is half frozen."""
        before, node.out = node.out, ve
        if node.frozen:
            self._index_ends(node, before)

    def keep(self, node: Node) -> None:
        """Go on with a node that `freeze_below` gave: it is half frozen now. O(s + log w)."""
        node.frozen = True
        self._half_frozen += 1
        self._index_ends(node, MINUS_INFINITY)

    def _index_ends(self, node: Node, before: int) -> None:
        """Enter the output's new end, and the ends that lie below it but did not lie below the one before."""
        out = node.out
        self._out_ends.add(out, node)
        for slot, ve in node.ends.items():
            if before <= ve < out and slot in self._own_ends:
                self._own_ends[slot].add(ve, node)

    def touched(self, slot: int, t: int) -> list[Node]:
        """Take the half-frozen nodes whose end in the output or in stream `slot` lies below `t`, each once.

        A node that lives on must be given an output end at or above `t`, or lose its end in the stream, so that no end
        below `t` is left outside the indexes. O((k + stale) log w).
        """
        nodes = self._pop_touched(slot, t)
        return [node for node in nodes if node.out < t or node.ends.get(slot, INFINITY) < t]

    def touched_own(self, slot: int, t: int) -> list[Node]:
        """Take the half-frozen nodes whose end in stream `slot` lies below `t` and below the output's.

        The stream's end on each of them must then be dropped. O((k + stale) log w).
        """
        nodes = dict.fromkeys(self._own_ends[slot].pop_below(t))
        return [node for node in nodes if node.alive and node.ends.get(slot, INFINITY) < min(t, node.out)]

    def _live_output_ends(self) -> int:
        return self._half_frozen

    def _is_output_end(self, end: int, node: Node) -> bool:
        return node.out == end

    def _is_own_end(self, slot: int, end: int, node: Node) -> bool:
        return node.ends.get(slot) == end < node.out

    def check_invariants(self) -> None:
        """Assert what the code above relies on; for tests. O(everything)."""
        super().check_invariants()
        frozen = [node for node in self.nodes.values() if node.frozen]
        assert all(node.out > NOT_OUTPUT for node in frozen)
        out_ends = {(end, id(node)) for end, node in self._out_ends.entries()}
        assert all((node.out, id(node)) in out_ends for node in frozen if node.out < INFINITY)
        for slot, index in self._own_ends.items():
            low = {(end, id(node)) for end, node in index.entries()}
            ends = ((node.ends.get(slot, INFINITY), node) for node in frozen)
            assert all((end, id(node)) in low for end, node in ends if end < node.out)
