"""The snapshots of one group: where they begin, which values each has, and what of them is on the output.

This is the core of `Aggregate`; seed-001 3.1.4 has the algorithm and why the printed one is wrong.

*Points* are instants at which a live event of the group starts or ends. Between two neighbouring points the valid
values are the same: that is a *snapshot*, kept as the fold of its values. Ends that the group has not come to are
*pending*, as one fold for each end of the values that end there; in eager mode none are. The last point is how far the
group has come: every pending end lies behind it, and its fold holds exactly the pending values.

A point is there for as many ends and starts as it counts. When the last of them is adjusted away it goes, and the
snapshot before it grows. Points below the input's stable stay, since nothing adjusts those.

What is on the output is kept apart from the points (`out`), by start. An insert or adjust only marks the starts at
which something may have to change (`touched`), and `flush` compares what is out with what ought to be. So any number of
changes may come between two flushes.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any

from lmerge.elements import INFINITY, Payload
from lmerge.errors import IllegalElement
from replicas.operators.folds import Fold, Function
from replicas.operators.mode import Changes, Mode, Out


class Snapshot:
    """What is valid from a point on to the next."""

    __slots__ = ("count", "fold")

    def __init__(self, fold: Fold, count: int) -> None:
        self.fold = fold
        self.count = count  # live starts and ends at its point


class Snapshots:
    """All snapshots of one group that are not settled."""

    __slots__ = (
        "_answer",
        "_eager",
        "_function",
        "_mode",
        "_tracks",
        "out",
        "pending",
        "points",
        "snapshots",
        "touched",
        "waiting",
    )

    def __init__(self, function: Function, mode: Mode, answer: Callable[[Any], Payload]) -> None:
        self._function = function
        self._mode = mode
        self._answer = answer  # makes a payload of an answer
        self._eager = mode is Mode.EAGER
        self._tracks = mode is not Mode.FINAL  # final puts out what `settle` returns, and nothing else
        self.points: list[int] = []  # in order
        self.snapshots: list[Snapshot] = []  # one for each point
        self.waiting: list[int] = []  # the pending ends, in order
        self.pending: dict[int, Fold] = {}
        self.out: dict[int, Out] = {}
        self.touched: set[int] = set()  # only ever looked at in order

    def __len__(self) -> int:
        """Return the number of points and pending ends."""
        return len(self.points) + len(self.waiting)

    # -- the input

    def insert(self, value: Any, vs: int, ve: int) -> None:
        """Add an event."""
        if not self._eager:
            self.come_to(vs)
        self._add_point(vs, 1)
        if self._eager or ve <= self.points[-1]:
            self._add_point(ve, 1)
        else:
            self._wait(value, ve)
        for snapshot in self._between(vs, ve):
            snapshot.fold.add(value)

    def adjust(self, value: Any, vs: int, vold: int, ve: int) -> None:
        """Give an event another end, or remove it.

        Raises:
            IllegalElement: the state shows that there is no such event.
        """
        last = INFINITY if self._eager else self.points[-1] if self.points else vs
        if vold > last:
            self._no_longer_wait(value, vold)
        if ve > last:
            self._wait(value, ve)
        elif ve > vs:
            self._add_point(ve, 1)
        for snapshot in self._between(ve, vold):
            snapshot.fold.remove(value)
        for snapshot in self._between(vold, ve):
            snapshot.fold.add(value)
        if vold <= last:
            self._drop_point(vold)
        if ve == vs:
            self._drop_point(vs)

    def come_to(self, t: int) -> None:
        """Turn the pending ends up to an instant into points."""
        while self.waiting and self.waiting[0] <= t:
            end = self.waiting.pop(0)
            ending = self.pending.pop(end)
            self._add_point(end, ending.n)
            self.snapshots[-1].fold.subtract(ending)

    def _add_point(self, t: int, count: int) -> None:
        place = bisect_left(self.points, t)
        if place < len(self.points) and self.points[place] == t:
            self.snapshots[place].count += count
            return
        fold = self.snapshots[place - 1].fold.copy() if place else self._function.empty()
        self.points.insert(place, t)
        self.snapshots.insert(place, Snapshot(fold, count))
        self._touch(place - 1, place + 1)

    def _drop_point(self, t: int) -> None:
        place = bisect_left(self.points, t)
        if place == len(self.points) or self.points[place] != t:
            raise IllegalElement(f"an adjust takes back an event with an end at {t}, where nothing begins or ends")
        self.snapshots[place].count -= 1
        if not self.snapshots[place].count:
            self._touch(place - 1, place + 1)
            del self.points[place], self.snapshots[place]

    def _between(self, start: int, end: int) -> Sequence[Snapshot]:
        """Return the snapshots that lie in ``[start, end)``; they are about to change."""
        first, behind = bisect_left(self.points, start), bisect_left(self.points, end)
        if first >= behind:
            return ()
        self._touch(first, behind)
        return self.snapshots[first:behind]

    def _touch(self, first: int, behind: int) -> None:
        if self._tracks:
            self.touched.update(self.points[max(first, 0) : behind])

    def _wait(self, value: Any, ve: int) -> None:
        fold = self.pending.get(ve)
        if fold is None:
            fold = self.pending[ve] = self._function.empty()
            insort(self.waiting, ve)
        fold.add(value)

    def _no_longer_wait(self, value: Any, ve: int) -> None:
        fold = self.pending.get(ve)
        if fold is None:
            raise IllegalElement(f"an adjust takes back an event with an end at {ve}, where nothing ends")
        fold.remove(value)
        if not fold.n:
            del self.pending[ve]
            del self.waiting[bisect_left(self.waiting, ve)]

    # -- the output

    def payloads(self, snapshot: Snapshot) -> tuple[Payload, ...]:
        """Return the payloads that a snapshot answers with."""
        return tuple(map(self._answer, snapshot.fold.answers())) if snapshot.fold.n else ()

    def flush(self, changes: Changes, *, promised: int, stable: int, before: int) -> None:
        """Bring the output up to date at every start that was touched.

        Args:
            changes: takes the elements.
            promised: the output's stable.
            stable: the input's stable.
            before: results that end before it are not wanted, unless a promise rests on them.
        """
        for start in sorted(self.touched):
            have, want = self.out.get(start), None
            place = bisect_left(self.points, start)
            if place < len(self.points) and self.points[place] == start and self.snapshots[place].fold.n:
                if place + 1 < len(self.points):
                    end = self.points[place + 1]
                    if end >= before or start < promised or start < stable <= end:
                        want = Out(self.payloads(self.snapshots[place]), end)
                elif self._mode is Mode.ORDERED:
                    want = Out(self.payloads(self.snapshots[place]), INFINITY)
                elif have is not None and start < promised:
                    continue  # half frozen: it stays as it is until its end is known
            changes.turn(start, have, want)
            if want is None:
                self.out.pop(start, None)
            else:
                self.out[start] = want
        self.touched.clear()

    def touch_open(self, t: int) -> None:
        """Touch the snapshot that a stable at `t` leaves open."""
        place = bisect_left(self.points, t) - 1
        if place >= 0:
            self._touch(place, place + 1)

    def touch_out(self) -> None:
        """Touch all that is on the output."""
        self.touched.update(self.out)

    def settle(self, t: int) -> list[tuple[int, int, Snapshot]]:
        """Forget all snapshots that a stable at `t` makes final, and return them with their start and end."""
        behind = len(self.points) if t == INFINITY else max(bisect_left(self.points, t) - 1, 0)
        ends = [*self.points[1 : behind + 1], INFINITY][:behind]
        settled = list(zip(self.points[:behind], ends, self.snapshots[:behind], strict=True))
        del self.points[:behind], self.snapshots[:behind]
        for start, _, _ in settled:
            self.out.pop(start, None)
        if self.points and self.points[0] < t and not self.snapshots[0].fold.n:
            del self.points[0], self.snapshots[0]  # a gap is as good as no snapshot before the next
        return settled

    def hold(self) -> int:
        """Return the instant beyond which the output may not be stable, whatever the input's stable is.

        In final mode a snapshot that is not settled is not out. In perfect mode the last one is not, or with an end
        that was its own once, which may be kept up to that end. The others answer at once: INFINITY.
        """
        if self._mode is Mode.FINAL:
            return next((p for p, s in zip(self.points, self.snapshots, strict=True) if s.fold.n), INFINITY)
        if self._mode is Mode.PERFECT and self.points and self.snapshots[-1].fold.n:
            have = self.out.get(self.points[-1])
            return self.points[-1] if have is None else have.ve
        return INFINITY

    def due(self, t: int) -> int:
        """Return the instant below which a further stable after `t` has nothing to do here."""
        place = bisect_left(self.points, t)
        first = self.points[place] if place < len(self.points) else INFINITY
        return min(first, self.waiting[0]) if self.waiting else first
