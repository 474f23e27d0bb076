"""Where the local stack keeps things: all under the checkout, all ignored by git."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

CACHE = CHECKOUT / ".cache"
"""What was downloaded; it can be deleted at any time and fetched again."""

RUN = CHECKOUT / ".run"
"""One directory per stack that runs or whose data was kept."""


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Keep other processes of this checkout out of the block; they wait.

    The lock is the kernel's, so it goes with its holder however that ends. The file stays: deleting it would let
    two processes hold locks on two files of one name.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
