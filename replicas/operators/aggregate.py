"""Aggregate: one answer for every snapshot of every group (seed-001, 3.1, corrected form of 3.1.4).

A snapshot is the time between two neighbouring starts or ends of events of a group. Its answer is an event with that
lifetime; a snapshot without events has none. Neighbouring snapshots with equal answers are not joined.

    sum of  10 [1, 5)  20 [3, 8)   =   10 [1, 3)  30 [3, 5)  20 [5, 8)

Assumes     functions of the payload alone; values as the fold wants them (`folds`).
Keeps       for each group its open snapshots and pending ends (`snapshots`), and what of them is on the output.
Insert      the snapshots that it covers change, its start and, once the group has come to it, its end cut others in
            two. What has changed is put out at the end of the batch, as far as the mode answers by then.
Adjust      likewise: snapshots between the old and the new end change, an end that nobody has any more joins two.
Stable      at t: the group has come to t. Snapshots that end below t are final and forgotten. What is promised:

                eager, ordered   t
                perfect          t, or the start of the last snapshot of a group, if it is open and so is not out
                final            t, or the start of the first snapshot that is not final (seed-001, E6)

            the smallest over the groups. In perfect mode an insert may release the rest of a promise later.
Correct     after each flush the output has, for every start, what the mode wants there; a start below a promise never
            vanishes, nor does its answer change, since the input's stable protects both. So every mode ends in the TDB
            of the definition above. More cannot be promised: what is missing would have to be inserted below it.
Modes       see `Mode`. On its way each is as legal as the others, so replicas of different modes merge by R3 if the
            payload tells the group (and the rank, for top).
Skips       results with ve < before are taken back or not put out, except where a promise rests on them, since their
            ends may yet grow. Nothing else is forgotten: an old event may be where a new snapshot starts.
Cost        insert and adjust: O(log n) look-ups and one step for each snapshot of the group between its ends; a new
            point copies a fold. Stable: O(log g) for each of the groups that have a point or an end up to t; comparing
            one number for each group that holds the promise back. Space: O(open points), and all values for
            minimum, maximum and top.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from lmerge.elements import INFINITY, Adjust, Element, Insert, Payload
from lmerge.errors import IllegalElement
from replicas.operators.folds import Function
from replicas.operators.mode import Changes, Mode, Out
from replicas.operators.operator import Operator, Saved, missing
from replicas.operators.snapshots import Snapshot, Snapshots
from replicas.operators.state import FEW, UnusableState, Value, pack, pack_all, unpack


class SavedGroup(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One group in a saved state."""

    key: Any
    points: list[int]
    snapshots: list[tuple[int, Any]]
    """How many starts and ends are at the point, and the fold."""
    pending: list[tuple[int, Any]]
    out: list[tuple[int, list[Any], int]]


class SavedAggregate(Saved, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What is saved of an aggregate."""

    groups: list[SavedGroup]


class _Group:
    """The snapshots of a group, and where the schedule has it."""

    __slots__ = ("due", "number", "snapshots")

    def __init__(self, snapshots: Snapshots, number: int) -> None:
        self.snapshots = snapshots
        self.number = number  # groups that are due together take turns by it
        self.due: int | None = None


class Aggregate(Operator):
    """Answer for every snapshot.

    Args:
        function: what is computed; see `folds`.
        mode: when it is put out.
        key: gives the group of a payload; None: there is one group.
        value: gives what of a payload is aggregated; None: the payload itself.
        result: makes the payload of an answer, from the group's key and the answer. By default the answer itself, or
            the pair of both where there are groups.

    >>> from lmerge import Stable
    >>> from replicas.operators.folds import total
    >>> aggregate = Aggregate(total(), Mode.EAGER)
    >>> for element in [Insert(10, 1, 5), Insert(20, 3, 8), Stable(9)]:
    ...     print(aggregate.process([element]))
    [Insert(10, 1, 5)]
    [Adjust(10, 1, 5, 3), Insert(30, 3, 5), Insert(20, 5, 8)]
    [Stable(9)]
    """

    saved = SavedAggregate

    def __init__(
        self,
        function: Function,
        mode: Mode,
        *,
        key: Callable[[Any], Value] | None = None,
        value: Callable[[Any], Value] | None = None,
        result: Callable[[Any, Any], Payload] | None = None,
    ) -> None:
        super().__init__()
        self._function = function
        self._mode = mode
        self._key = key or (lambda _: None)
        self._value = value or (lambda payload: payload)
        self._result = result or ((lambda key, answer: (key, answer)) if key else (lambda _, answer: answer))
        self._groups: dict[Value, _Group] = {}
        self._numbered = 0
        self._touched: dict[Value, None] = {}  # groups that changed since the last flush, in order
        # Groups by the instant from which on a stable concerns them; an entry counts if it is the group's own `due`.
        self._schedule: list[tuple[int, int, Value]] = []
        self._holds: dict[Value, int] = {}  # groups that hold back what can be promised, and to where

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        return f"aggregate({self._function.name}, {self._mode.value})"

    def __len__(self) -> int:
        """Return the number of points and pending ends of all groups."""
        return sum(len(group.snapshots) for group in self._groups.values())

    # -- elements

    def _insert(self, element: Insert, output: list[Element]) -> None:  # noqa: ARG002  # it answers when flushed
        key = self._key(element.payload)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._new_group(key, self._numbered)
            self._numbered += 1
        group.snapshots.insert(self._value(element.payload), element.vs, element.ve)
        self._touched[key] = None

    def _adjust(self, element: Adjust, output: list[Element]) -> None:  # noqa: ARG002
        key = self._key(element.payload)
        group = self._groups.get(key)
        if group is None:
            raise missing(element)
        try:
            group.snapshots.adjust(self._value(element.payload), element.vs, element.vold, element.ve)
        except IllegalElement as error:
            raise IllegalElement(f"{element}: {error}") from error
        self._touched[key] = None

    def _flush(self, output: list[Element]) -> None:
        if not self._touched:
            return
        changes = Changes()
        for key in self._touched:
            group = self._groups[key]
            self._bring_up_to_date(group, changes)
            self._reschedule(key, group)
        self._touched.clear()
        changes.put(output)
        if self._mode is Mode.PERFECT:  # a snapshot that held the promise back may be out now
            self._promise_all(output)

    def _advance(self, vc: int, output: list[Element]) -> None:
        changes = Changes()
        for key, group in self._due(vc):
            snapshots = group.snapshots
            snapshots.come_to(vc)
            if vc < self._before:
                snapshots.touch_open(vc)
            self._bring_up_to_date(group, changes)
            for start, end, snapshot in snapshots.settle(vc):
                if self._mode is Mode.FINAL and end >= self._before:
                    changes.turn(start, None, Out(snapshots.payloads(snapshot), end))
            self._reschedule(key, group)
        changes.put(output)
        self._promise_all(output)

    def _skip(self, output: list[Element]) -> None:
        changes = Changes()
        for group in self._groups.values():
            group.snapshots.touch_out()
            self._bring_up_to_date(group, changes)
        changes.put(output)

    def _promise_all(self, output: list[Element]) -> None:
        """Promise as much as all groups allow."""
        self._promise(min(self._stables[0], min(self._holds.values(), default=INFINITY)), output)

    def _bring_up_to_date(self, group: _Group, changes: Changes) -> None:
        group.snapshots.flush(changes, promised=self._promised, stable=self._stables[0], before=self._before)

    # -- groups

    def _new_group(self, key: Value, number: int) -> _Group:
        result = self._result
        return _Group(Snapshots(self._function, self._mode, lambda answer: result(key, answer)), number)

    def _reschedule(self, key: Value, group: _Group) -> None:
        """Note when a stable concerns a group next and what it holds back; forget it if it is empty."""
        hold = group.snapshots.hold()
        if hold == INFINITY:
            self._holds.pop(key, None)
        else:
            self._holds[key] = hold
        if not group.snapshots:
            del self._groups[key]
            return
        due = group.snapshots.due(self._stables[0])
        if due != group.due:
            group.due = due
            heappush(self._schedule, (due, group.number, key))
            if len(self._schedule) > 2 * len(self._groups) + FEW:
                self._forget_stale()

    def _forget_stale(self) -> None:
        """Keep of the schedule what counts: else it gets one far ahead for each that was due before it."""
        self._schedule = [
            (group.due, group.number, key) for key, group in self._groups.items() if group.due is not None
        ]
        heapify(self._schedule)

    def _due(self, vc: int) -> list[tuple[Value, _Group]]:
        """Take the groups out of the schedule that a stable concerns."""
        found = []
        while self._schedule and self._schedule[0][0] <= vc:
            due, number, key = heappop(self._schedule)
            group = self._groups.get(key)
            if group is not None and group.number == number and group.due == due:
                group.due = None
                found.append((key, group))
        return found

    # -- state

    def _save(self) -> SavedAggregate:
        groups = [_save_group(key, group.snapshots) for key, group in self._groups.items()]
        return SavedAggregate(stables=self._stables, promised=self._promised, before=self._before, groups=groups)

    def _load(self, saved: Saved) -> None:
        assert isinstance(saved, SavedAggregate)
        groups: dict[Value, _Group] = {}
        for one in saved.groups:
            key = unpack(one.key)
            group = groups[key] = self._new_group(key, len(groups))
            try:
                _load_group(group.snapshots, one, self._function)
            except (TypeError, ValueError) as error:
                raise UnusableState(f"state of {self.signature}: group {key!r} cannot be read: {error}") from error
        super()._load(saved)
        self._groups = groups
        self._numbered = len(groups)
        self._touched, self._holds, self._schedule = {}, {}, []
        for key, group in groups.items():
            self._reschedule(key, group)


def _save_group(key: Value, snapshots: Snapshots) -> SavedGroup:
    return SavedGroup(
        pack(key),
        snapshots.points,
        [(snapshot.count, snapshot.fold.dump()) for snapshot in snapshots.snapshots],
        [(end, snapshots.pending[end].dump()) for end in snapshots.waiting],
        [(start, pack_all(out.payloads), out.ve) for start, out in snapshots.out.items()],
    )


def _load_group(snapshots: Snapshots, saved: SavedGroup, function: Function) -> None:
    if len(saved.points) != len(saved.snapshots):
        raise ValueError(f"{len(saved.points)} points and {len(saved.snapshots)} snapshots")
    snapshots.points = saved.points
    snapshots.snapshots = [Snapshot(function.load(fold), count) for count, fold in saved.snapshots]
    snapshots.waiting = [end for end, _ in saved.pending]
    snapshots.pending = {end: function.load(fold) for end, fold in saved.pending}
    snapshots.out = {start: Out(tuple(map(unpack, payloads)), ve) for start, payloads, ve in saved.out}
