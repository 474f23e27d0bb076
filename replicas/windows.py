"""Windows on a common grid, and what a conservative plan over them may promise (design section 2)."""

from typing import Final

import msgspec

from lmerge.errors import UsageError


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """All windows ``[s, s + width_ms)`` with ``s = 0 mod slide_ms``; tumbling if width and slide are equal."""

    width_ms: int
    slide_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.width_ms:
            raise UsageError(
                f"windows of {self.width_ms} ms every {self.slide_ms} ms: needs 0 < slide <= width, "
                "else rows fall between windows"
            )

    @property
    def tumbling(self) -> bool:
        """Whether no two windows overlap."""
        return self.width_ms == self.slide_ms

    def first_open(self, watermark: int) -> int:
        """Return the start of the earliest window that is still open: all that end at or before `watermark` are out.

        >>> Windows(width_ms=10, slide_ms=5).first_open(20), Windows(width_ms=10, slide_ms=5).first_open(24)
        (15, 15)
        """
        return ((watermark - self.width_ms) // self.slide_ms + 1) * self.slide_ms

    def has(self, vs: int, ve: int) -> bool:
        """Tell whether ``[vs, ve)`` is one of them.

        >>> Windows(width_ms=10, slide_ms=5).has(15, 25), Windows(width_ms=10, slide_ms=5).has(16, 26)
        (True, False)
        """
        return ve - vs == self.width_ms and vs % self.slide_ms == 0

    def resized(self, *, width_ms: int | None, slide_ms: int | None) -> "Windows":
        """Return them with another length or distance of starts; what tumbles goes on to do so.

        Raises:
            UsageError: the results have no windows, or windows that tumble would overlap: their plans may rest on it.
        """
        if width_ms is None and slide_ms is None:
            return self
        if self == INSTANTS:
            raise UsageError("this query has no windows: leave --window-ms and --slide-ms out")
        width = width_ms or self.width_ms
        slide = slide_ms or (width if self.tumbling else self.slide_ms)
        if self.tumbling and slide != width:
            raise UsageError(f"the windows of this query tumble, so their slide is their length: not {slide} ms")
        return Windows(width_ms=width, slide_ms=slide)

    def reach_of_panes_ms(self) -> int:
        """Return how far a row reaches by way of whole panes: they lie inside of their windows and add nothing."""
        return self.width_ms

    def require_whole_panes(self) -> None:
        """Check that a window is made of whole panes, pieces as long as the slide.

        Raises:
            UsageError: it is not.
        """
        if self.width_ms % self.slide_ms:
            raise UsageError(
                f"a window of {self.width_ms} ms is no whole number of panes of {self.slide_ms} ms; "
                "choose a slide that divides the width"
            )


INSTANTS: Final = Windows(width_ms=1, slide_ms=1)
"""Of results that live ``[t, t + 1)``: those of joins and of plans without state."""
