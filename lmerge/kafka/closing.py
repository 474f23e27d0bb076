"""What holds connections: closed once, by `with` or by hand, and of no use afterwards."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from lmerge.errors import UsageError


class Closing(ABC):
    """Base of everything that must be closed; a `with` block closes it at its end."""

    _is_closed = False

    def close(self) -> None:
        """Give up what this holds; calling it again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._close()

    @abstractmethod
    def _close(self) -> None:
        """Give up what this holds; called once."""

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{type(self).__name__} cannot be used: it is closed; make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
