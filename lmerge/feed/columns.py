"""Names of the columns that the rows of a feed have in a replica besides their own fields: no field may have one."""

from typing import Final

EVENT_TIME: Final = "event_time"
"""The row's time; it carries the watermark."""

CONTROL: Final = "_control"
"""True for rows that are no data. They never leave `replicas.source`."""

BARRIER: Final = "_barrier"
"""Keeps Spark from moving the filter of control rows below the watermark; it too stays in `replicas.source`."""

MALFORMED: Final = "_malformed"
"""How many malformed rows a control row reports; 0 elsewhere."""

SAMPLES: Final = "_samples"
"""Some of them in words, as a JSON list; null where there are none."""

PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
"""Of rows that are placed: where in the topic a row stands; null in control rows."""

TAU: Final = "_tau"
BEFORE: Final = "_before"
"""Of rows that are placed: what the heartbeat row says, that no row with `ts <= tau` is to come, and that no result
with `ve < before` matters; null elsewhere, and if it does not say so."""

PLACED: Final = (PARTITION, OFFSET, TAU, BEFORE)

RESERVED: Final = frozenset({EVENT_TIME, CONTROL, BARRIER, MALFORMED, SAMPLES, *PLACED})
"""All of them."""
