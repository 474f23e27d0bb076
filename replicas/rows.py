"""Rows of a source topic: from records to Arrow columns, late, early and malformed ones left out.

Which rows count is decided by `lmerge.feed`, from the record and the heartbeats alone, so that every replica leaves out
the same. What the declared schema cannot read is malformed: counted, sampled, left out, never fatal; since the schema
is part of the plan's hash, that too is the same in every attempt.

Most rows take the short way: one decode, in which the timestamp stays as it is written, and is a plain number. For all
others `read_timestamp` and a second decode say what they are. Both ways give the same (tests/unit/replicas/test_rows).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from lmerge.errors import UsageError
from lmerge.feed import MAX_TS, MIN_TS, Segment, Source, counts, is_too_deep, read_timestamp
from lmerge.feed.columns import (
    BEFORE,
    CONTROL,
    EVENT_TIME,
    MALFORMED,
    OFFSET,
    PARTITION,
    PLACED,
    RESERVED,
    SAMPLES,
    TAU,
)
from lmerge.kafka import Record
from replicas.query import Schema

_MAX_SAMPLES: Final = 3
_SAMPLE_BYTES: Final = 80

_Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What a bigint holds; Python's integers are longer, and would end the task that puts them into a column."""


class _Kind(NamedTuple):
    sql: str
    arrow: Any
    decoded: Any


_KINDS: Final[Mapping[type, _Kind]] = {
    int: _Kind("bigint", pa.int64(), _Long),
    str: _Kind("string", pa.string(), str),
    bool: _Kind("boolean", pa.bool_(), bool),
    float: _Kind("double", pa.float64(), float),
}
_BY_NAME: Final = {kind.__name__: found for kind, found in _KINDS.items()}

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_SHORT_DIGITS: Final = 15
"""Digits of the largest timestamp."""


def type_names(schema: Schema) -> dict[str, str]:
    """Return a schema as plain text, for an option of a data source.

    Raises:
        UsageError: a type or a name that cannot be.
    """
    for name, kind in schema.items():
        if kind not in _KINDS:
            raise UsageError(f"schema: field {name!r} is of type {kind!r}; choose one of {', '.join(_BY_NAME)}")
        if name in RESERVED or not name.isidentifier():
            raise UsageError(f"schema: a field cannot be named {name!r}")
    return {name: kind.__name__ for name, kind in schema.items()}


class RowReader:
    """Makes Arrow batches of the records of one source topic.

    Args:
        source: where a row's timestamp is.
        schema: the fields to read and the names of their types.
        placed: whether rows say where they stand, for whoever must bring them into one order again.
    """

    def __init__(self, source: Source, schema: Mapping[str, str], *, placed: bool = False) -> None:
        self._source = source
        self._placed = placed
        # A name in JSON need not be one in Python, so attributes have names of their own; `t` is the time field.
        self._attributes = {name: "t" if name == source.field else f"c{n}" for n, name in enumerate(schema)}
        names = {attribute: name for name, attribute in self._attributes.items()} | {"t": source.field or ""}
        kinds = {self._attributes[name]: _BY_NAME[kind].decoded for name, kind in schema.items()}
        self._decode = _decoder(kinds, names)
        # The short way: the time field as it is written. It is that field's value too, if that is declared as a number.
        self._short = source.field is not None and source.unit == "ms" and kinds.get("t", _Long) is _Long
        self._decode_raw = _decoder({**kinds, "t": msgspec.Raw}, names)
        self._schema = pa.schema(
            [(name, _BY_NAME[kind].arrow) for name, kind in schema.items()]
            + [(EVENT_TIME, pa.timestamp("us", tz="UTC")), (CONTROL, pa.bool_())]
            + [(MALFORMED, pa.int64()), (SAMPLES, pa.string())]
            + [(name, pa.int64()) for name in PLACED if placed]
        )
        self.malformed = 0
        self.samples: list[str] = []

    def read(self, records: Iterable[Record], segments: Sequence[Segment]) -> pa.RecordBatch | None:
        """Return the rows that count; None if there is none.

        Args:
            records: of one partition, in the order of offsets.
            segments: of the same partition, in order; they cover the records.
        """
        rows, times, places = [], [], []
        rules = iter(segments)
        rule = next(rules)
        low, high = _bounds(rule)
        for record in records:
            while record.offset >= rule.end:
                rule = next(rules)
                low, high = _bounds(rule)
            found = (self._read_short(record.value) if self._short else None) or self._read(record, rule)
            if found is not None and low < found[1] <= high:
                rows.append(found[0])
                times.append(found[1] * 1000)
                if self._placed:
                    places.append((record.partition, record.offset))
        return self._batch(rows, times, places) if rows else None

    def control(self, event_time_ms: int, *, tau: int | None = None, before: int | None = None) -> pa.RecordBatch:
        """Return the one row that is no data; it tells of the malformed rows so far."""
        data: dict[str, list[Any]] = {name: [None] for name in self._attributes}
        samples = msgspec.json.encode(self.samples).decode() if self.samples else None
        data |= {EVENT_TIME: [event_time_ms * 1000], CONTROL: [True], MALFORMED: [self.malformed], SAMPLES: [samples]}
        data |= {PARTITION: [None], OFFSET: [None], TAU: [tau], BEFORE: [before]}
        return self._arrow(data)

    def _read_short(self, value: bytes | None) -> tuple[Any, int] | None:
        """Return a row and its timestamp; None if it takes the long way to know."""
        try:
            row = self._decode_raw(value or b"")
        except _UNREADABLE:
            return None
        text = bytes(row.t)
        if not text.isdigit() or len(text) > _SHORT_DIGITS or value is None or is_too_deep(value):
            return None
        row.t = ts = int(text)
        return (row, ts)

    def _read(self, record: Record, rule: Segment) -> tuple[Any, int] | None:
        """Return a row and its timestamp; None if it does not count or is malformed."""
        ts = read_timestamp(self._source, record.value, record.timestamp)
        if ts is None or not counts(ts, tau_before=rule.tau_before, ceiling=rule.ceiling):
            return None
        value = record.value or b""
        try:
            if is_too_deep(value):
                raise msgspec.DecodeError("nested too deeply")
            return (self._decode(value), ts)
        except _UNREADABLE as error:
            self._note(record, error)
            return None

    def _note(self, record: Record, error: Exception) -> None:
        self.malformed += 1
        if len(self.samples) < _MAX_SAMPLES:
            value = None if record.value is None else record.value[:_SAMPLE_BYTES]
            self.samples.append(
                f"{record.topic}/{record.partition} at offset {record.offset}: {error}; it begins {value!r}"
            )

    def _batch(self, rows: Sequence[Any], times: Sequence[int], places: Sequence[tuple[int, int]]) -> pa.RecordBatch:
        data: dict[str, Any] = {
            name: [getattr(row, attribute) for row in rows] for name, attribute in self._attributes.items()
        }
        count = len(rows)
        data |= {EVENT_TIME: times, CONTROL: [False] * count, MALFORMED: [0] * count, SAMPLES: [None] * count}
        if self._placed:
            partitions, offsets = zip(*places, strict=True)
            nothing = [None] * count
            data |= {PARTITION: partitions, OFFSET: offsets, TAU: nothing, BEFORE: nothing}
        return self._arrow(data)

    def _arrow(self, data: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(data[field.name], type=field.type) for field in self._schema], schema=self._schema
        )


def _bounds(rule: Segment) -> tuple[int, int]:
    """Return `(low, high)`: a row counts iff its timestamp is readable and in ``(low, high]``."""
    low = MIN_TS - 1 if rule.tau_before is None else max(rule.tau_before, MIN_TS - 1)
    return low, MAX_TS if rule.ceiling is None else min(rule.ceiling, MAX_TS)


def _decoder(fields: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """Return the function that decodes a row with these fields."""
    layout = msgspec.defstruct("Row", [*fields.items()], rename=dict(names), gc=False)
    return msgspec.json.Decoder(layout).decode


def ddl(schema: Mapping[str, str], *, placed: bool = False) -> str:
    """Return the columns of a source as Spark SQL writes them."""
    fields = [f"`{name}` {_BY_NAME[kind].sql}" for name, kind in schema.items()]
    control = [f"`{CONTROL}` boolean", f"`{MALFORMED}` bigint", f"`{SAMPLES}` string"]
    places = [f"`{name}` bigint" for name in PLACED if placed]
    return ", ".join([*fields, f"`{EVENT_TIME}` timestamp", *control, *places])
