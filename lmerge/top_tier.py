"""The top tier that in2t and in3t share (paper 000, Figure 1): the live nodes, and which of them a stable touches.

The paper keeps the nodes in a red-black tree by (vs, payload) and walks it up to the stable point at every stable. We
keep what a stable point t of stream s needs, and no tree; payloads need no order, only a hash.

- Nodes that *become* half frozen. Unfrozen nodes (``vs >= max_stable``) stand in buckets by vs with a heap over them. A
  stable takes the buckets below it, each once in its life.
- *Half-frozen* nodes with an end below t, in the output or in s. The first are found by an `EndIndex` over the output's
  ends. For the second there is an `EndIndex` per stream, but only over ends that do not bring the node up through the
  output's ends in time; which these are, in2t and in3t say. Inputs mostly agree, so these indexes are mostly empty, and
  memory hardly grows with the number of inputs.

So a stable costs O((f + k) (s + log w)): f nodes that become half frozen now and k that have an end below it, whatever
the number of half-frozen nodes that it leaves alone.

A stream that leaves is forgotten by dropping its `EndIndex`. What it put into the nodes stays there, under a slot that
nobody reads any more.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

import msgspec

from lmerge.elements import MINUS_INFINITY, Payload
from lmerge.ends import MIN_LIMIT, EndIndex

PATIENCE: Final = 8
"""How many ends must have been left behind for each entry before stale ones are looked for: most are not indexed."""


class TopNode(msgspec.Struct, eq=False, gc=False):
    """One live event key. What the streams and the output say about it is the lower tiers' business (`ends`, by slot).

    A struct, since one is made for every event; compared by identity; no part of it refers back to it.
    """

    vs: int
    payload: Payload
    batch: int
    """The batch that made it: the caller's safe point depends on the oldest."""
    frozen: bool = False
    """Half frozen: ``vs < max_stable``."""
    alive: bool = True
    """False once deleted: what is left of it in an `EndIndex` is stale."""
    ends: dict[int, Any] = msgspec.field(default_factory=dict)
    """What each stream says about the event, by slot; what a stream has removed is not there."""


N = TypeVar("N", bound=TopNode)


class TopTier(ABC, Generic[N]):
    """The live nodes of an index."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, Payload], N] = {}
        """Read by the algorithms directly, since they do so once per element; written only here."""
        # Unfrozen nodes by vs, and a heap of the keys.
        self._unfrozen: dict[int, list[N]] = {}
        self._starts: list[int] = []
        self._half_frozen = 0
        # Half-frozen nodes by the output's ends.
        self._out_ends: EndIndex[N] = EndIndex(lambda end, node: node.alive and self._is_output_end(end, node))
        # For each attached slot, half-frozen nodes by those of its ends that the output's do not cover.
        self._own_ends: dict[int, EndIndex[N]] = {}
        self.crowd = 4
        """A node with more streams than this has ends of streams that left; it sheds them when next written to."""
        self.floor = MINUS_INFINITY
        """No half-frozen node begins before it. Nodes become half frozen in the order of vs, so it never falls."""
        # How many nodes have died since the floor was looked for.
        self._deaths = 0
        # How many ends the streams gave to nodes that died since the last sweep: no more entries can be stale.
        self._left_behind = 0
        # Live nodes per batch, in the order of the batches: the first key is the oldest batch.
        self._batches: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def oldest_batch(self) -> int | None:
        """The batch of the oldest live node. O(1)."""
        return next(iter(self._batches), None)

    def admit(self, slot: int) -> None:
        """Expect ends of a new stream."""
        self._own_ends[slot] = EndIndex(lambda end, node: node.alive and self._is_own_end(slot, end, node))
        self.crowd = 2 * len(self._own_ends) + 4

    def forget(self, slot: int) -> None:
        """Let go of a stream that has left. O(1): its ends in the nodes are not visited."""
        del self._own_ends[slot]

    def add(self, node: N) -> N:
        """Add a node for a new event key; it is unfrozen. O(log w)."""
        self.nodes[node.vs, node.payload] = node
        self.put_back(node)
        self._batches[node.batch] = self._batches.get(node.batch, 0) + 1
        return node

    def put_back(self, node: N) -> None:
        """Let a node be unfrozen that is new, or that `freeze_below` gave and is not frozen after all. O(log w)."""
        vs = node.vs
        bucket = self._unfrozen.get(vs)
        if bucket is None:
            self._unfrozen[vs] = [node]
            heappush(self._starts, vs)
        else:
            bucket.append(node)

    def first_unfrozen(self) -> list[N] | None:
        """Return the unfrozen nodes with the smallest vs; None if there is no unfrozen node. O(1)."""
        return self._unfrozen[self._starts[0]] if self._starts else None

    def freeze_below(self, t: int) -> Iterator[N]:
        """Take the unfrozen nodes with ``vs < t`` in the order of vs; each must then be kept, deleted or put back."""
        while self._starts and self._starts[0] < t:
            yield from self._unfrozen.pop(heappop(self._starts))

    def delete(self, node: N) -> None:
        """Let go of a node that can no longer change. O(1)."""
        del self.nodes[node.vs, node.payload]
        node.alive = False
        self._deaths += 1
        if node.frozen:
            self._half_frozen -= 1
            self._left_behind += len(node.ends)
        left = self._batches[node.batch] - 1
        if left:
            self._batches[node.batch] = left
        else:
            del self._batches[node.batch]

    def _pop_touched(self, slot: int, t: int) -> list[N]:
        """Take the half-frozen nodes with an end below `t` in the output or in stream `slot`, each once."""
        nodes = dict.fromkeys(self._out_ends.pop_below(t) + self._own_ends[slot].pop_below(t))
        return [node for node in nodes if node.alive]

    def sweep(self, t: int) -> None:
        """Take stock after a stable at `t`: raise the floor, remove what dead nodes have left in the end indexes.

        Either is done only when as many nodes have died as there is to look at: O(1) amortised per death.
        """
        if len(self._out_ends) > 2 * self._live_output_ends() + MIN_LIMIT:
            self._out_ends.compact()
        if self._half_frozen == 0:
            self.floor = t
        elif self._deaths >= len(self.nodes):
            self.floor = min(node.vs for node in self.nodes.values() if node.frozen)
            self._deaths = 0
        if MIN_LIMIT < sum(map(len, self._own_ends.values())) < self._left_behind // PATIENCE:
            for index in self._own_ends.values():
                index.compact()
            self._left_behind = 0

    @abstractmethod
    def _live_output_ends(self) -> int:
        """Return how many ends the output gives to half-frozen nodes."""

    @abstractmethod
    def _is_output_end(self, end: int, node: N) -> bool:
        """Tell whether the node has this end in the output."""

    @abstractmethod
    def _is_own_end(self, slot: int, end: int, node: N) -> bool:
        """Tell whether the node has this end in stream `slot`, not covered by the output's."""

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
        for index in (self._out_ends, *self._own_ends.values()):
            index.check_invariants()
