"""in3t, the index of R4 (paper 000, IV-E and Figure 1): in2t with a multiset of ends in place of one end.

Top tier      the nodes, found by (vs, payload) (top_tier.py).
Middle tier   for each stream, and for the output, what it says about the key.
Bottom tier   the ends of the events with this key, and how many events have each. The paper takes a red-black tree; a
              number, for a key with one event, or else a dict, is smaller and faster for the few ends that a key has,
              and nothing needs their order.

An end of a stream that the output has too needs no index of its own: the node is reached through the output's. So the
ends of a stream are indexed only where the output lacks them (see top_tier.py).

Only live ends are kept, in the output and in the streams: what a stable has frozen is taken out when it touches the
node, since nothing will be compared with it again (`Node.floor`).
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY
from lmerge.top_tier import TopNode, TopTier

Ends: TypeAlias = int | Mapping[int, int]
"""The ends of the events of a key: of one event its end; of several, or none, how many have each end, never 0.

Never changed, so that all who agree share one, and mostly a number: a key with one event costs what it costs in in2t.
"""

NONE: Ends = {}
"""No event. Of the other numbers of events there is one form only, too, so that `==` compares multisets."""


def many(ends: Ends) -> Mapping[int, int]:
    """Return ends as a mapping, whatever their number."""
    return {ends: 1} if isinstance(ends, int) else ends


def ends_of(counts: Mapping[int, int]) -> Ends:
    """Return the ends of a mapping: one that has counts of 0 for ends that are not there, too."""
    found = {end: count for end, count in counts.items() if count}
    if not found:
        return NONE
    return next(iter(found)) if len(found) == 1 and 1 in found.values() else found


def total(ends: Ends) -> int:
    """Return how many events there are."""
    return 1 if isinstance(ends, int) else sum(ends.values())


def has(ends: Ends, end: int) -> bool:
    """Tell whether an event has this end."""
    return ends == end if isinstance(ends, int) else end in ends


def from_floor(ends: Ends, floor: int) -> Ends:
    """Return the ends at or above a floor."""
    if isinstance(ends, int):
        return ends if ends >= floor else NONE
    if min(ends, default=floor) >= floor:
        return ends
    return ends_of({end: count for end, count in ends.items() if end >= floor})


def _plus(ends: Ends, end: int, count: int) -> Ends:
    before = many(ends)
    return ends_of({**before, end: before.get(end, 0) + count})


class Node(TopNode, eq=False, gc=False):
    """One live event key, with the ends that each stream and the output give its events."""

    out: Ends = msgspec.field(default_factory=lambda: NONE)
    """The live ends in the output."""
    ends: dict[int, Ends] = msgspec.field(default_factory=dict)
    """The ends in each stream, by slot, as far as they are not below `floor`."""
    floor: int = MINUS_INFINITY
    """The stable point that last touched the node. What ends below it is final and not kept, in no stream."""

    def of(self, slot: int) -> Ends:
        """Return the ends that a stream gives."""
        return self.ends.get(slot, NONE)


class In3T(TopTier[Node]):
    """The live nodes of R4."""

    def __init__(self) -> None:
        super().__init__()
        # How many ends the output gives to half-frozen nodes.
        self._output_ends = 0

    def increment(self, node: Node, slot: int, ve: int) -> None:
        """Count one more event of a stream with this end. O(d), and O(log w) on a half-frozen node."""
        if ve < node.floor:
            return
        before = node.of(slot)
        ends = ve if before is NONE else _plus(before, ve, 1)
        node.ends[slot] = node.out if ends == node.out else ends
        if len(node.ends) > self.crowd:  # streams that left have left their ends here: shed them
            node.ends = {slot: ends for slot, ends in node.ends.items() if slot in self._own_ends}
        if node.frozen and not has(before, ve) and not has(node.out, ve):
            self._own_ends[slot].add(ve, node)

    def decrement(self, node: Node, slot: int, ve: int) -> None:
        """Count one event less; there must be one, or the end is below the floor. O(d)."""
        if ve < node.floor:
            return
        before = node.ends[slot]
        node.ends[slot] = NONE if isinstance(before, int) else _plus(before, ve, -1)

    def put_out(self, node: Node, ve: int) -> None:
        """Count an event of an unfrozen node that has been put out. O(d)."""
        node.out = _plus(node.out, ve, 1)

    def set_output(self, node: Node, out: Ends, floor: int) -> None:
        """Replace the output's ends of a half-frozen node: those at or above `floor` are left. O(s d + d log w)."""
        before, after = many(node.out), many(out)
        node.out, node.floor = out, floor
        self._output_ends += len(after) - len(before)
        for slot, ends in node.ends.items():
            node.ends[slot] = from_floor(ends, floor)
        for end in after:
            if end not in before:
                self._out_ends.add(end, node)
        for end in before:
            if end not in after:
                self._index_uncovered(node, end)

    def freeze_at(self, node: Node, out: Ends, floor: int) -> None:
        """Go on with a node that `freeze_below` gave: it is half frozen now, with these ends in the output.

        They are those at or above `floor`. O(s d + d log w).
        """
        node.frozen = True
        node.out, node.floor = out, floor
        self._half_frozen += 1
        if isinstance(out, int):  # mostly
            self._output_ends += 1
            self._out_ends.add(out, node)
        else:
            self._output_ends += len(out)
            for end in out:
                self._out_ends.add(end, node)
        for slot, ends in node.ends.items():
            if ends == out:  # mostly they agree
                continue
            node.ends[slot] = from_floor(ends, floor)
            if slot in self._own_ends:
                for end in many(node.ends[slot]):
                    if not has(out, end):
                        self._own_ends[slot].add(end, node)

    def _index_uncovered(self, node: Node, end: int) -> None:
        """Enter an end that the output has no longer, for the streams that have it."""
        for slot, ends in node.ends.items():
            if has(ends, end) and slot in self._own_ends:
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
            self._output_ends -= 1 if isinstance(node.out, int) else len(node.out)

    def _live_output_ends(self) -> int:
        return self._output_ends

    def _is_output_end(self, end: int, node: Node) -> bool:
        return has(node.out, end)

    def _is_own_end(self, slot: int, end: int, node: Node) -> bool:
        return has(node.of(slot), end) and not has(node.out, end)

    def check_invariants(self) -> None:
        """Assert what the code above relies on; for tests. O(everything)."""
        super().check_invariants()
        frozen = [node for node in self.nodes.values() if node.frozen]
        assert all(node.out is not NONE for node in frozen)
        assert self._output_ends == sum(len(many(node.out)) for node in frozen)
        every = [ends for node in self.nodes.values() for ends in (node.out, *node.ends.values())]
        assert all(ends_of(many(ends)) == ends for ends in every)
        assert all(
            end >= node.floor for node in frozen for ends in (node.out, *node.ends.values()) for end in many(ends)
        )
        out_ends = {(end, id(node)) for end, node in self._out_ends.entries()}
        assert all((end, id(node)) in out_ends for node in frozen for end in many(node.out) if end < INFINITY)
        for slot, index in self._own_ends.items():
            own = {(end, id(node)) for end, node in index.entries()}
            ends = ((end, node) for node in frozen for end in many(node.of(slot)))
            assert all((end, id(node)) in own for end, node in ends if not has(node.out, end) and end < INFINITY)
