"""WindowAggregate: one answer for every window on a grid and every group, as SQL's ``GROUP BY window(…), key``.

A row that starts at vs counts in every window ``[s, s + width)`` with ``s <= vs < s + width``; its own end does not
matter. The answer of a window is an event with that window as its lifetime (design section 2). Unlike `Aggregate`
behind `Window` it keeps overlapping windows apart, and it knows that windows end where they end. So it is the
aggressive twin of a plan that Spark runs with its own windows: both end in the same TDB.

Assumes     functions of the payload alone; values as the fold wants them (`folds`).
Keeps       a fold for each window and group with rows that is not final, and what of it is on the output.
Insert      the row goes into its windows; those that have changed are put out at the end of the batch, as far as the
            mode answers by then.
Adjust      a removal takes the row out again. Other adjusts change nothing.
Stable      at t: windows that end at or before t are final and forgotten: no row of theirs is to come or go. The
            promise is the start of the first window that ends after t, in every mode; a row at t would change it.
Correct     a row that comes or goes after Stable(t) has vs >= t, so it lies in windows that start at that promise or
            later. All before are out, with the right answer and end.
Modes       final     a window is put out when it is final
            perfect   when a row at or behind its end has come, or a stable; put right if rows come late
            ordered   at once, without an end; the end comes when perfect would put it out
            eager     at once
            Replicas of different modes merge by R3 if the payload tells the group (and the rank, for top).
Skips       windows that end before `before` are forgotten, and rows in them ignored: their ends never move.
Cost        O(windows of a row) an insert or removal, and one answer for each window that has changed in a batch.
            Stable: O(windows that it makes final). Space: O(windows and groups with rows), and all values for minimum,
            maximum and top.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Insert, Payload
from lmerge.errors import IllegalElement
from replicas.operators.folds import Fold, Function
from replicas.operators.grid import Grid
from replicas.operators.mode import Changes, Mode, Out
from replicas.operators.operator import Operator, Saved, missing
from replicas.operators.state import UnusableState, Value, pack, pack_all, unpack


class SavedWindow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One group of one window in a saved state."""

    start: int
    key: Any
    fold: Any
    payloads: list[Any] | None
    """What is on the output, with the end below; None: nothing is."""
    ve: int


class SavedWindows(Saved, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What is saved of a window aggregate."""

    come_to: int
    windows: list[SavedWindow]


class _Cell:
    """One group in one window."""

    __slots__ = ("fold", "out")

    def __init__(self, fold: Fold, out: Out | None = None) -> None:
        self.fold = fold
        self.out = out


class WindowAggregate(Operator):
    """Answer for every window of a grid.

    Args:
        grid: the windows.
        function: what is computed; see `folds`.
        mode: when it is put out.
        key, value, result: as for `Aggregate`.

    >>> from lmerge import Stable
    >>> from replicas.operators.folds import count
    >>> aggregate = WindowAggregate(Grid(10, 10), count(), Mode.EAGER)
    >>> for element in [Insert("a", 3, 4), Insert("b", 7, 8), Stable(10)]:
    ...     print(aggregate.process([element]))
    [Insert(1, 0, 10)]
    [Adjust(1, 0, 10, 0), Insert(2, 0, 10)]
    [Stable(10)]
    """

    saved = SavedWindows

    def __init__(
        self,
        grid: Grid,
        function: Function,
        mode: Mode,
        *,
        key: Callable[[Any], Value] | None = None,
        value: Callable[[Any], Value] | None = None,
        result: Callable[[Any, Any], Payload] | None = None,
    ) -> None:
        super().__init__()
        self._grid = grid
        self._function = function
        self._mode = mode
        self._key = key or (lambda _: None)
        self._value = value or (lambda payload: payload)
        self._result = result or ((lambda key, answer: (key, answer)) if key else (lambda _, answer: answer))
        self._windows: dict[int, dict[Value, _Cell]] = {}  # by start; none is empty
        self._starts: list[int] = []  # of these, in order
        self._touched: dict[tuple[int, Value], None] = {}
        self._come_to = MINUS_INFINITY  # the largest start of a row, or stable
        self._flushed_to = MINUS_INFINITY  # what `_come_to` was at the last flush

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        grid = self._grid
        windows = f"{grid.width} every {grid.slide} from {grid.offset}"
        return f"window aggregate({windows}, {self._function.name}, {self._mode.value})"

    def __len__(self) -> int:
        """Return the number of windows and groups that are kept."""
        return sum(map(len, self._windows.values()))

    # -- elements

    def _insert(self, element: Insert, output: list[Element]) -> None:  # noqa: ARG002  # it answers when flushed
        key, value = self._key(element.payload), self._value(element.payload)
        for start in self._wanted(element.vs):
            window = self._windows.get(start)
            if window is None:
                window = self._windows[start] = {}
                insort(self._starts, start)
            cell = window.get(key)
            if cell is None:
                cell = window[key] = _Cell(self._function.empty())
            cell.fold.add(value)
            self._touched[start, key] = None
        self._come_to = max(self._come_to, element.vs)

    def _adjust(self, element: Adjust, output: list[Element]) -> None:  # noqa: ARG002
        if element.ve > element.vs:
            return
        key, value = self._key(element.payload), self._value(element.payload)
        for start in self._wanted(element.vs):
            cell = self._windows.get(start, {}).get(key)
            if cell is None:
                raise missing(element)
            try:
                cell.fold.remove(value)
            except IllegalElement as error:
                raise IllegalElement(f"{element}: {error}") from error
            self._touched[start, key] = None

    def _advance(self, vc: int, output: list[Element]) -> None:
        self._come_to = max(self._come_to, vc)
        self._flush(output)
        first_open = self._grid.first_open(vc)
        settled = self._forget_below(first_open)
        if self._mode is Mode.FINAL:
            changes = Changes()
            for start, key, cell in settled:
                changes.turn(start, None, Out(self._payloads(key, cell), start + self._grid.width))
            changes.put(output)
        self._promise(first_open, output)

    def _skip(self, output: list[Element]) -> None:
        # No window has been promised: those below the promise are final, and gone.
        changes = Changes()
        for start, _, cell in self._forget_below(self._before - self._grid.width):
            changes.turn(start, cell.out, None)
        changes.put(output)

    def _wanted(self, vs: int) -> range:
        """Return the starts of the windows of a row that still matter."""
        starts = self._grid.starts(vs)
        if starts[0] + self._grid.width >= self._before:
            return starts
        return range(self._grid.first_open(max(vs, self._before - 1)), vs + 1, self._grid.slide)

    def _forget_below(self, start: int) -> list[tuple[int, Value, _Cell]]:
        """Forget all windows with a smaller start, and return them in order."""
        behind = bisect_left(self._starts, start)
        gone = self._starts[:behind]
        del self._starts[:behind]
        return [(start, key, cell) for start in gone for key, cell in self._windows.pop(start).items()]

    # -- the output

    def _flush(self, output: list[Element]) -> None:
        self._touch_passed()
        if not self._touched:
            return
        changes = Changes()
        for start, key in self._touched:
            window = self._windows[start]
            cell = window[key]
            want = self._want(start, key, cell)
            changes.turn(start, cell.out, want)
            cell.out = want
            if not cell.fold.n:
                self._remove(start, key)
        self._touched.clear()
        changes.put(output)

    def _touch_passed(self) -> None:
        """Touch the windows whose end has been passed since the last flush, where the mode waits for that."""
        if self._come_to > self._flushed_to:
            if self._mode in (Mode.PERFECT, Mode.ORDERED):
                ends = (self._flushed_to - self._grid.width, self._come_to - self._grid.width)
                for start in self._starts[bisect_right(self._starts, ends[0]) : bisect_right(self._starts, ends[1])]:
                    self._touched.update(((start, key), None) for key in self._windows[start])
            self._flushed_to = self._come_to

    def _want(self, start: int, key: Value, cell: _Cell) -> Out | None:
        end = start + self._grid.width
        passed = end <= self._come_to
        if not cell.fold.n or self._mode is Mode.FINAL or (self._mode is Mode.PERFECT and not passed):
            return None
        open_end = self._mode is Mode.ORDERED and not passed
        return Out(self._payloads(key, cell), INFINITY if open_end else end)

    def _payloads(self, key: Value, cell: _Cell) -> tuple[Payload, ...]:
        return tuple(self._result(key, answer) for answer in cell.fold.answers())

    def _remove(self, start: int, key: Value) -> None:
        window = self._windows[start]
        del window[key]
        if not window:
            del self._windows[start]
            del self._starts[bisect_left(self._starts, start)]

    # -- state

    def _save(self) -> SavedWindows:
        windows = [
            SavedWindow(
                start,
                pack(key),
                cell.fold.dump(),
                None if cell.out is None else pack_all(cell.out.payloads),
                INFINITY if cell.out is None else cell.out.ve,
            )
            for start in self._starts
            for key, cell in self._windows[start].items()
        ]
        return SavedWindows(
            stables=self._stables,
            promised=self._promised,
            before=self._before,
            come_to=self._come_to,
            windows=windows,
        )

    def _load(self, saved: Saved) -> None:
        assert isinstance(saved, SavedWindows)
        windows: dict[int, dict[Value, _Cell]] = {}
        for one in saved.windows:
            out = None if one.payloads is None else Out(tuple(map(unpack, one.payloads)), one.ve)
            try:
                cell = _Cell(self._function.load(one.fold), out)
            except (TypeError, ValueError) as error:
                raise UnusableState(f"state of {self.signature}: window {one.start} cannot be read: {error}") from error
            windows.setdefault(one.start, {})[unpack(one.key)] = cell
        super()._load(saved)
        self._windows = windows
        self._starts = sorted(windows)
        self._touched = {}
        self._come_to = self._flushed_to = saved.come_to
