"""`EndIndex`: which half-frozen nodes have an end below a stable point, without looking at the others.

The paper's stable step visits every half-frozen node (Algorithm R3, line 17). Ours visits those whose end lies below
the new stable point. They are found here: nodes in buckets by end, and a heap of the distinct ends.

An end that changes leaves its old entry behind, and so does a node that dies early. Such stale entries are skipped by
whoever pops them, and removed by `compact`: by itself when the index has grown fourfold, so that every operation stays
O(log n) amortised, and by the owner of the index when much of it may be stale.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from lmerge.elements import INFINITY

Node = TypeVar("Node")


MIN_LIMIT: Final = 64
"""Below this many entries stale ones are not worth looking for."""


class EndIndex(Generic[Node]):
    """A multimap from ends to nodes that gives up the lowest ends first.

    Args:
        is_live: tells whether a node still has an end, so that entries which are stale can be removed.

    >>> index = EndIndex[str](lambda end, node: True)
    >>> for end, node in [(20, "A"), (10, "B"), (20, "C")]:
    ...     index.add(end, node)
    >>> index.pop_below(20)
    ['B']
    >>> index.pop_below(21), len(index)
    (['A', 'C'], 0)
    """

    __slots__ = ("_buckets", "_heap", "_is_live", "_limit", "_size")

    def __init__(self, is_live: Callable[[int, Node], bool]) -> None:
        self._is_live = is_live
        self._buckets: dict[int, list[Node]] = {}
        # The keys of _buckets, each once.
        self._heap: list[int] = []
        self._size = 0
        # The size at which stale entries are looked for.
        self._limit = MIN_LIMIT

    def __len__(self) -> int:
        """Return the number of entries, stale ones included."""
        return self._size

    def add(self, end: int, node: Node) -> None:
        """Enter a node under an end. No stable point exceeds INFINITY: such an end is not kept. O(log n) amortised."""
        if end == INFINITY:
            return
        bucket = self._buckets.get(end)
        if bucket is None:
            self._buckets[end] = [node]
            heappush(self._heap, end)
        else:
            bucket.append(node)
        self._size += 1
        if self._size > self._limit:
            self.compact()

    def add_all(self, ends: Sequence[int], nodes: Sequence[Node]) -> None:
        """Enter nodes, each under its end, as `add` does."""
        buckets, heap, kept = self._buckets, self._heap, 0
        for end, node in zip(ends, nodes, strict=True):
            if end == INFINITY:
                continue
            kept += 1
            bucket = buckets.get(end)
            if bucket is None:
                buckets[end] = [node]
                heappush(heap, end)
            else:
                bucket.append(node)
        self._size += kept
        if self._size > self._limit:
            self.compact()

    def pop_below(self, t: int) -> list[Node]:
        """Remove and return the nodes with ``end < t``, stale entries included. O(k log n) for k distinct ends."""
        heap, take = self._heap, self._buckets.pop
        nodes: list[Node] = []
        while heap and heap[0] < t:
            nodes += take(heappop(heap))
        self._size -= len(nodes)
        self._limit = min(self._limit, self._fourfold())
        return nodes

    def compact(self) -> None:
        """Remove stale entries, and look again when the index has grown fourfold."""
        is_live, buckets = self._is_live, {}
        for end, nodes in self._buckets.items():
            # An end that went and came back was entered twice: dict.fromkeys.
            if kept := [node for node in dict.fromkeys(nodes) if is_live(end, node)]:
                buckets[end] = kept
        self._buckets = buckets
        self._heap = list(buckets)
        heapify(self._heap)
        self._size = sum(map(len, self._buckets.values()))
        self._limit = self._fourfold()

    def _fourfold(self) -> int:
        return max(MIN_LIMIT, 4 * self._size)

    def check_invariants(self) -> None:
        """Assert that heap, buckets and size tell the same."""
        assert sorted(self._heap) == sorted(self._buckets)
        assert all(self._buckets.values())
        assert self._size == sum(map(len, self._buckets.values()))
        assert INFINITY not in self._buckets

    def entries(self) -> list[tuple[int, Node]]:
        """Return all entries, for tests of those who use the index."""
        return [(end, node) for end, nodes in self._buckets.items() for node in nodes]
