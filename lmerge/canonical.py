"""Payload identity: the canonical form of a JSON value, as bytes.

Two payloads are the same event's payload iff their canonical forms are the same bytes. The form is that of RFC 8785
(keys sorted by UTF-16 code units, no white space, shortest escapes, floats in the shortest form that reads back as the
same number, integral floats as integers), with one exception: integers stay exact, up to the 4,300 digits that Python
reads. Duplicate keys, NaN, infinities and lone surrogates are refused. `null` and an absent key differ; there is no
Unicode normalisation.

This module sits on the path of every element, so a whole batch is read and written back by msgspec in two calls into C.
msgspec sorts keys by code point and forgets duplicates, so its output is taken only where neither can matter (`write`
has the argument). What is left goes one by one through the same check and, if need be, through `_exact`, which is slow
and obvious, and which the tests hold the quick way against.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from lmerge.errors import UsageError


def number(x: float) -> str:
    """Write a float as ECMAScript does (RFC 8785, 3.2.2.3).

    >>> number(1.0), number(-0.0), number(1e21), number(1e-7), number(0.000001), number(123456789012345680000.0)
    ('1', '0', '1e+21', '1e-7', '0.000001', '123456789012345680000')

    Raises:
        ValueError: NaN and infinities have no JSON form.
    """
    if not math.isfinite(x):
        raise ValueError(f"{x} is no JSON number")
    if x == 0:
        return "0"
    sign = "-" if x < 0 else ""
    # repr gives the shortest digits that round-trip; only their layout differs: 0.digits * 10**point.
    mantissa, _, exponent = repr(abs(x)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


# At most 15 significant digits, so that no other float is nearer and no shorter text reads back as this one; no
# exponent, no trailing zero, and large enough for ECMAScript to write no exponent either: canonical as it stands.
_PLAIN = re.compile(r"-?(?=[0-9.]{1,16}$)(?:[1-9][0-9]*|0(?=\.0{0,5}[1-9]))\.[0-9]*[1-9]").fullmatch


def float_hook(literal: str) -> msgspec.Raw:
    """Keep a float as its canonical text, which every encoder then writes as it is; for decoders of msgspec."""
    return msgspec.Raw((literal if _PLAIN(literal) else number(float(literal))).encode())


_read = msgspec.json.Decoder(float_hook=float_hook).decode
_write_lines = msgspec.json.Encoder(order="sorted").encode_lines
_write_in_order = msgspec.json.Encoder().encode


def _order_in_doubt(text: bytes) -> bool:
    """Tell whether code points and UTF-16 code units may sort differently in `text`.

    They do only between a character above U+FFFF (first UTF-8 byte F0 to F4) and one from U+E000 to U+FFFF (EE, EF).
    """
    if text.isascii():
        return False
    high = any(lead in text for lead in (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4"))
    return high and (b"\xee" in text or b"\xef" in text)


def write(values: Sequence[Any], text: bytes, *, other_quotes: int = 0) -> list[bytes] | None:
    r"""Write the canonical forms of values that msgspec has read from `text`; None where it cannot be told.

    msgspec keeps the last of duplicate keys, which would pass unnoticed. But what it writes then has fewer quotation
    marks than what it read: a key brings two, and every other quotation mark is either written as ``\"`` on both sides
    or was read as ``\u0022``. So with no ``\u`` in the text, equal numbers of them mean that no key was lost.

    Args:
        values: as a decoder with `float_hook` gives them.
        text: what they were read from.
        other_quotes: how many quotation marks it has outside of the values, if no key was lost there either.
    """
    lines: bytes = _write_lines(values)  # a line feed inside a string is written as \n, so lines are values
    if b"\\u" in text or text.count(b'"') != lines.count(b'"') + other_quotes or _order_in_doubt(lines):
        return None
    return lines.split(b"\n")[:-1]


def _quick(texts: Sequence[bytes]) -> list[bytes] | None:
    """Canonicalise where msgspec's reading and writing is enough; None where it cannot be told."""
    joined = b"[" + b",".join(texts) + b"]"
    return write(_read(joined), joined)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object in the order of RFC 8785, refusing duplicate keys."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return dict(sorted(pairs, key=lambda pair: pair[0].encode("utf-16-be")))


def _exact(text: bytes) -> bytes:
    """Canonicalise a value that msgspec has been able to read: there is no NaN in it, and no broken UTF-8."""
    return _write_in_order(json.loads(text.decode(), object_pairs_hook=_unique, parse_float=float_hook))


def refuse_duplicate_keys(text: bytes) -> None:
    """Raise ValueError if an object anywhere in `text` has a key twice."""
    json.loads(text.decode(), object_pairs_hook=_unique)


def canonical(text: bytes) -> bytes:
    """Return the canonical form of one JSON value.

    Raises:
        ValueError: the text is no JSON value, or one that has no canonical form; the message says why.
    """
    try:
        form = _quick([text])
        return _exact(text) if form is None or len(form) != 1 else form[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def canonical_batch(texts: Sequence[bytes]) -> list[bytes]:
    """Return the canonical forms of many JSON values, each of which is known to be well formed by itself.

    Raises:
        ValueError: as `canonical`, for the first value that has no canonical form.
    """
    try:
        forms = _quick(texts)
    except (ValueError, msgspec.DecodeError, RecursionError):
        forms = None
    return [canonical(text) for text in texts] if forms is None else forms


def payload(value: Any) -> bytes:
    r"""Return the canonical bytes of a Python value made of dicts, lists, strings, numbers, booleans and None.

    >>> payload({"b": 1.0, "a": "é"})
    b'{"a":"\xc3\xa9","b":1}'

    Raises:
        UsageError: the value has no JSON form.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        return canonical(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"no JSON payload: {error}") from error
