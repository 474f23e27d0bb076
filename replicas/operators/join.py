"""Join: pairs of events of two inputs with equal keys, valid while both are (equijoin over intervals; seed-001, 3.4).

Assumes     functions of the payload alone.
Keeps       of each input the live events that end after the other input's stable: only those can meet what is to come.
Insert      a pair with every event of the other input that has the key and overlaps it.
Adjust      each of its pairs gets the end that it now has: it begins to be, moves its end, or goes. The event's own
            entry is replaced. If it was forgotten already, its pairs that end with the partner stay as they are.
Stable      of one input at t: events of the *other* that end at or before t are forgotten. The promise is the smaller
            of the two inputs' stables.
Correct     after Stable(t) of one input its inserts start at t or later, and its adjusts move ends between instants at
            t or later: neither can meet, or change a pair with, an event that ends by t. A pair that begins, ends anew
            or goes does so no earlier than the smaller stable. One event of the input that is behind, at its stable,
            can begin a pair there.
Skips       nothing is forgotten at once, and pairs are finished as usual, which recovery-and-sink 8.4 allows: to take
            back a pair takes both events, and one may be forgotten while the other input can still revise it. What the
            input leaves out makes no pairs, and its stables purge the rest.
Cost        O(events of the other input with the key) an insert or adjust; amortised O(log n) for forgetting an event.
            Space: O(open events).

The output is a multiset in general, for R4: see `lmerge.properties.after_join`. Its order follows the interleaving of
the inputs, which a plan must fix (by batch, and by input within a batch) if a replay is to give the same elements.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

import msgspec

from lmerge.elements import Adjust, Element, Insert, Payload
from replicas.operators.operator import Operator, Saved
from replicas.operators.state import FEW, Value, pack, unpack

_Event: TypeAlias = tuple[Payload, int, int]


class SavedEvent(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One event of one input in a saved state, with the number of times that it is there."""

    key: Any
    payload: Any
    vs: int
    ve: int
    count: int


class SavedJoin(Saved, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What is saved of a join."""

    sides: tuple[list[SavedEvent], list[SavedEvent]]


class _Side:
    """The events of one input, by key and by end."""

    __slots__ = ("by_end", "by_key", "ends")

    def __init__(self) -> None:
        self.by_key: dict[Value, dict[_Event, int]] = {}
        self.by_end: dict[int, dict[tuple[Value, _Event], None]] = {}
        self.ends: list[int] = []  # a heap of the keys of `by_end`, and of some that it has no longer

    def __len__(self) -> int:
        return sum(sum(events.values()) for events in self.by_key.values())

    def add(self, key: Value, event: _Event, count: int = 1) -> None:
        events = self.by_key.setdefault(key, {})
        events[event] = events.get(event, 0) + count
        same_end = self.by_end.get(event[2])
        if same_end is None:
            same_end = self.by_end[event[2]] = {}
            heappush(self.ends, event[2])
            if len(self.ends) > 2 * len(self.by_end) + FEW:
                self.ends = sorted(self.by_end)
        same_end[key, event] = None

    def remove(self, key: Value, event: _Event) -> None:
        """Remove an event, if it is there."""
        events = self.by_key.get(key, {})
        if event not in events:
            return
        events[event] -= 1
        if not events[event]:
            same_end = self.by_end[event[2]]
            del same_end[key, event]
            if not same_end:
                del self.by_end[event[2]]
            self._drop(key, event)

    def forget_until(self, t: int) -> None:
        """Forget the events that end at or before `t`."""
        while self.ends and self.ends[0] <= t:
            for key, event in self.by_end.pop(heappop(self.ends), ()):
                self._drop(key, event)

    def _drop(self, key: Value, event: _Event) -> None:
        events = self.by_key[key]
        del events[event]
        if not events:
            del self.by_key[key]


class Join(Operator):
    """Join two inputs on a key.

    Args:
        left_key, right_key: give the key of a payload of input 0, and of input 1.
        combine: makes the payload of a pair out of both payloads, input 0's first.

    >>> join = Join(lambda bid: bid[0], lambda item: item[0], lambda bid, item: (*bid, item[1]))
    >>> join.process([Insert((7, 90), 1, 9)], 0)
    []
    >>> join.process([Insert((7, "lamp"), 3, 12)], 1)
    [Insert((7, 90, 'lamp'), 3, 9)]
    >>> join.process([Adjust((7, 90), 1, 9, 5)], 0)
    [Adjust((7, 90, 'lamp'), 3, 9, 5)]
    """

    inputs = 2
    saved = SavedJoin

    def __init__(
        self,
        left_key: Callable[[Any], Value],
        right_key: Callable[[Any], Value],
        combine: Callable[[Any, Any], Payload],
    ) -> None:
        super().__init__()
        self._keys = (left_key, right_key)
        self._combine = combine
        self._sides = (_Side(), _Side())

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        return "join"

    def __len__(self) -> int:
        """Return the number of events that are kept."""
        return len(self._sides[0]) + len(self._sides[1])

    # -- elements

    def _insert(self, element: Insert, output: list[Element]) -> None:
        mine = self._source
        payload, vs, ve = element.payload, element.vs, element.ve
        key = self._keys[mine](payload)
        for (other, start, end), count in self._sides[1 - mine].by_key.get(key, {}).items():
            begins = max(vs, start)
            output += _turn(self._pair(mine, payload, other), begins, begins, min(ve, end)) * count
        self._keep(mine, key, (payload, vs, ve))

    def _adjust(self, element: Adjust, output: list[Element]) -> None:
        mine = self._source
        payload, vs, vold, ve = element.payload, element.vs, element.vold, element.ve
        key = self._keys[mine](payload)
        for (other, start, end), count in self._sides[1 - mine].by_key.get(key, {}).items():
            pair = self._pair(mine, payload, other)
            output += _turn(pair, max(vs, start), min(vold, end), min(ve, end)) * count
        self._sides[mine].remove(key, (payload, vs, vold))
        if ve > vs:
            self._keep(mine, key, (payload, vs, ve))

    def _advance(self, vc: int, output: list[Element]) -> None:
        self._sides[1 - self._source].forget_until(vc)
        self._promise(min(self._stables), output)

    def _keep(self, mine: int, key: Value, event: _Event) -> None:
        """Keep an event, if it can meet what is to come of the other input."""
        if event[2] > self._stables[1 - mine]:
            self._sides[mine].add(key, event)

    def _pair(self, mine: int, payload: Payload, other: Payload) -> Payload:
        return self._combine(payload, other) if mine == 0 else self._combine(other, payload)

    # -- state

    def _save(self) -> SavedJoin:
        sides = [
            [
                SavedEvent(pack(key), pack(payload), vs, ve, count)
                for key, events in side.by_key.items()
                for (payload, vs, ve), count in events.items()
            ]
            for side in self._sides
        ]
        return SavedJoin(
            stables=self._stables, promised=self._promised, before=self._before, sides=(sides[0], sides[1])
        )

    def _load(self, saved: Saved) -> None:
        assert isinstance(saved, SavedJoin)
        super()._load(saved)
        self._sides = (_Side(), _Side())
        for side, events in zip(self._sides, saved.sides, strict=True):
            for event in events:
                side.add(unpack(event.key), (unpack(event.payload), event.vs, event.ve), event.count)


def _turn(pair: Payload, vs: int, was: int, now: int) -> list[Element]:
    """Return what makes the end of a pair another one; an end at or below vs: there is no such pair."""
    if was > vs:
        return [] if now == was else [Adjust(pair, vs, was, max(vs, now))]
    return [Insert(pair, vs, now)] if now > vs else []
