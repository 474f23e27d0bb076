"""Reading the timestamp of a row: one function, the same for the heartbeat service and every replica."""

import re
from functools import lru_cache
from typing import Final

import msgspec

from lmerge.feed.definition import Source

MIN_TS: Final = 1
MAX_TS: Final = 253_402_300_799_999
"""After 1970 began, and to the year 9999. A timestamp beyond is unreadable. Below, since Spark's watermark is 0 before
it is anything: a replica would drop what lies there as late. Above, so that sums of it with windows and bounds stay
inside 64 bits, in microseconds too."""

_MAX_DEPTH: Final = 100
"""Nesting at which JSON is unreadable. Decoders have a limit anyway, but one that depends on the caller's stack: the
same row would count in one process and not in another."""

_MAX_NUMBER: Final = 64
"""Characters of the longest number that is read; what a timestamp needs, with any fraction that people write."""

_POWERS: Final = {"s": 3, "ms": 0, "us": -3, "ns": -6}
"""Milliseconds in each unit, as powers of ten."""

_NUMBER: Final = re.compile(rb"(-?[0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,2}))?")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")


def read_timestamp(source: Source, value: bytes | None, kafka_timestamp: int) -> int | None:
    """Read the timestamp of a row, in milliseconds; None if it is unreadable, and then the row does not count.

    A function of its arguments and nothing else: every replica must come to the same result. The rule for a field:

    - The value must be a JSON object, nested at most 100 deep. Of equal keys the last one is meant.
    - A number is read exactly as it is written, with fraction and exponent (of two digits), never as a binary float,
      converted to milliseconds and rounded down: `1.9999` s is 1999 ms.
    - A string is read as the number that it spells; protobuf writes 64-bit integers so. Dates as text are not read.
    - `true`, `false`, `null`, arrays, objects and a missing key are unreadable, and so is what is not
      above 0 or lies behind the year 9999, or is written with more than 64 characters.

    Args:
        source: the topic the row comes from.
        value: the record's value.
        kafka_timestamp: the record's own timestamp; negative if it has none.
    """
    field = source.field
    if field is None:
        return kafka_timestamp if MIN_TS <= kafka_timestamp <= MAX_TS else None
    if value is None or is_too_deep(value):
        return None
    try:
        text = bytes(_row_decoder(field).decode(value).ts)
    except msgspec.DecodeError:
        return None
    return _to_ms(text[1:-1] if text.startswith(b'"') else text, _POWERS[source.unit])


class _Row(msgspec.Struct):
    """A row, but for everything other than its timestamp, which stays as it is written."""

    ts: msgspec.Raw


@lru_cache(maxsize=64)
def _row_decoder(field: str) -> msgspec.json.Decoder[_Row]:
    """Make the decoder of rows whose timestamp is under this key; all other fields are skipped in C."""
    layout = msgspec.defstruct("Row", [("ts", msgspec.Raw)], bases=(_Row,), rename={"ts": field}, gc=False)
    return msgspec.json.Decoder(layout)


def is_too_deep(value: bytes) -> bool:
    """Tell whether JSON is nested deeper than what is read as a row."""
    if value.count(b"[") + value.count(b"{") <= _MAX_DEPTH:
        return False  # as good as always
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", value)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > _MAX_DEPTH


def _to_ms(text: bytes, power: int) -> int | None:
    """Read a number times 10 to the power, rounded down; None if it is none or no timestamp."""
    if len(text) > _MAX_NUMBER:
        return None
    if text.isdigit():
        digits = int(text)  # as good as always
    elif match := _NUMBER.fullmatch(text):
        whole, fraction, exponent = match.groups(b"")
        power += int(exponent or b"0") - len(fraction)
        digits = int(whole + fraction)
    else:
        return None
    ms = digits * 10**power if power >= 0 else digits // 10**-power
    return ms if MIN_TS <= ms <= MAX_TS else None
