"""An operator's state as bytes, and back: versioned, checked, without pickle.

    [magic, version, signature, crc32 of the body, body]        msgpack

The *signature* says which operator the state belongs to, with every parameter that decides what the state means. So a
state is refused, with an error that names what is wrong, if it is damaged (the checksum), foreign (the magic), of
another version, or of another operator. Functions that the user passed in are not in the signature: a replica's plan
hash covers them.

Values inside a state (group keys, payloads, what an aggregate has seen) are None, booleans, integers of any size,
floats, strings, bytes, decimals and tuples of those. msgpack has neither tuples nor large integers nor decimals: a
tuple is written as an array, which no value otherwise is, and the others as extensions.
"""

import zlib
from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from lmerge.errors import LMergeError, UsageError

MAGIC: Final = "lmerge operator"
VERSION: Final = 1

FEW: Final = 16
"""Entries of a heap that count no more are looked for when it has twice as many as it needs, and so many more."""

Value: TypeAlias = Hashable
"""What a state may hold; see the module's text."""

S = TypeVar("S")

_LARGE_INTEGER: Final = 1
_DECIMAL: Final = 2
_PLAIN: Final = (bytes, str, bool, float, type(None))


class UnusableState(LMergeError):
    """Bytes that are not a state of this operator; it must not be used before a load succeeds."""


def pack(value: Any) -> Any:
    """Return a value in the form in which msgpack keeps it.

    Raises:
        UsageError: a value of a type that a state cannot hold.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        if -(2**63) <= value < 2**63:
            return value
        return msgspec.msgpack.Ext(_LARGE_INTEGER, b"%x" % value)
    if kind is tuple:
        return [pack(item) for item in value]
    if kind is Decimal:
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    raise UsageError(
        f"{value!r}: a state holds None, booleans, numbers, strings, bytes, decimals and tuples of them, "
        f"not {kind.__name__}; let the operator's functions return one of those"
    )


def pack_all(values: Iterable[Any]) -> list[Any]:
    """Return values as `pack` does."""
    return [pack(value) for value in values]


def unpack(value: Any) -> Any:
    """Return the value that `pack` was given."""
    return tuple(map(unpack, value)) if type(value) is list else value


def _extension(code: int, data: memoryview) -> Any:
    if code == _LARGE_INTEGER:
        return int(bytes(data), 16)
    if code == _DECIMAL:
        return Decimal(bytes(data).decode())
    raise ValueError(f"extension {code} is not known")


_encode = msgspec.msgpack.Encoder().encode


def seal(signature: str, body: msgspec.Struct) -> bytes:
    """Return the bytes of a state."""
    content = _encode(body)
    return _encode([MAGIC, VERSION, signature, zlib.crc32(content), content])


def unseal(state: bytes, signature: str, kind: type[S]) -> S:
    """Return the body of a state that `seal` wrote for an operator with this signature.

    Raises:
        UnusableState: it is none; the message says why.
    """
    content = _content(state, signature)
    try:
        return msgspec.msgpack.decode(content, type=kind, ext_hook=_extension)
    except (msgspec.DecodeError, ValueError, ArithmeticError) as error:
        raise UnusableState(f"state of {signature}: its content cannot be read: {error}") from error


def _content(state: bytes, signature: str) -> bytes:
    try:
        frame = msgspec.msgpack.decode(state)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: text that is no UTF-8
        raise UnusableState(f"state for {signature}: damaged or foreign bytes ({error})") from error
    if not isinstance(frame, list) or frame[:1] != [MAGIC]:
        raise UnusableState(f"state for {signature}: these bytes are not the state of an operator")
    if frame[1:2] != [VERSION]:
        raise UnusableState(
            f"state for {signature}: version {frame[1:2]}, this program reads {VERSION}; use the program that wrote "
            "it, or start the replica without a checkpoint"
        )
    try:
        _, _, written_by, checksum, content = frame
        intact = zlib.crc32(content) == checksum
    except (TypeError, ValueError) as error:
        raise UnusableState(f"state for {signature}: its frame is damaged ({error})") from error
    if not intact:
        raise UnusableState(f"state of {written_by}: damaged, the checksum of its content is wrong")
    if written_by != signature:
        raise UnusableState(f"a state of {written_by} does not fit {signature}: the plan has changed")
    return bytes(content)
