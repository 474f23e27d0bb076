"""Decoding with a memory: replicas write the same records, so most of what a lane reads it has just decoded.

A record that another input brought a moment ago costs a look-up, a fifth of decoding it. Elements are immutable, so all
inputs share one, and one copy of its payload. The memory is bounded: two generations, of which the older is forgotten
when the younger is full. A laggard finds nothing there and pays a tenth more.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from lmerge import Adjust, Element, Insert
from lmerge.codec import decode_batch
from lmerge.errors import MalformedRecord

GENERATION: Final = 4_096
"""Records of a generation: more than inputs with a backlog are apart, since they are read in turns (ADR 7)."""

MAX_BYTES: Final = 1_024
"""Records that are larger are not remembered, so that a lane's memory is at most some 10 MB."""

GROWTH: Final = 8
"""A canonical payload has at most so many times the bytes of its record: a number such as 1e20 becomes 21 digits."""


class Decoder:
    """Decodes the records of one lane."""

    def __init__(self) -> None:
        self._young: dict[bytes | None, Element] = {}
        self._old: dict[bytes | None, Element] = {}

    def decode(
        self, values: Sequence[bytes | None], *, most: int | None = None
    ) -> tuple[list[Element], MalformedRecord | None]:
        """Decode records up to the first malformed one, as `lmerge.codec.decode_batch` does.

        Args:
            values: the records.
            most: how many bytes a payload may have; one with more counts as malformed. None: any.
        """
        elements, error, largest = self._recall(values)
        # What is remembered was perhaps never judged, or by another bound; it is small.
        if most is not None and max(largest, MAX_BYTES) * GROWTH > most:
            return _up_to_too_large(elements, error, most)
        return elements, error

    def _recall(self, values: Sequence[bytes | None]) -> tuple[list[Element], MalformedRecord | None, int]:
        """Decode what is not remembered; return its largest size too."""
        found = list(map(self._young.get, values))
        if all(found):  # elements are never false; `None in` would compare each with None
            return found, None, 0  # type: ignore[return-value]
        if any(found):
            old = self._old.get
            found = [element or old(value) for element, value in zip(found, values, strict=True)]
        else:
            found = list(map(self._old.get, values))
        if not any(found):  # the first input that brings them
            return self._decode(values)
        missing = [value for value, element in zip(values, found, strict=True) if element is None]
        decoded, error, largest = self._decode(missing)
        fresh = iter(decoded)
        if error is None:
            return [element or next(fresh) for element in found], None, largest
        place = [index for index, element in enumerate(found) if element is None][error.index]
        return [element or next(fresh) for element in found[:place]], MalformedRecord(place, error.reason), largest

    def _decode(self, values: Sequence[bytes | None]) -> tuple[list[Element], MalformedRecord | None, int]:
        decoded, error = decode_batch(values)
        return decoded, error, self._remember(values[: len(decoded)], decoded)

    def _remember(self, values: Sequence[bytes | None], elements: Sequence[Element]) -> int:
        """Remember records but large ones; return the size of the largest."""
        if len(self._young) + len(elements) > GENERATION:
            self._old, self._young = self._young, {}
        pairs: Iterable[tuple[bytes | None, Element]] = zip(values, elements, strict=True)
        largest = max(map(len, values), default=0)  # type: ignore[arg-type]  # what was decoded has a value
        if largest > MAX_BYTES:
            pairs = ((value, element) for value, element in pairs if len(value or b"") <= MAX_BYTES)
        self._young.update(pairs)
        return largest


def _up_to_too_large(
    elements: list[Element], error: MalformedRecord | None, most: int
) -> tuple[list[Element], MalformedRecord | None]:
    for index, element in enumerate(elements):
        if isinstance(element, Insert | Adjust) and (size := len(element.payload)) > most:  # type: ignore[arg-type]
            reason = f"its payload has {size:,} bytes, and the merged topic takes {most:,} (max.message.bytes)"
            return elements[:index], MalformedRecord(index, reason)
    return elements, error
