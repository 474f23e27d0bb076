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

from collections.abc import Mapping, Sequence
from typing import TypeAlias

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


def _or_none(ends: Ends) -> Ends | None:
    return None if ends is NONE else ends


class Node(TopNode, eq=False, gc=False):
    """One live event key; `out` and what streams say are `Ends`, those that are not below `floor`."""

    floor: int = MINUS_INFINITY
    """The stable point that last touched the node. What ends below it is final and not kept, in no stream."""

    def ends_in(self, slot: int) -> Ends:
        """Return the ends that a stream gives."""
        ends: Ends | None = self.of(slot)
        return NONE if ends is None else ends


class In3T(TopTier[Node]):
    """The live nodes of R4."""

    def increment(self, node: Node, slot: int, ve: int) -> None:
        """Count one more event of a stream with this end. O(d), and O(log w) on a half-frozen node."""
        if ve < node.floor:
            return
        before = node.ends_in(slot)
        self._say(node, slot, ve if before is NONE else _plus(before, ve, 1))
        if node.frozen and not has(before, ve) and not has(node.out, ve):
            self._enter_own(slot, ve, node)

    def decrement(self, node: Node, slot: int, ve: int) -> None:
        """Count one event less; there must be one, or the end is below the floor. O(d)."""
        if ve < node.floor:
            return
        self._say(node, slot, _or_none(_plus(node.ends_in(slot), ve, -1)))

    def move_only(self, node: Node, slot: int, ve: int) -> None:
        """Note another end, not below the floor, of the only event that a stream has. O(log w) if it is half frozen."""
        self._say(node, slot, ve)
        if node.frozen and not has(node.out, ve):
            self._enter_own(slot, ve, node)

    def put_out(self, node: Node, ve: int) -> None:
        """Count an event of an unfrozen node that has been put out. O(d)."""
        self._change_output(node, _plus(node.out, ve, 1))

    def set_output(self, node: Node, out: Ends, floor: int) -> None:
        """Replace the output's ends of a half-frozen node: those at or above `floor` are left. O(s d + d log w)."""
        before, after = many(node.out), many(out)
        self._raise_floor(node, out, floor)
        for end in after:
            if end not in before:
                self._out_ends.add(end, node)
        for end in before:
            if end not in after:
                self._index_uncovered(node, end)

    def keep(self, nodes: Sequence[Node], floor: int) -> None:
        """Go on with nodes that `freeze_below` gave, each with one event that ends at or above `floor`.

        They are half frozen now, and unchanged. O(s d + log w) each.
        """
        self._half_frozen += len(nodes)
        self._out_ends.add_all([node.out for node in nodes], nodes)
        own = self._own_ends
        for node in nodes:
            node.frozen = True
            node.floor = floor
            if (others := node.ends) is None:
                continue
            if all(type(end) is int and end >= floor for end in others.values()):  # one event each, as the output
                for slot, end in others.items():
                    if slot in own:
                        self._enter_own(slot, end, node)
            else:
                self._raise_floor(node, node.out, floor)
                self._index_own(node)

    def freeze_at(self, node: Node, out: Ends, floor: int) -> None:
        """Go on with a node that `freeze_below` gave: it is half frozen now, with these ends in the output.

        They are those at or above `floor`. O(s d + d log w).
        """
        self._half_frozen += 1
        node.frozen = True
        self._raise_floor(node, out, floor)
        for end in many(out):
            self._out_ends.add(end, node)
        self._index_own(node)

    def _raise_floor(self, node: Node, out: Ends, floor: int) -> None:
        """Take ends below the floor out of all that is said about a node, and note what the output says now."""
        node.floor = floor
        node.out = from_floor(node.out, floor)  # what those say who agreed with it
        if node.ends is not None:
            left = ((slot, from_floor(ends, floor)) for slot, ends in node.ends.items())
            node.ends = {slot: ends for slot, ends in left if ends is not NONE} or None
        if node.out is NONE:
            node.agree = 0  # they have nothing left to say
        if node.ends is not None or node.out != out:
            self._change_output(node, out)

    def _index_own(self, node: Node) -> None:
        """Enter the ends of streams that the output lacks."""
        for slot, ends in (node.ends or {}).items():
            if slot in self._own_ends:
                for end in many(ends):
                    if not has(node.out, end):
                        self._enter_own(slot, end, node)

    def _index_uncovered(self, node: Node, end: int) -> None:
        """Enter an end that the output has no longer, for the streams that have it."""
        for slot, ends in (node.ends or {}).items():
            if has(ends, end) and slot in self._own_ends:
                self._enter_own(slot, end, node)

    def touched(self, slot: int, t: int) -> list[Node]:
        """Take the half-frozen nodes with an end below `t` in the output or in stream `slot`, each once.

        A node that lives on must be given an output with ends at or above `t` only. O((k + stale) log w).
        """
        return [node for node in self._pop_touched(slot, t) if node.alive]

    def _is_output_end(self, end: int, node: Node) -> bool:
        return node.alive and has(node.out, end)

    def _is_own_end(self, slot: int, end: int, node: Node) -> bool:
        if not node.alive or node.ends is None:  # dead, or nobody says else than the output
            return False
        ends = node.ends.get(slot)
        return ends is not None and has(ends, end) and not has(node.out, end)

    def check_invariants(self) -> None:
        """Assert what the code above relies on; for tests. O(everything)."""
        super().check_invariants()
        frozen = [node for node in self.nodes.values() if node.frozen]
        assert all(node.out is not NONE for node in frozen)
        every = [ends for node in self.nodes.values() for ends in (node.out, *node.claims().values())]
        assert all(ends_of(many(ends)) == ends for ends in every)
        assert all(
            end >= node.floor for node in frozen for ends in (node.out, *node.claims().values()) for end in many(ends)
        )
        out_ends = {(end, id(node)) for end, node in self._out_ends.entries()}
        assert all((end, id(node)) in out_ends for node in frozen for end in many(node.out) if end < INFINITY)
        for slot, index in self._own_ends.items():
            own = {(end, id(node)) for end, node in index.entries()}
            ends = ((end, node) for node in frozen for end in many(node.ends_in(slot)))
            assert all((end, id(node)) in own for end, node in ends if not has(node.out, end) and end < INFINITY)
