"""Windows on a grid, as Spark cuts them: every ``[s, s + width)`` with ``s = offset mod slide``."""

import msgspec

from lmerge.elements import INFINITY
from lmerge.errors import UsageError


class Grid(msgspec.Struct, frozen=True):
    """Windows of one width that start every `slide`; tumbling if the two are equal."""

    width: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.width:
            raise UsageError(f"{self}: needs 0 < slide <= width, else rows fall between windows")
        if not 0 <= self.offset < self.slide:
            raise UsageError(f"{self}: needs 0 <= offset < slide")

    def first_open(self, t: int) -> int:
        """Return the start of the first window that ends after `t`.

        >>> Grid(10, 5).first_open(20), Grid(10, 5).first_open(24), Grid(10, 5).first_open(25)
        (15, 15, 20)
        """
        if t == INFINITY:
            return INFINITY
        return ((t - self.width - self.offset) // self.slide + 1) * self.slide + self.offset

    def starts(self, t: int) -> range:
        """Return the starts of the windows that hold the instant `t`, in order.

        >>> list(Grid(10, 5).starts(12)), list(Grid(10, 10).starts(12)), list(Grid(10, 4, offset=1).starts(12))
        ([5, 10], [10], [5, 9])
        """
        return range(self.first_open(t), t + 1, self.slide)
