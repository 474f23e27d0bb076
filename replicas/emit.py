"""What a conservative replica writes for one batch: rows and watermark in, records per lane out. Pure.

Spark's own operators in append mode put every result out once, when it is final, so a row becomes an `Insert` and
nothing else. A shuffle forgets order; R0 to R2 need it by vs, so the rows of a lane are sorted by vs and, to have a
total order that every plan shares, by the query's rank if it has one and by canonical payload. The `Stable` comes last,
in every lane.

The records must be a function of the *set* of rows and of the offset log, or a replay writes something else than the
first attempt (recovery-and-sink.md 7.6): no clock, no order of arrival, nothing remembered but how far stable came.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from lmerge.canonical import canonical_batch
from lmerge.codec import encode, encode_batch
from lmerge.elements import Element, Insert, Stable
from lmerge.errors import UsageError
from lmerge.kafka.writer import KeyValue
from replicas.windows import Windows

Row: TypeAlias = Mapping[str, Any]

_encode_lines = msgspec.json.Encoder().encode_lines

VS = "vs"
VE = "ve"


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


def require_lifetimes(rows: Sequence[Row], windows: Windows, promised: int | None) -> None:
    """Check that results live as the query says, and that none comes after it was promised that none would.

    Args:
        rows: the results of a batch.
        windows: the lifetimes that they may have.
        promised: the stable that held after the batch before, None if there was none.

    Raises:
        UsageError: the plan is wrong. Better to stop than to write a stream that a merge must refuse.
    """
    for row in rows:
        vs, ve = row.get(VS), row.get(VE)
        if vs is None or ve is None:
            raise UsageError(f"a result has no lifetime: {dict(row)}; vs and ve must not be null")
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


def records_of(
    rows: Sequence[Row], *, key: Sequence[str], lanes: int, rank: str | None = None
) -> dict[int, list[KeyValue]]:
    """Return the records of the rows' inserts, per lane, in the order in which they are written.

    Args:
        rows: results with `vs`, `ve` and the fields of the payload.
        key: the fields of the payload that place a result; none means all of them.
        lanes: how many there are.
        rank: the field by which results with one vs are ordered; None: by canonical payload alone.

    Raises:
        UsageError: a row lacks a field or has no lifetime: the plan is wrong.
    """
    try:
        lifetimes = [(row[VS], row[VE]) for row in rows]
        bodies = [{name: value for name, value in row.items() if name not in {VS, VE}} for row in rows]
        payloads = _canonical(bodies)
        keys = _canonical([{name: body[name] for name in key} for body in bodies]) if key else payloads
        ranks = [0 if rank is None else body[rank] for body in bodies]
    except KeyError as error:
        raise UsageError(f"a result lacks the column {error}: a plan gives vs, ve and the fields of its key") from error
    placed = sorted(
        (lane_of(at, lanes), vs, place, payload, ve, at)
        for at, place, payload, (vs, ve) in zip(keys, ranks, payloads, lifetimes, strict=True)
    )
    elements: list[Element] = [Insert(payload, vs, ve) for _, vs, _, payload, ve, _ in placed]
    records: dict[int, list[KeyValue]] = {}
    for (lane, *_, at), value in zip(placed, encode_batch(elements), strict=True):
        records.setdefault(lane, []).append((at, value))
    return records


def with_element(records: Mapping[int, list[KeyValue]], element: Element, *, lanes: int) -> dict[int, list[KeyValue]]:
    """Return the records of every lane with an element that goes to all of them at the end: stable, hello, skip."""
    value = encode(element)
    return {lane: [*records.get(lane, ()), (None, value)] for lane in range(lanes)}


def _canonical(values: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return the canonical JSON of many objects; an encoded line has no line feed inside."""
    return canonical_batch(_encode_lines(values).split(b"\n")[:-1]) if values else []
