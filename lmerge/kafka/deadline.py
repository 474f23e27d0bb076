"""A moment by which a call has to be over; the only clock in this package."""

import time
from typing import Final

SLICE_SECONDS: Final = 1.0
"""The longest single wait inside librdkafka. It runs without Python, so signals (Ctrl-C, SIGTERM) wait behind it."""


class Deadline:
    """A moment, some seconds from now, on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the deadline is over."""
        return self.left == 0.0

    def slice(self, longest: float = SLICE_SECONDS) -> float:
        """Give the length of the next wait: up to `longest`, and not beyond the deadline."""
        return min(longest, self.left)
