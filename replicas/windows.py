"""Windows on a common grid, and what a conservative plan over them may promise (design section 2)."""

import msgspec

from lmerge.errors import UsageError


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """All windows ``[s, s + width_ms)`` with ``s = offset_ms mod slide_ms``; tumbling if width and slide are equal."""

    width_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.width_ms:
            raise UsageError(
                f"windows of {self.width_ms} ms every {self.slide_ms} ms: needs 0 < slide <= width, "
                "else rows fall between windows"
            )
        if not 0 <= self.offset_ms < self.slide_ms:
            raise UsageError(f"windows with offset {self.offset_ms} ms: needs 0 <= offset < slide")

    def first_open(self, watermark: int) -> int:
        """Return the start of the earliest window that is still open: all that end at or before `watermark` are out.

        >>> Windows(width_ms=10, slide_ms=5).first_open(20), Windows(width_ms=10, slide_ms=5).first_open(24)
        (15, 15)
        """
        return ((watermark - self.width_ms - self.offset_ms) // self.slide_ms + 1) * self.slide_ms + self.offset_ms
