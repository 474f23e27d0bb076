"""Decoding with a memory: replicas write the same records, so most of what a lane reads it has just decoded.

A record that another input brought a moment ago costs a look-up, a fifth of decoding it. Elements are immutable, so all
inputs share one, and one copy of its payload. The memory is bounded: two generations, of which the older is forgotten
when the younger is full. A laggard finds nothing there and pays a tenth more.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from lmerge import Element
from lmerge.codec import decode_batch
from lmerge.errors import MalformedRecord

GENERATION: Final = 4_096
"""Records of a generation: more than inputs with a backlog are apart, since they are read in turns (ADR 7)."""

MAX_BYTES: Final = 1_024
"""Records that are larger are not remembered, so that a lane's memory is at most some 10 MB."""


class Decoder:
    """Decodes the records of one lane."""

    def __init__(self) -> None:
        self._young: dict[bytes | None, Element] = {}
        self._old: dict[bytes | None, Element] = {}

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[Element], MalformedRecord | None]:
        """Decode records up to the first malformed one, as `lmerge.codec.decode_batch` does."""
        young, old = self._young.get, self._old.get
        found = [young(value) or old(value) for value in values]
        if all(found):  # elements are never false; `None in` would compare each with None
            return found, None  # type: ignore[return-value]
        missing = [value for value, element in zip(values, found, strict=True) if element is None]
        decoded, error = decode_batch(missing)
        self._remember(missing[: len(decoded)], decoded)
        if len(missing) == len(values):
            return decoded, error
        fresh = iter(decoded)
        elements: list[Element] = []
        for index, element in enumerate(found):
            known = element or next(fresh, None)
            if known is None:
                assert error is not None
                return elements, MalformedRecord(index, error.reason)
            elements.append(known)
        return elements, None

    def _remember(self, values: list[bytes | None], elements: list[Element]) -> None:
        if len(self._young) + len(elements) > GENERATION:
            self._old, self._young = self._young, {}
        pairs: Iterable[tuple[bytes | None, Element]] = zip(values, elements, strict=True)
        if max(map(len, values), default=0) > MAX_BYTES:  # type: ignore[arg-type]  # what was decoded has a value
            pairs = ((value, element) for value, element in pairs if len(value or b"") <= MAX_BYTES)
        self._young.update(pairs)
