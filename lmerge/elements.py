"""Elements: what a physical stream consists of (paper 000, III-C, Example 5), as frozen values.

    Insert(payload, vs, ve)         adds the event <payload, [vs, ve)> to the TDB
    Adjust(payload, vs, vold, ve)   makes <payload, [vs, vold)> into <payload, [vs, ve)>; ve == vs removes it
    Stable(vc)                      from now on no insert has vs < vc, no adjust has vold < vc or ve < vc
    Hello(...)                      a replica begins anew here; all that came before it in its topic is void
    Skip(before)                    a replica was fast-forwarded: it lacks events with ve < before

Application time is an integer of milliseconds. Two values of it are not instants: `INFINITY` (an end that is not known
yet, or a stable that closes the stream) and `MINUS_INFINITY` (a replica that is complete from the very start). They
are ordinary integers, so that comparing, sorting and packing them costs nothing special; every finite instant lies
strictly between them.

A payload is any hashable value. The algorithms only compare it for equality; on the wire, and so in the service, it is
canonical JSON as bytes (see `lmerge.canonical`).

Values check themselves: an element that exists has finite `vs`, `vs <= ve`, and so on. What an element may do in *its
stream* depends on the elements before it and is checked by `lmerge.tdb` and by the algorithms, not here.

``gc=False``: an element refers to nothing that refers back to it, so the collector need not visit millions of them.
"""

from collections.abc import Hashable
from typing import Any, Final, TypeAlias

import msgspec

from lmerge.errors import UsageError

Payload: TypeAlias = Hashable

INFINITY: Final = 2**63 - 1
"""Later than every instant; prints as ``+inf``. The largest 64-bit integer, so that ends can be packed."""

MINUS_INFINITY: Final = -(2**63)
"""Earlier than every instant; prints as ``-inf``."""

WIRE_VERSION: Final = 1
"""Version of the record formats; `Hello` carries it."""


def show_time(t: int) -> str:
    """Write an instant for people: the number, ``+inf`` or ``-inf``."""
    if t == INFINITY:
        return "+inf"
    return "-inf" if t == MINUS_INFINITY else str(t)


def _check_payload(element: "Insert | Adjust") -> None:
    """Refuse a payload that no index can hold."""
    try:
        hash(element.payload)
    except TypeError:
        raise UsageError(
            f"{element}: the payload must be hashable; make JSON canonical: lmerge.canonical.payload"
        ) from None


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Add an event: `payload`, valid in ``[vs, ve)``."""

    payload: Payload
    vs: int
    ve: int

    def __post_init__(self) -> None:
        vs, ve = self.vs, self.ve
        if not (type(vs) is type(ve) is int and MINUS_INFINITY < vs < ve <= INFINITY):
            raise UsageError(f"{self}: needs integers -inf < vs < ve <= +inf, an event has a lifetime")
        if type(self.payload) is not bytes:
            _check_payload(self)

    def __repr__(self) -> str:
        return f"Insert({self.payload!r}, {show_time(self.vs)}, {show_time(self.ve)})"


class Adjust(msgspec.Struct, frozen=True, gc=False):
    """Change the end of the event ``<payload, [vs, vold)>`` to `ve`; ``ve == vs`` removes it."""

    payload: Payload
    vs: int
    vold: int
    ve: int

    def __post_init__(self) -> None:
        if not (type(self.vs) is type(self.vold) is int and MINUS_INFINITY < self.vs < self.vold <= INFINITY):
            raise UsageError(f"{self}: needs integers -inf < vs < vold <= +inf, no event ends before it has begun")
        if not (type(self.ve) is int and self.vs <= self.ve <= INFINITY):
            raise UsageError(f"{self}: needs an integer vs <= ve <= +inf")
        if type(self.payload) is not bytes:
            _check_payload(self)

    def __repr__(self) -> str:
        times = ", ".join(map(show_time, (self.vs, self.vold, self.ve)))
        return f"Adjust({self.payload!r}, {times})"


class Stable(msgspec.Struct, frozen=True, gc=False):
    """Promise that the part of the TDB before `vc` does not change any more; ``Stable(INFINITY)`` ends the stream."""

    vc: int

    def __post_init__(self) -> None:
        if not (type(self.vc) is int and MINUS_INFINITY < self.vc <= INFINITY):
            raise UsageError(f"{self}: vc must be an instant or INFINITY")

    def __repr__(self) -> str:
        return f"Stable({show_time(self.vc)})"


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Open an incarnation of a replica: from `joins_at` on its TDB is complete (paper 000, V-B).

    `feed` is the id of the feed that it reads, `plan` the name of its plan and `properties` what it declares about its
    stream (see `lmerge.properties`); a foreign producer may leave them out.
    """

    replica: str
    incarnation: int
    joins_at: int = MINUS_INFINITY
    feed: str = ""
    plan: str = ""
    properties: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.incarnation < 0:
            raise UsageError(f"{self}: an incarnation is counted from 0")
        if not MINUS_INFINITY <= self.joins_at < INFINITY:
            raise UsageError(f"{self}: joins_at must be an instant or MINUS_INFINITY")

    def __repr__(self) -> str:
        return f"Hello({self.replica!r}, incarnation={self.incarnation}, joins_at={show_time(self.joins_at)})"


class Skip(msgspec.Struct, frozen=True, gc=False):
    """State that the replica was fast-forwarded and lacks events with ``ve < before``.

    What it did not have to read for that, since its incarnation began, is for people alone.
    """

    before: int
    cuts: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        if not MINUS_INFINITY < self.before < INFINITY:
            raise UsageError(f"{self}: before must be a finite instant")
        if min(self.cuts, self.rows) < 0:
            raise UsageError(f"{self}: cuts and rows that were not read cannot be negative")

    def __repr__(self) -> str:
        return f"Skip({show_time(self.before)})"


Element: TypeAlias = Insert | Adjust | Stable | Hello | Skip
"""What a stream consists of; matches over it end in `assert_never`."""
