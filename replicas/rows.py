"""Rows of a source topic: from records to Arrow columns, late, early and malformed ones left out.

Which rows count is decided by `lmerge.feed`, from the record and the heartbeats alone, so that every replica leaves out
the same. What the declared schema cannot read is malformed: counted, left out, never fatal; since the schema is part of
the plan's hash, that too is the same in every attempt.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from lmerge.errors import UsageError
from lmerge.feed import Segment, Source, counts, read_timestamp
from lmerge.kafka import Record
from replicas.query import EVENT_TIME, Schema

CONTROL: Final = "_control"
"""Column: true for rows that are no data. They never leave `replicas.source`."""

MALFORMED: Final = "_malformed"
"""Column: how many malformed rows a control row reports; 0 elsewhere."""

_TYPES: Final[Mapping[type, tuple[str, Any]]] = {
    int: ("bigint", pa.int64()),
    str: ("string", pa.string()),
    bool: ("boolean", pa.bool_()),
    float: ("double", pa.float64()),
}
_BY_NAME: Final = {kind.__name__: kind for kind in _TYPES}


def type_names(schema: Schema) -> dict[str, str]:
    """Return a schema as plain text, for an option of a data source.

    Raises:
        UsageError: a type or a name that cannot be.
    """
    for name, kind in schema.items():
        if kind not in _TYPES:
            raise UsageError(f"schema: field {name!r} is of type {kind!r}; choose one of {', '.join(_BY_NAME)}")
        if name in {EVENT_TIME, CONTROL, MALFORMED} or not name.isidentifier():
            raise UsageError(f"schema: a field cannot be named {name!r}")
    return {name: kind.__name__ for name, kind in schema.items()}


class RowReader:
    """Makes Arrow batches of the records of one source topic.

    Args:
        source: where a row's timestamp is.
        schema: the fields to read and the names of their types.
    """

    def __init__(self, source: Source, schema: Mapping[str, str]) -> None:
        self._source = source
        self._names = [*schema]
        kinds = [_BY_NAME[kind] for kind in schema.values()]
        layout = msgspec.defstruct("Row", [*zip(self._names, kinds, strict=True)], gc=False)
        self._decode = msgspec.json.Decoder(layout).decode
        timestamp = pa.timestamp("us", tz="UTC")
        self._schema = pa.schema(
            [(name, _TYPES[kind][1]) for name, kind in zip(self._names, kinds, strict=True)]
            + [(EVENT_TIME, timestamp), (CONTROL, pa.bool_()), (MALFORMED, pa.int64())]
        )
        self.malformed = 0

    def read(self, records: Iterable[Record], segments: Sequence[Segment]) -> pa.RecordBatch | None:
        """Return the rows that count; None if there is none.

        Args:
            records: of one partition, in the order of offsets.
            segments: of the same partition, in order; they cover the records.
        """
        rows, times = [], []
        rules = iter(segments)
        rule = next(rules)
        for record in records:
            while record.offset >= rule.end:
                rule = next(rules)
            ts = read_timestamp(self._source, record.value, record.timestamp)
            if ts is None or not counts(ts, tau_before=rule.tau_before, ceiling=rule.ceiling):
                continue
            try:
                rows.append(self._decode(record.value or b""))
            except msgspec.DecodeError:
                self.malformed += 1
            else:
                times.append(ts * 1000)
        return self._batch(rows, times) if rows else None

    def control(self, event_time_ms: int, malformed: int = 0) -> pa.RecordBatch:
        """Return the one row that is no data."""
        data: dict[str, list[Any]] = {name: [None] for name in self._names}
        data |= {EVENT_TIME: [event_time_ms * 1000], CONTROL: [True], MALFORMED: [malformed]}
        return self._arrow(data)

    def _batch(self, rows: Sequence[Any], times: Sequence[int]) -> pa.RecordBatch:
        data: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in self._names}
        data |= {EVENT_TIME: times, CONTROL: [False] * len(rows), MALFORMED: [0] * len(rows)}
        return self._arrow(data)

    def _arrow(self, data: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(data[field.name], type=field.type) for field in self._schema], schema=self._schema
        )


def ddl(schema: Mapping[str, str]) -> str:
    """Return the columns of a source as Spark SQL writes them."""
    fields = [f"`{name}` {_TYPES[_BY_NAME[kind]][0]}" for name, kind in schema.items()]
    return ", ".join([*fields, f"`{EVENT_TIME}` timestamp", f"`{CONTROL}` boolean", f"`{MALFORMED}` bigint"])
