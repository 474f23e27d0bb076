"""The top tier that in2t and in3t share (paper 000, Figure 1): the live nodes, and which of them a stable touches.

The paper keeps the nodes in a red-black tree by (vs, payload) and walks it up to the stable point at every stable. We
keep what a stable point t of stream s needs, and no tree; payloads need no order, only a hash.

- Nodes that *become* half frozen. Unfrozen nodes (``vs >= max_stable``) stand in buckets by vs with a heap over them. A
  stable takes the buckets below it, each once in its life.
- *Half-frozen* nodes with an end below t, in the output or in s. The first are found by an `EndIndex` over the output's
  ends. For the second there is an `EndIndex` per stream, but only over ends that do not bring the node up through the
  output's ends in time; which these are, in2t and in3t say. Inputs mostly agree, so these indexes are mostly empty.

What a stream says about an event is mostly what the output says: a node has a bit for each stream of which that is true
(`TopNode.agree`), and a dict only for the others. So a node costs the same for two inputs as for ten, and whether all
agree is one comparison of two numbers.

A stable costs O((f + k) (s + log w)): f nodes that become half frozen now and k that have an end below it, whatever the
number of half-frozen nodes that it leaves alone. Nodes are taken in lists, since a call for each would cost more than
what there is to do.

A stream that leaves is forgotten by dropping its `EndIndex`. What it put into the nodes stays there, under a slot that
nobody reads any more; slots are used again after all of that was removed at once (`MAX_DEPARTED`).
"""

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

import msgspec

from lmerge.elements import MINUS_INFINITY, Payload
from lmerge.ends import MIN_LIMIT, EndIndex

MAX_DEPARTED: Final = 16
"""So many streams may have left before their slots are cleared from all nodes and used again: a look at every node, but
seldom, and the bits of a node fit into two machine words."""


NODE_BYTES: Final = 380
"""What a node takes beside its payload, its places in the indexes included: measured, 350 to 410."""

SAMPLE: Final = 16
"""By so many nodes, the oldest, the size of payloads is estimated."""


class TopNode(msgspec.Struct, eq=False, gc=False):
    """One live event key, with what the streams and the output say about it: ends, of a form of the lower tiers.

    A struct, since one is made for every event; compared by identity; no part of it refers back to it.
    """

    vs: int
    payload: Payload
    batch: int
    """The batch that made it: the caller's safe point depends on the oldest."""
    out: Any
    """What the output says."""
    agree: int = 0
    """The slots of the streams that say what the output says, added up: each is a power of two."""
    ends: dict[int, Any] | None = None
    """What the other streams say that say anything, by slot; None if there are none."""
    frozen: bool = False
    """Half frozen: ``vs < max_stable``."""
    alive: bool = True
    """False once deleted: what is left of it in an `EndIndex` is stale."""

    def of(self, slot: int) -> Any:
        """Return what a stream says; None if it says nothing."""
        if self.agree & slot:
            return self.out
        return None if self.ends is None else self.ends.get(slot)

    def is_undisputed(self, everyone: int) -> bool:
        """Tell whether all these streams say the same, whatever the output says."""
        if self.ends is None:
            return self.agree == everyone
        said = [*self.ends.values()]
        return not self.agree and sum(self.ends) == everyone and said.count(said[0]) == len(said)

    def claims(self) -> dict[int, Any]:
        """Return what every stream says, by slot."""
        return dict.fromkeys(slots(self.agree), self.out) | (self.ends or {})


N = TypeVar("N", bound=TopNode)


def slots(added: int) -> Iterator[int]:
    """Give the slots that were added up, the smallest first.

    >>> list(slots(0b1011))
    [1, 2, 8]
    """
    while added:
        lowest = added & -added
        yield lowest
        added ^= lowest


class TopTier(ABC, Generic[N]):
    """The live nodes of an index."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, Payload], N] = {}
        """Read by the algorithms directly, and new ones are put in by them before `enter`: once per element."""
        # Unfrozen nodes by vs, and a heap of the keys.
        self._unfrozen: dict[int, list[N]] = {}
        self._starts: list[int] = []
        self._half_frozen = 0
        # Half-frozen nodes by the output's ends.
        self._out_ends: EndIndex[N] = EndIndex(self._is_output_end)
        # For each attached slot, half-frozen nodes by those of its ends that the output's do not cover.
        self._own_ends: dict[int, EndIndex[N]] = {}
        self.everyone = 0
        """The slots of the attached streams, added up."""
        # Slots that nobody has: those that nodes may still name, and those that can be given again.
        self._departed: list[int] = []
        self._free: list[int] = []
        self.floor = MINUS_INFINITY
        """No half-frozen node begins before it. Nodes become half frozen in the order of vs, so it never falls."""
        # How many nodes have died, and how many had when `sweep` last looked for the floor, and for stale entries among
        # the output's ends and among the streams'.
        self._deaths = self._floor_at = self._out_ends_at = self._own_ends_at = 0
        # Live nodes per batch, in the order of the batches: the first key is the oldest batch.
        self._batches: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self.nodes)

    def estimate_bytes(self) -> int:
        """Return about how much memory the nodes take, payloads included. O(1)."""
        sizes = [getsizeof(node.payload) for node in islice(self.nodes.values(), SAMPLE)]
        return len(self.nodes) * (NODE_BYTES + sum(sizes) // len(sizes)) if sizes else 0

    @property
    def oldest_batch(self) -> int | None:
        """The batch of the oldest live node. O(1)."""
        return next(iter(self._batches), None)

    # -- streams

    def admit(self) -> int:
        """Expect ends of a new stream, and return its slot. O(1), and O(w) once for `MAX_DEPARTED` that have left."""
        if len(self._departed) >= MAX_DEPARTED:
            self._clear_departed()
        slot = self._free.pop() if self._free else 1 << len(self._own_ends) + len(self._departed)
        self._own_ends[slot] = EndIndex(partial(self._is_own_end, slot))
        self.everyone |= slot
        return slot

    def forget(self, slot: int) -> None:
        """Let go of a stream that has left. O(1): its ends in the nodes are not visited."""
        del self._own_ends[slot]
        self.everyone ^= slot
        self._departed.append(slot)

    def _clear_departed(self) -> None:
        for node in self.nodes.values():
            node.agree &= self.everyone
            if node.ends is not None:
                node.ends = {slot: ends for slot, ends in node.ends.items() if slot & self.everyone} or None
        self._free += self._departed
        self._departed = []

    # -- nodes

    def enter(self, nodes: Sequence[N]) -> None:
        """Take in new, unfrozen nodes of one batch that stand in `nodes` already. O(log w) each."""
        self.put_back(nodes)
        if nodes:
            batch = nodes[0].batch
            self._batches[batch] = self._batches.get(batch, 0) + len(nodes)

    def add(self, node: N) -> N:
        """Add a node for a new event key; it is unfrozen. O(log w)."""
        self.nodes[node.vs, node.payload] = node
        self.enter([node])
        return node

    def put_back(self, nodes: Sequence[N]) -> None:
        """Let nodes be unfrozen that are new, or that `freeze_below` gave but are not frozen yet. O(log w) each."""
        unfrozen = self._unfrozen
        for node in nodes:
            vs = node.vs
            bucket = unfrozen.get(vs)
            if bucket is None:
                unfrozen[vs] = [node]
                heappush(self._starts, vs)
            else:
                bucket.append(node)

    def first_unfrozen(self) -> list[N] | None:
        """Return the unfrozen nodes with the smallest vs; None if there is no unfrozen node. O(1)."""
        return self._unfrozen[self._starts[0]] if self._starts else None

    def freeze_below(self, t: int) -> list[N]:
        """Take the unfrozen nodes with ``vs < t`` in the order of vs; each must then be kept, deleted or put back."""
        nodes: list[N] = []
        while self._starts and self._starts[0] < t:
            nodes += self._unfrozen.pop(heappop(self._starts))
        return nodes

    def delete(self, nodes: Sequence[N]) -> None:
        """Let go of nodes that can no longer change. O(1) each."""
        table, half_frozen = self.nodes, 0
        for node in nodes:
            del table[node.vs, node.payload]
            node.alive = False
            half_frozen += node.frozen
        self._half_frozen -= half_frozen
        self._deaths += len(nodes)
        for batch, count in Counter([node.batch for node in nodes]).items():
            self._batches[batch] -= count
            if not self._batches[batch]:
                del self._batches[batch]

    def _pop_touched(self, slot: int, t: int) -> Iterable[N]:
        """Take the nodes, dead ones too, that had an end below `t` in the output or in stream `slot`, each once."""
        return dict.fromkeys(self._out_ends.pop_below(t) + self._own_ends[slot].pop_below(t))

    def _enter_own(self, slot: int, end: int, node: N) -> None:
        """Enter an end of a stream that the output's do not cover."""
        self._own_ends[slot].add(end, node)

    def _say(self, node: N, slot: int, ends: Any) -> None:
        """Note what a stream says, or that it says nothing any more: None."""
        others = node.ends
        if ends is not None and ends != node.out:
            node.agree &= ~slot
            if others is None:
                node.ends = {slot: ends}
            else:
                others[slot] = ends
            return
        if others is not None and others.pop(slot, None) is not None and not others:
            node.ends = None
        if ends is None:
            node.agree &= ~slot
        else:
            node.agree |= slot

    def _change_output(self, node: N, out: Any) -> None:
        """Note what the output says now; what each stream says stays as it is."""
        claims = node.claims()
        node.out = out
        node.agree = sum(slot for slot, ends in claims.items() if ends == out)
        node.ends = {slot: ends for slot, ends in claims.items() if ends != out} or None

    def sweep(self, t: int) -> None:
        """Take stock after a stable at `t`: raise the floor, remove what dead nodes have left in the end indexes.

        Each is done only when so many nodes have died, or at least a quarter of it, as there is to look at: O(1)
        amortised per death.
        """
        deaths = self._deaths
        if self._half_frozen == 0:
            self.floor = t
        elif deaths - self._floor_at >= 2 * len(self.nodes):
            self.floor = min([node.vs for node in self.nodes.values() if node.frozen])
            self._floor_at = deaths
        if 2 * self._half_frozen + MIN_LIMIT < len(self._out_ends) <= 4 * (deaths - self._out_ends_at):
            self._out_ends.compact()
            self._out_ends_at = deaths
        own = sum(map(len, self._own_ends.values()))
        if own > MIN_LIMIT and own + 2 * len(self.nodes) <= deaths - self._own_ends_at:
            for index in self._own_ends.values():
                index.compact()
            self._own_ends_at = deaths

    @abstractmethod
    def _is_output_end(self, end: int, node: N) -> bool:
        """Tell whether the node is alive and has this end in the output."""

    @abstractmethod
    def _is_own_end(self, slot: int, end: int, node: N) -> bool:
        """Tell whether the node is alive and has this end in stream `slot`, not covered by the output's."""

    def check_invariants(self) -> None:
        """Assert what the code above relies on; for tests. O(everything)."""
        unfrozen = [node for bucket in self._unfrozen.values() for node in bucket]
        frozen = [node for node in self.nodes.values() if node.frozen]
        assert sorted(self._starts) == sorted(self._unfrozen)
        assert all(node.vs == vs for vs, bucket in self._unfrozen.items() for node in bucket)
        assert not any(node.frozen for node in unfrozen)
        assert {*map(id, unfrozen), *map(id, frozen)} == {*map(id, self.nodes.values())}
        assert all(node.alive and key == (node.vs, node.payload) for key, node in self.nodes.items())
        assert self._half_frozen == len(frozen)
        assert list(self._batches) == sorted(self._batches)
        counts: dict[int, int] = {}
        for node in self.nodes.values():
            counts[node.batch] = counts.get(node.batch, 0) + 1
        assert counts == self._batches
        assert all(node.vs >= self.floor for node in frozen)
        self._check_slots()
        for index in (self._out_ends, *self._own_ends.values()):
            index.check_invariants()

    def _check_slots(self) -> None:
        assert self.everyone == sum(self._own_ends)
        known = self.everyone + sum(self._departed)
        assert not known & sum(self._free)
        for node in self.nodes.values():
            others = node.ends
            assert not node.agree & ~known
            assert others is None or others
            assert not any(slot & node.agree or ends == node.out for slot, ends in (others or {}).items())
            assert all(slot & known for slot in others or ())
