"""Structured logs: one JSON object per line on standard error, for people with jq and for machines.

    {"at":"2026-01-01T12:00:00.000Z","level":"info","event":"joined","merge":"m","lane":0,"input":"r1","text":"…"}

Nothing secret is ever given to it: no token, no header, no client setting.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

LOGGER: Final = logging.getLogger("lmerge")
_FIELDS: Final = "lmerge_fields"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "event": record.getMessage()}
        fields.update(getattr(record, _FIELDS, {}))
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def set_up(level: str = "INFO") -> None:
    """Send what this process says to standard error, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    LOGGER.handlers = [handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False


def say(event: str, *, level: int = logging.INFO, failure: BaseException | None = None, **fields: object) -> None:
    """Log one event with its fields; `failure` with its traceback, for what should never happen."""
    LOGGER.log(level, event, extra={_FIELDS: fields}, exc_info=failure)
