"""The wall clock, for what services tell people and each other; nothing is decided by it but how old something is."""

import time


def now_ms() -> int:
    """Return the wall time in milliseconds."""
    return time.time_ns() // 1_000_000
