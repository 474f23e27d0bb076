"""What a service says: one line of JSON per event, on standard error."""

import sys
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["info", "warning", "error"]


def log(level: Level, event: str, **fields: Any) -> None:
    """Write an event, a lower-case fragment, with its fields; `error` means that data or availability is at stake."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = msgspec.json.encode({"time": now, "level": level, "event": event, **fields})
    sys.stderr.buffer.write(line + b"\n")
    sys.stderr.buffer.flush()
