"""Who says what: one table of all streams' events by key, as far as they are not settled.

A row is a key ``(payload, vs)``; a column is a *claimant*: the merged stream (column 0), an incarnation of an input, or
an input as it was before a skip. A cell holds the ends that the claimant gives the key. One table for all streams keeps
a payload once, however many streams have it, and shows a key as a whole to the judge.

A row is *open* until the merged stream's judged stable makes it final. Rows come up for judgement when that stable
passes their `vs` or an end that anybody gave them (`pop_due`); a row is dropped when it is closed and no stream may
change its cell by itself any more. So the table is as large as what is not frozen.

*Cost.* An element costs one look-up, and O(log n) for a time that is new; a claimant that comes or goes O(rows) once.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

from lmerge.compatible import Key, Order, Promise
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Insert, Stable
from lmerge.facts import Rule

MERGED: Final = 0
"""The column of the merged stream."""

_SMALL: Final = 1_024
"""Rows that are never worth a sweep."""


class Row:
    """What all claimants say about one key."""

    __slots__ = ("at", "ends", "key", "open")

    def __init__(self, key: Key, columns: int, *, is_open: bool) -> None:
        self.key = key
        self.ends: list[tuple[int, ...]] = [()] * columns  # sorted, by column
        self.open = is_open
        self.at = -1  # the position of the last element of the merged stream here; -1: it had none

    @property
    def vs(self) -> int:
        """The start that all events of this key have."""
        return self.key[1]


class Claimant:
    """A stream whose word counts: how far it is final, and from where on it is complete."""

    __slots__ = ("column", "done", "joins_at", "name", "said", "stable")

    def __init__(self, name: str, column: int, joins_at: int = MINUS_INFINITY) -> None:
        self.name = name
        self.column = column
        self.joins_at = joins_at
        self.stable = MINUS_INFINITY
        self.said = MINUS_INFINITY  # the last stable in the stream; its order may have promised more
        self.done = False  # nothing more will come of it

    def promise(self, row: Row, until: int = INFINITY) -> Promise:
        """Return what it says about a key up to `until`, in the terms of the theorem."""
        return Promise(self.joins_at, min(self.stable, until), row.ends[self.column])


class Table:
    """Rows by key, claimants by column, and when to look at what.

    Args:
        name: of the merged stream.
        multiset: a key may have several events (R1 and R4).
        order: what the order of all streams promises.
    """

    def __init__(self, name: str, *, multiset: bool, order: Order) -> None:
        self.merged = Claimant(name, MERGED)
        self.claimants: list[Claimant] = []  # all but the merged stream, in the order of their columns
        self.judged = MINUS_INFINITY  # how far the merged stream has been judged
        self._multiset = multiset
        self._order = order.value
        self._rows: dict[Key, Row] = {}
        self._settled_events = 0  # events of the merged stream in rows that became final
        self._kept = _SMALL  # rows that the last sweep left; the next comes when there are twice as many
        # Open rows by the times at which they must be looked at, and a heap of those times.
        self._due: dict[int, list[Row]] = {}
        self._times: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, name: str, joins_at: int = MINUS_INFINITY, *, like: Claimant | None = None) -> Claimant:
        """Add a claimant that has said nothing, or what `like` has."""
        claimant = Claimant(name, len(self.claimants) + 1, joins_at)
        self.claimants.append(claimant)
        if like is not None:
            claimant.stable = like.stable
        for row in self._rows.values():
            row.ends.append(() if like is None else row.ends[like.column])
        return claimant

    def remove(self, claimant: Claimant) -> None:
        """Forget a claimant; the columns behind it move up."""
        self.claimants.remove(claimant)
        for row in self._rows.values():
            del row.ends[claimant.column]
        for column, other in enumerate(self.claimants, 1):
            other.column = column

    def clear(self, claimant: Claimant) -> None:
        """Void what a claimant has said."""
        claimant.stable = claimant.said = MINUS_INFINITY
        for row in self._rows.values():
            row.ends[claimant.column] = ()

    def insert(self, claimant: Claimant, element: Insert, at: int) -> Rule | None:
        """Take an insert, unless the claimant's own stream does not allow it; then return the rule."""
        vs = element.vs
        if vs < claimant.stable:
            return Rule.STABLE
        column = claimant.column
        key = (element.payload, vs)
        row = self._rows.get(key) or self._new_row(key, column)
        ends: tuple[int, ...] = (element.ve,)
        if row.ends[column]:
            if not self._multiset:
                return Rule.DUPLICATE
            ends = tuple(sorted((*row.ends[column], element.ve)))
        self._write(row, column, ends, element.ve, at)
        if self._order is not None:
            claimant.stable = max(claimant.stable, vs + self._order)
        return None

    def adjust(self, claimant: Claimant, element: Adjust, at: int) -> Rule | None:
        """Take an adjust, unless the claimant's own stream does not allow it; then return the rule."""
        if element.vold < claimant.stable or element.ve < claimant.stable:
            return Rule.STABLE
        row = self._rows.get((element.payload, element.vs))
        if row is None or element.vold not in row.ends[claimant.column]:
            return Rule.NO_SUCH_EVENT
        after = list(row.ends[claimant.column])
        after.remove(element.vold)
        if element.ve > element.vs:
            after.append(element.ve)
            after.sort()
        self._write(row, claimant.column, tuple(after), element.ve, at)
        return None

    def stable(self, claimant: Claimant, element: Stable) -> Rule | None:
        """Take a stable, unless it goes back."""
        if element.vc < claimant.said:
            return Rule.STABLE
        claimant.said = element.vc
        claimant.stable = max(claimant.stable, element.vc)
        return None

    def _new_row(self, key: Key, column: int) -> Row:
        # What only a replay of settled times has is settled too. The merged stream's own are always looked at.
        is_open = key[1] >= self.judged or column == MERGED
        row = self._rows[key] = Row(key, len(self.claimants) + 1, is_open=is_open)
        if is_open:
            self._put(key[1], row)
        return row

    def _write(self, row: Row, column: int, ends: tuple[int, ...], ve: int, at: int) -> None:
        if row.open and ve < INFINITY and ends not in row.ends:  # else another stream has put it where it belongs
            self._put(ve, row)
        row.ends[column] = ends
        if column == MERGED:
            row.at = at

    def _put(self, time: int, row: Row) -> None:
        rows = self._due.get(time)
        if rows is None:
            self._due[time] = [row]
            heappush(self._times, time)
        else:
            rows.append(row)

    def pop_due(self, until: int) -> list[Row]:
        """Return the open rows that a stable at `until` touches: their vs or some end of theirs lies before it."""
        due: list[Row] = []
        while self._times and self._times[0] < until:
            due += self._due.pop(heappop(self._times))
        return [row for row in dict.fromkeys(due) if row.open]

    def open_before(self, until: int) -> list[Row]:
        """Return all open rows that begin before `until`."""
        return [row for row in self._rows.values() if row.open and row.vs < until]

    def close(self, rows: Iterable[Row]) -> None:
        """Judge rows no more, and drop those that no stream can change, by its own contract."""
        stables = self._frontiers()
        for row in rows:
            row.open = False
            if _is_settled(row, stables):
                del self._rows[row.key]

    def close_final(self, rows: Iterable[Row], until: int) -> None:
        """Close the rows that a stable at `until` makes final in the merged stream."""
        final = []
        for row in rows:
            ends = row.ends[MERGED]
            if row.open and (not ends or ends[-1] < until):
                self._settled_events += len(ends)
                final.append(row)
        self.close(final)

    def sweep(self) -> None:
        """Drop what was closed while a stream could still change it; amortised over the rows since the last sweep.

        An incarnation that replays settled times brings as many rows as there are, and closes none.
        """
        if len(self._rows) <= 2 * self._kept:
            return
        stables = self._frontiers()
        self._rows = {key: row for key, row in self._rows.items() if row.open or not _is_settled(row, stables)}
        self._kept = max(_SMALL, len(self._rows))

    def _frontiers(self) -> list[int]:
        """Return by column below which time a claimant can change no end; one that is over changes none at all."""
        claimants = [INFINITY + 1 if claimant.done else claimant.stable for claimant in self.claimants]
        return [self.merged.stable, *claimants]

    def events(self) -> tuple[int, int]:
        """Count the events of the merged stream that are final, and those that are not."""
        alive = sum(ve >= self.judged for row in self._rows.values() for ve in row.ends[MERGED])
        beside = sum(ve < self.judged for row in self._rows.values() if row.open for ve in row.ends[MERGED])
        return self._settled_events + beside, alive


def _is_settled(row: Row, stables: list[int]) -> bool:
    for ends, stable in zip(row.ends, stables, strict=True):  # noqa: SIM110  # once per event: `all` costs twice as much
        if ends and ends[-1] >= stable:
            return False
    return True
