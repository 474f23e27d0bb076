"""Windows: give every event the lifetime of its window (AlterLifetime, seed-001, 3.3; `lmerge.properties.Window`).

An event that starts at vs becomes

    range      [vs, vs + width)
    tumbling   [s, s + width) for the one s = offset mod width with s <= vs < s + width
    sliding    [s, s + width) for every s = offset mod slide with s <= vs < s + width: several events for one
    hopping    [s, s + width) for the largest s = offset mod hop with s <= vs: one event, however windows overlap

Assumes     nothing.
Keeps       nothing: a window depends on vs alone, which never changes.
Insert      one insert for each window.
Adjust      of the end: nothing, the windows stay as they are (an adjust without a change would break the order of a
            chain, seed-001 3.3). A removal removes the event from each window.
Stable      t passes as the earliest start that an event at t or later could get: t itself; the first window that ends
            after t; the hop that t lies in.
Correct     an element of the input after Stable(t) has vs >= t, or changes nothing here, so that it starts no window
            below that. An insert at t would give exactly that start, so nothing more can be promised.
Cost        O(windows) an insert or removal.
"""

from collections.abc import Callable, Iterable
from typing import Self

from lmerge.elements import INFINITY, Adjust, Element, Insert
from lmerge.errors import UsageError
from replicas.operators.grid import Grid
from replicas.operators.operator import Operator


class Window(Operator):
    """Replace lifetimes by windows; made by `range`, `tumbling`, `sliding` and `hopping`.

    >>> Window.sliding(10, 5).process([Insert("a", 12, 13), Adjust("a", 12, 13, 12)])
    [Insert('a', 5, 15), Insert('a', 10, 20), Adjust('a', 5, 15, 5), Adjust('a', 10, 20, 10)]
    """

    def __init__(
        self, name: str, width: int, *, starts: Callable[[int], Iterable[int]], progress: Callable[[int], int]
    ) -> None:
        super().__init__()
        if width <= 0:
            raise UsageError(f"window {name}: its width must be positive")
        self._name = name
        self._width = width
        self._starts = starts
        self._progress = progress

    @classmethod
    def range(cls, width: int) -> Self:
        """Return the window that slides with every instant: an event lives for `width`."""
        return cls(f"range {width}", width, starts=lambda vs: (vs,), progress=lambda t: t)

    @classmethod
    def tumbling(cls, width: int, offset: int = 0) -> Self:
        """Return windows that do not overlap."""
        return cls.sliding(width, width, offset)

    @classmethod
    def sliding(cls, width: int, slide: int, offset: int = 0) -> Self:
        """Return windows that start every `slide`; an event is in all that hold its start, as in Spark."""
        grid = Grid(width, slide, offset)
        return cls(f"sliding {width} {slide} {offset}", width, starts=grid.starts, progress=grid.first_open)

    @classmethod
    def hopping(cls, width: int, hop: int, offset: int = 0) -> Self:
        """Return windows that an event enters at the last hop before it: at any instant, what came lately."""
        if hop <= 0:
            raise UsageError(f"hop {hop}: must be positive")

        def down(t: int) -> int:
            return t if t == INFINITY else (t - offset) // hop * hop + offset

        return cls(f"hopping {width} {hop} {offset}", width, starts=lambda vs: (down(vs),), progress=down)

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        return f"window({self._name})"

    def _insert(self, element: Insert, output: list[Element]) -> None:
        output += [Insert(element.payload, start, start + self._width) for start in self._starts(element.vs)]

    def _adjust(self, element: Adjust, output: list[Element]) -> None:
        if element.ve == element.vs:
            starts = self._starts(element.vs)
            output += [Adjust(element.payload, start, start + self._width, start) for start in starts]

    def _advance(self, vc: int, output: list[Element]) -> None:
        self._promise(self._progress(vc), output)
