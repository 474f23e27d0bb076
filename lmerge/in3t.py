"""in3t, the index of R4 (paper 000, IV-E and Figure 1): in2t with a multiset of ends in place of one end.

Top tier      the nodes, found by (vs, payload) (top_tier.py).
Middle tier   for each stream, and for the output, what it says about the key.
Bottom tier   the ends of the events with this key, and how many events have each. The paper takes a red-black tree; a
              dict is smaller and faster for the few ends that a key has, and nothing needs their order.

An end of a stream that the output has too needs no index of its own: the node is reached through the output's. So the
ends of a stream are indexed only where the output lacks them (see top_tier.py).

Only live ends are kept, in the output and in the streams: what a stable has frozen is taken out when it touches the
node, since nothing will be compared with it again (`Node.floor`).
"""

from typing import TypeAlias

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY
from lmerge.top_tier import TopNode, TopTier

Ends: TypeAlias = dict[int, int]
"""A multiset of ends: end -> how many events have it, never 0."""


class Node(TopNode, eq=False, gc=False):
    """One live event key, with the ends that each stream and the output give its events."""

    out: Ends = msgspec.field(default_factory=dict)
    """The live ends in the output."""
    ends: dict[int, Ends] = msgspec.field(default_factory=dict)
    """The ends in each stream, by slot, as far as they are not below `floor`."""
    floor: int = MINUS_INFINITY
    """The stable point that last touched the node. What ends below it is final and not kept, in no stream."""

    def of(self, slot: int) -> Ends:
        """Return the ends that a stream gives, not to be changed."""
        return self.ends.get(slot, _NONE)


_NONE: Ends = {}


def total(ends: Ends) -> int:
    """Return how many events a multiset of ends stands for."""
    return sum(ends.values())


class In3T(TopTier[Node]):
    """The live nodes of R4."""

    def __init__(self) -> None:
        super().__init__()
        # How many ends the output gives to half-frozen nodes.
        self._output_ends = 0

    def increment(self, node: Node, slot: int, ve: int) -> None:
        """Count one more event of a stream with this end. O(1), and O(log w) on a half-frozen node."""
        if ve < node.floor:
            return
        ends = node.ends.get(slot)
        if ends is None:
            ends = node.ends[slot] = {}
            if len(node.ends) > self.crowd:  # streams that left have left their ends here: shed them
                node.ends = {slot: ends for slot, ends in node.ends.items() if slot in self._own_ends}
        ends[ve] = ends.get(ve, 0) + 1
        if node.frozen and ends[ve] == 1 and ve not in node.out:
            self._own_ends[slot].add(ve, node)

    def decrement(self, node: Node, slot: int, ve: int) -> None:
        """Count one event less; there must be one, or the end is below the floor. O(1)."""
        if ve < node.floor:
            return
        ends = node.ends[slot]
        if ends[ve] == 1:
            del ends[ve]
        else:
            ends[ve] -= 1

    def put_out(self, node: Node, ve: int) -> None:
        """Count an event of an unfrozen node that has been put out. O(1)."""
        node.out[ve] = node.out.get(ve, 0) + 1

    def set_output(self, node: Node, out: Ends, floor: int) -> None:
        """Replace the output's ends of a half-frozen node: those at or above `floor` are left. O(s d + d log w)."""
        before, node.out = node.out, out
        self._output_ends += len(out) - len(before)
        self._raise_floor(node, floor)
        for end in out:
            if end not in before:
                self._out_ends.add(end, node)
        for end in before:
            if end not in out:
                self._index_uncovered(node, end)

    def keep(self, node: Node) -> None:
        """Go on with a node that `freeze_below` gave: it is half frozen now. O(s d + d log w)."""
        node.frozen = True
        self._half_frozen += 1
        self._output_ends += len(node.out)
        for end in node.out:
            self._out_ends.add(end, node)
        for slot, ends in node.ends.items():
            if ends != node.out and slot in self._own_ends:  # mostly they agree
                for end in ends:
                    if end not in node.out:
                        self._own_ends[slot].add(end, node)

    def freeze_at(self, node: Node, out: Ends, floor: int) -> None:
        """Give a node that `freeze_below` gave its output ends at or above `floor`, and keep it."""
        node.out = out
        self._raise_floor(node, floor)
        self.keep(node)

    def _raise_floor(self, node: Node, floor: int) -> None:
        node.floor = floor
        for slot, ends in node.ends.items():
            if min(ends, default=floor) < floor:
                node.ends[slot] = {end: count for end, count in ends.items() if end >= floor}

    def _index_uncovered(self, node: Node, end: int) -> None:
        """Enter an end that the output has no longer, for the streams that have it."""
        for slot, ends in node.ends.items():
            if end in ends and slot in self._own_ends:
                self._own_ends[slot].add(end, node)

    def touched(self, slot: int, t: int) -> list[Node]:
        """Take the half-frozen nodes with an end below `t` in the output or in stream `slot`, each once.

        A node that lives on must be given an output with ends at or above `t` only. O((k + stale) log w).
        """
        return self._pop_touched(slot, t)

    def delete(self, node: Node) -> None:
        """Let go of a node that can no longer change. O(1)."""
        super().delete(node)
        if node.frozen:
            self._output_ends -= len(node.out)

    def _live_output_ends(self) -> int:
        return self._output_ends

    def _is_output_end(self, end: int, node: Node) -> bool:
        return end in node.out

    def _is_own_end(self, slot: int, end: int, node: Node) -> bool:
        return end in node.of(slot) and end not in node.out

    def check_invariants(self) -> None:
        """Assert what the code above relies on; for tests. O(everything)."""
        super().check_invariants()
        frozen = [node for node in self.nodes.values() if node.frozen]
        assert all(node.out for node in frozen)
        assert self._output_ends == sum(len(node.out) for node in frozen)
        assert all(
            count > 0
            for node in self.nodes.values()
            for ends in (node.out, *node.ends.values())
            for count in ends.values()
        )
        assert all(end >= node.floor for node in frozen for ends in (node.out, *node.ends.values()) for end in ends)
        out_ends = {(end, id(node)) for end, node in self._out_ends.entries()}
        assert all((end, id(node)) in out_ends for node in frozen for end in node.out if end < INFINITY)
        for slot, index in self._own_ends.items():
            own = {(end, id(node)) for end, node in index.entries()}
            ends = ((end, node) for node in frozen for end in node.of(slot))
            assert all((end, id(node)) in own for end, node in ends if end not in node.out and end < INFINITY)
