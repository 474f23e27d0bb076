"""Elements to bytes and back: one Kafka record value per element, compact JSON that a person can read with kcat.

    {"kind":"insert","payload":…,"vs":…,"ve":…}             ve null: +inf
    {"kind":"adjust","payload":…,"vs":…,"vold":…,"ve":…}    vold, ve null: +inf
    {"kind":"stable","vc":…}                                vc null: +inf
    {"kind":"hello","v":1,"replica":…,"incarnation":…,"joins_at":…,"feed":…,"properties":…,"plan":…}
    {"kind":"skip","before":…}                              joins_at null: -inf
    {"kind":"skip","before":…,"cuts":…,"rows":…}            if something was not read

Fields may come in any order and with white space; unknown and duplicate ones are refused, for a field that is not
understood may change the meaning (`hello`, which carries a version, may have more). What is written is always the
compact form above, with the payload canonical.

Everything works on batches: a batch is decoded, checked and canonicalised in a few calls into C. Where that does not go
through, it is decoded record by record, with the same result and with the error of the first record that has one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, assert_never, final

import msgspec

from lmerge.canonical import canonical, float_hook, refuse_duplicate_keys, write
from lmerge.elements import (
    INFINITY,
    MINUS_INFINITY,
    WIRE_VERSION,
    Adjust,
    Element,
    Hello,
    Insert,
    Skip,
    Stable,
)
from lmerge.errors import MalformedRecord, UsageError

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=INFINITY)]
_Instant: TypeAlias = Annotated[int, msgspec.Meta(gt=MINUS_INFINITY, lt=INFINITY)]


class _Wire(msgspec.Struct, frozen=True, gc=False, tag_field="kind", forbid_unknown_fields=True):
    """What the records of all kinds share: the tag, and that no field is ignored."""


@final
class _Insert(_Wire, frozen=True, tag="insert"):
    payload: Any
    vs: _Instant
    ve: _Instant | None


class _Adjust(_Wire, frozen=True, tag="adjust"):
    payload: Any
    vs: _Instant
    vold: _Instant | None
    ve: _Instant | None


class _Stable(_Wire, frozen=True, tag="stable"):
    vc: _Instant | None


class _Hello(_Wire, frozen=True, tag="hello", forbid_unknown_fields=False):
    v: Literal[1]
    replica: str
    incarnation: _Count
    joins_at: _Instant | None
    feed: str = ""
    properties: dict[str, Any] = {}
    plan: str = ""


class _Skip(_Wire, frozen=True, tag="skip"):
    before: _Instant
    cuts: _Count = 0
    rows: _Count = 0


_Record: TypeAlias = _Insert | _Adjust | _Stable | _Hello | _Skip

_QUOTES: dict[type, int] = {_Insert: 10, _Adjust: 12, _Stable: 6, _Skip: 6}
"""Quotation marks of a record without its payload: those of the kind, and of every field once.

A skip that tells what was not read has more. It is rare, and goes the slow way.
"""


_WITH_PAYLOAD = frozenset({_Insert, _Adjust})


class _Text(msgspec.Struct):
    payload: msgspec.Raw


_decoder: msgspec.json.Decoder[_Record] = msgspec.json.Decoder(_Record, float_hook=float_hook)
_text_decoder = msgspec.json.Decoder(_Text)
_encoder = msgspec.json.Encoder()

_INSERT: Final = b'{"kind":"insert","payload":%b,"vs":%d,"ve":%d}'
_INSERT_FOREVER: Final = b'{"kind":"insert","payload":%b,"vs":%d,"ve":null}'


def decode(value: bytes | None) -> Element:
    """Decode one record value.

    Raises:
        MalformedRecord: the bytes are no element; the message says what is wrong and where.
    """
    elements, error = decode_batch([value])
    if error is not None:
        raise error
    return elements[0]


def decode_batch(values: Sequence[bytes | None]) -> tuple[list[Element], MalformedRecord | None]:
    """Decode record values up to the first malformed one.

    Returns:
        The elements of all records before the first malformed one, and its error, or None when all are elements.
    """
    elements = _decode_together(values)
    if elements is not None:
        return elements, None
    elements = []
    for index, value in enumerate(values):
        try:
            elements.append(_decode_one(value))
        except (ValueError, UsageError, msgspec.DecodeError, RecursionError) as error:
            return elements, MalformedRecord(index, _reason(value, error))
    return elements, None


def _decode_together(values: Sequence[bytes | None]) -> list[Element] | None:
    """Decode a batch at once; None if that cannot be done, for whatever reason.

    No record may contain a line feed: then a line yields at most one record, and n lines yield n only if each is one.
    """
    try:
        lines = b"\n".join(values)  # type: ignore[arg-type]  # None raises TypeError, caught below
        if lines.count(b"\n") != len(values) - 1:
            return None
        records = _decoder.decode_lines(lines)
        kinds = Counter(map(type, records))
        if len(records) != len(values) or _Hello in kinds:  # a hello may have fields that are not known here
            return None
        quotes = sum(_QUOTES[kind] * count for kind, count in kinds.items())
        values = [record.payload for record in records if type(record) in _WITH_PAYLOAD]  # type: ignore[union-attr]
        payloads = write(values, lines, other_quotes=quotes)
        return None if payloads is None else _elements(records, payloads)
    except (TypeError, ValueError, UsageError, msgspec.DecodeError, RecursionError):
        return None


def _decode_one(value: bytes | None) -> Element:
    if value is None:
        raise ValueError("the record has no value (a tombstone)")
    record = _decoder.decode(value)
    texts = [bytes(_text_decoder.decode(value).payload)] if isinstance(record, _Insert | _Adjust) else []
    if isinstance(record, _Hello) or value.count(b'"') != _QUOTES[type(record)] + sum(t.count(b'"') for t in texts):
        refuse_duplicate_keys(value)
    return _elements([record], map(canonical, texts))[0]


def _elements(records: Iterable[_Record], payloads: Iterable[bytes]) -> list[Element]:
    """Make elements of records; `payloads` has the canonical payload of each insert and adjust, in order."""
    elements: list[Element] = []
    payload = iter(payloads).__next__
    add = elements.append
    for record in records:  # not match: this runs once per element, and match costs three times as much
        if type(record) is _Insert:
            ve = record.ve
            add(Insert(payload(), record.vs, INFINITY if ve is None else ve))
        elif isinstance(record, _Adjust):
            elements.append(Adjust(payload(), record.vs, _end(record.vold), _end(record.ve)))
        elif isinstance(record, _Stable):
            elements.append(Stable(_end(record.vc)))
        elif isinstance(record, _Hello):
            elements.append(_hello(record))
        elif isinstance(record, _Skip):
            elements.append(Skip(record.before, record.cuts, record.rows))
        else:
            assert_never(record)
    return elements


def _end(t: int | None) -> int:
    return INFINITY if t is None else t


def _hello(record: _Hello) -> Hello:
    return Hello(
        replica=record.replica,
        incarnation=record.incarnation,
        joins_at=MINUS_INFINITY if record.joins_at is None else record.joins_at,
        feed=record.feed,
        plan=record.plan,
        properties=record.properties,
    )


def _reason(value: bytes | None, error: Exception) -> str:
    """Say in words why `value` is malformed, with the beginning of it."""
    text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return text if value is None else f"{text}; the record begins {value[:80]!r}"


def encode(element: Element) -> bytes:
    """Encode one element as a record value; the payload must be canonical JSON bytes."""
    return encode_batch([element])[0]


def encode_batch(elements: Iterable[Element]) -> list[bytes]:
    """Encode elements as record values.

    Payloads are written as they are. They are canonical by construction: `decode_batch` and `lmerge.canonical.payload`
    make no others.

    Raises:
        UsageError: a payload is not bytes.
    """
    values: list[bytes] = []
    try:
        for element in elements:
            if isinstance(element, Insert):
                p, vs, ve = element.payload, element.vs, element.ve
                values.append(_INSERT % (p, vs, ve) if ve < INFINITY else _INSERT_FOREVER % (p, vs))
            elif isinstance(element, Adjust):
                times = element.vs, _time(element.vold), _time(element.ve)
                values.append(b'{"kind":"adjust","payload":%b,"vs":%d,"vold":%b,"ve":%b}' % (element.payload, *times))  # type: ignore[str-format]
            elif isinstance(element, Stable):
                values.append(b'{"kind":"stable","vc":%b}' % _time(element.vc))
            elif isinstance(element, Hello):
                values.append(_encode_hello(element))
            elif isinstance(element, Skip):
                values.append(_encode_skip(element))
            else:
                assert_never(element)
    except TypeError as error:
        raise UsageError("a payload is not bytes: make it canonical with lmerge.canonical.payload") from error
    return values


def _time(t: int) -> bytes:
    return b"null" if t == INFINITY else b"%d" % t


def _encode_skip(skip: Skip) -> bytes:
    if skip.cuts or skip.rows:
        return b'{"kind":"skip","before":%d,"cuts":%d,"rows":%d}' % (skip.before, skip.cuts, skip.rows)
    return b'{"kind":"skip","before":%d}' % skip.before


def _encode_hello(hello: Hello) -> bytes:
    record = _Hello(
        v=WIRE_VERSION,
        replica=hello.replica,
        incarnation=hello.incarnation,
        joins_at=None if hello.joins_at == MINUS_INFINITY else hello.joins_at,
        feed=hello.feed,
        properties=hello.properties,
        plan=hello.plan,
    )
    return _encoder.encode(record)
