"""Progress on standard error: one line that is rewritten on a terminal, now and then a plain line elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Final

import click

from lmerge.elements import show_time
from services.certify import Batches

_TERMINAL_SECONDS: Final = 0.2
_PLAIN_SECONDS: Final = 10.0
"""Between two lines where nobody watches: a log of an hour has 360 of them."""


class Progress:
    """Counts what is read and says so.

    Args:
        clock: seconds, as `time.monotonic` has them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.elements = 0
        self.lane = ""  # what is read now, as a prefix
        self.stable: Callable[[], int] | None = None  # how far the judge has come
        self._clock = clock
        self._began = clock()
        self._terminal = sys.stderr.isatty()
        self._every = _TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS
        self._next = self._began + self._every

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._clock() - self._began

    def watch(self, batches: Batches) -> Batches:
        """Pass batches on and count them."""
        for batch in batches:
            self.elements += len(batch.positions)
            if self._clock() >= self._next:
                self._show()
            yield batch

    def _show(self) -> None:
        self._next = self._clock() + self._every
        reached = f", stable {show_time(self.stable())}" if self.stable else ""
        text = f"lmerge: {self.lane}{self.elements:,} elements read{reached}"
        click.echo(f"\r\033[K{text}" if self._terminal else text, err=True, nl=not self._terminal)

    def close(self) -> None:
        """Say how much was read in all, and how fast."""
        seconds = self.seconds
        rate = f"{self.elements / seconds:,.0f}" if seconds else "many"
        text = f"lmerge: {self.elements:,} elements read in {seconds:.1f} s, {rate} elements/s"
        click.echo(f"\r\033[K{text}" if self._terminal else text, err=True)
