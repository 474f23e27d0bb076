"""A partition of a topic in memory: offsets have gaps, as transaction markers leave them, and its beginning moves."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence


class Gone(Exception):
    """Somebody wants records that retention has removed."""


class Log:
    """One partition.

    Args:
        low: the offset at which it begins; what came before is gone.
    """

    def __init__(self, low: int = 0) -> None:
        self.low = self.end = low
        self._offsets: list[int] = []
        self._values: list[bytes | None] = []

    @property
    def until(self) -> int:
        """The offset after the last record; markers may follow it."""
        return self._offsets[-1] + 1 if self._offsets else self.low

    def next(self, offset: int) -> int:
        """Give the offset of the first record at or after an offset, or the end."""
        place = bisect_left(self._offsets, offset)
        return self._offsets[place] if place < len(self._offsets) else self.end

    def append(self, values: Iterable[bytes | None], *, markers: int = 0) -> None:
        """Write records, and so many markers after them."""
        for value in values:
            self._offsets.append(self.end)
            self._values.append(value)
            self.end += 1
        self.end += markers

    def read(self, offset: int, count: int | None = None) -> tuple[Sequence[int], Sequence[bytes | None]]:
        """Return records from an offset on.

        Raises:
            Gone: the offset lies before the beginning.
        """
        if offset < self.low:
            raise Gone(f"offset {offset} is wanted, and the log begins at {self.low}")
        begin = bisect_left(self._offsets, offset)
        end = len(self._offsets) if count is None else begin + count
        return self._offsets[begin:end], self._values[begin:end]

    def cut(self, offset: int) -> None:
        """Remove what lies before an offset."""
        if offset > self.low:
            self.low = min(offset, self.end)
            gone = bisect_left(self._offsets, self.low)
            del self._offsets[:gone], self._values[:gone]
