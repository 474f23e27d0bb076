"""What a replica writes for one batch: rows and watermark in, records per lane out. Pure.

Spark's own operators in append mode put every result out once, when it is final, so a row becomes an `Insert`. A
shuffle forgets order; R0 to R2 need it by vs, so the rows of a lane are sorted by vs and, to have a total order that
every plan shares, by rank or canonical payload. Rows of an operator that numbers what it says (`_sequence`) keep that
order, and may be adjusts (`_vold`). A `Skip` comes before everything but what an operator takes back by reason of it,
and the `Stable` comes last, in every lane.

The records must be a function of the *set* of rows and of the offset log, or a replay writes something else than the
first attempt (recovery-and-sink.md 7.6): no clock, no order of arrival, nothing remembered but how far stable came.

Everything goes column by column: a struct per payload, encoded by msgspec in the order of its fields' names, is the
canonical form already where values are integers, strings or booleans (1.7 us a row; by dictionaries it was 5.8).
"""

import zlib
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lmerge.canonical import canonical_batch
from lmerge.codec import encode, encode_batch
from lmerge.elements import INFINITY, Adjust, Element, Insert, Skip, Stable
from lmerge.errors import UsageError
from lmerge.kafka.writer import KeyValue
from replicas.windows import Windows

_encode_lines = msgspec.json.Encoder(decimal_format="string").encode_lines

VS: Final = "vs"
VE: Final = "ve"
"""Columns of the lifetime; a null `ve` has no end."""

VOLD: Final = "_vold"
"""Column of an operator's rows: the end that an adjust changes; null: the row is an insert."""

SEQUENCE: Final = "_sequence"
"""Column of an operator's rows: the order in which it said them; below 0: before the skip."""

RESERVED: Final = frozenset((VS, VE, VOLD, SEQUENCE))
"""Columns of a result that are not its payload."""


def stable_of(watermark: int, windows: Windows, last: int | None) -> Stable | None:
    """Return the promise that holds after a batch with this watermark, or None if it says nothing new.

    Args:
        watermark: Spark's W of the batch; 0 means that no heartbeat has moved it yet, so nothing may be promised.
        windows: those of the results.
        last: the `vc` that this process promised last, None after a start. A promise that is made again says nothing
            new, but does no harm.
    """
    if watermark <= 0:
        return None
    vc = windows.first_open(watermark)
    return Stable(vc) if last is None or vc > last else None


def lane_of(key: bytes, lanes: int) -> int:
    """Return the lane of a record key: what Spark SQL's `crc32` and librdkafka's default partitioner say too.

    >>> lane_of(b'{"auction":7}', 1), lane_of(b"123456789", 1_000_000)
    (0, 780262)
    """
    return zlib.crc32(key) % lanes


def require_lifetimes(rows: pa.Table, windows: Windows, promised: int | None) -> None:
    """Check that results live as the query says, and that none comes after it was promised that none would.

    Args:
        rows: the results of a batch. Those of an operator may be removed, and may have an open end.
        windows: the lifetimes that they may have.
        promised: the stable that held after the batch before, None if there was none.

    Raises:
        UsageError: the plan is wrong. Better to stop than to write a stream that a merge must refuse.
    """
    for vs, ve in sorted(_lifetimes(rows)):
        if not windows.has(vs, ve):
            raise UsageError(
                f"a result lives [{vs}, {ve}), which is none of the query's windows of {windows.width_ms} ms every "
                f"{windows.slide_ms} ms: take vs and ve from the window, or for a result without one t and t + 1"
            )
        if promised is not None and vs < promised:
            raise UsageError(
                f"a result with vs {vs} came after it was promised that all before {promised} are out: let a result "
                "start with the newest of its rows"
            )


def _lifetimes(rows: pa.Table) -> set[tuple[int, int]]:
    """Return the lifetimes that rows give and take."""
    starts = _column(rows, VS)
    given = {*zip(starts, _column(rows, VE), strict=True)}
    if VOLD not in rows.column_names:
        return given
    given |= {*zip(starts, _values(rows, VOLD), strict=True)}
    return {(vs, ve) for vs, ve in given if ve not in (None, vs, INFINITY)}


def batch_of(
    rows: pa.Table,
    skip: Skip | None,
    stable: Stable | None,
    *,
    key: Sequence[str],
    lanes: int,
    rank: str | None = None,
    before: int | None = None,
) -> dict[int, list[KeyValue]]:
    """Return all records of a batch, per lane: what is taken back, the skip, results, the stable.

    What the operator takes back comes before the skip, so that nothing is left open that the replica will not finish
    (recovery-and-sink.md 8.4, F4); the skip comes before everything that rests on it (8.3). The arguments are those of
    `records_of`.
    """
    closing = None
    if SEQUENCE in rows.column_names:
        is_closing = pc.less(rows.column(SEQUENCE), 0)
        closing, rows = rows.filter(is_closing), rows.filter(pc.invert(is_closing))
    results = records_of(rows, key=key, lanes=lanes, rank=rank, before=before)
    records = {} if closing is None else records_of(closing, key=key, lanes=lanes, rank=rank)
    if skip is not None:
        records = with_element(records, skip, lanes=lanes)
    for lane, those in results.items():
        records[lane] = [*records.get(lane, ()), *those]
    return records if stable is None else with_element(records, stable, lanes=lanes)


def records_of(
    rows: pa.Table, *, key: Sequence[str], lanes: int, rank: str | None = None, before: int | None = None
) -> dict[int, list[KeyValue]]:
    """Return the records of the rows' elements, per lane, in the order in which they are written.

    Args:
        rows: results with `vs`, `ve` and the fields of the payload.
        key: the fields of the payload that place a result; none means all of them.
        lanes: how many there are.
        rank: the field of the payload that orders results with one vs; None: the canonical payload does.
        before: results with `ve < before` are left out, except those of an operator: the replica has said that it
            lacks them.

    Raises:
        UsageError: a row lacks a field or has no lifetime: the plan is wrong.
    """
    starts, ends = _column(rows, VS), _ends(rows, VE)
    payloads = _canonical(rows, [name for name in rows.column_names if name not in RESERVED])
    keys = _canonical(rows, key) if key else payloads
    olds = _optional(rows, VOLD)
    placed = sorted(
        zip(
            [lane_of(at, lanes) for at in keys],
            _column(rows, SEQUENCE) if SEQUENCE in rows.column_names else starts,
            _column(rows, rank) if rank else payloads,
            payloads,
            ends,
            olds,
            starts,
            keys,
            strict=True,
        ),
        key=itemgetter(slice(5)),
    )
    if before is not None and SEQUENCE not in rows.column_names:  # an operator closes what it skips by itself (RS 8.4)
        placed = [row for row in placed if row[4] >= before]
    elements: list[Element] = [
        Insert(payload, vs, ve) if vold is None else Adjust(payload, vs, vold, ve)
        for _, _, _, payload, ve, vold, vs, _ in placed
    ]
    records: dict[int, list[KeyValue]] = {}
    for row, value in zip(placed, encode_batch(elements), strict=True):
        records.setdefault(row[0], []).append((row[7], value))
    return records


def _optional(rows: pa.Table, name: str) -> list[Any]:
    return _values(rows, name) if name in rows.column_names else [None] * rows.num_rows


def _values(rows: pa.Table, name: str) -> list[Any]:
    if name not in rows.column_names:
        raise UsageError(f"a result lacks the column {name!r}: a plan gives vs, ve and the fields of its key")
    values: list[Any] = rows.column(name).to_pylist()
    return values


def _column(rows: pa.Table, name: str) -> list[Any]:
    """Return the values of a column that has no nulls."""
    values = _values(rows, name)
    if rows.column(name).null_count:
        raise UsageError(f"a result has a null in {name!r}: lifetimes and ranks must not be null; correct the plan")
    return values


def _ends(rows: pa.Table, name: str) -> list[int]:
    values = _values(rows, name)
    return [INFINITY if end is None else end for end in values] if rows.column(name).null_count else values


def _canonical(rows: pa.Table, names: Sequence[str]) -> list[bytes]:
    """Return the canonical JSON of an object per row, with these fields."""
    names = sorted(names)
    columns = [_values(rows, name) for name in names]
    if not rows.num_rows:
        return []
    if all(name.isascii() and name.isidentifier() for name in names) and names:
        fields = {f"f{number}": name for number, name in enumerate(names)}
        make: Any = msgspec.defstruct("Payload", [(field, Any) for field in fields], rename=fields, gc=False)
        lines = _encode_lines([*map(make, *columns)])
    else:
        lines = _encode_lines([dict(zip(names, values, strict=True)) for values in transposed(columns, rows.num_rows)])
    texts = lines.split(b"\n")[:-1]  # an encoded line has no line feed inside
    if all(_is_plain(rows.schema.field(name).type) and name.isascii() for name in names):
        return texts
    return canonical_batch(texts)


def transposed(columns: Sequence[Sequence[Any]], count: int) -> list[tuple[Any, ...]]:
    """Make a tuple for each of `count` rows, also where there are no columns."""
    return [*zip(*columns, strict=True)] if columns else [()] * count


def _is_plain(kind: pa.DataType) -> bool:
    """Tell whether msgspec writes the values of a type as RFC 8785 does; it does not so with floats and objects."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def with_element(records: Mapping[int, list[KeyValue]], element: Element, *, lanes: int) -> dict[int, list[KeyValue]]:
    """Return the records of every lane with an element that goes to all of them at the end: skip, stable, hello."""
    value = encode(element)
    return {lane: [*records.get(lane, ()), (None, value)] for lane in range(lanes)}
