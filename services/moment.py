"""Points of application time on a command line."""

import re
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

_NUMBER: Final = re.compile(r"-?[0-9]+")


def show_ms(ms: int) -> str:
    """Write a time as ISO 8601 does.

    >>> show_ms(1_767_225_600_001)
    '2026-01-01T00:00:00.001Z'
    """
    moment = datetime.fromtimestamp(ms // 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1_000:03}Z"


class Moment(click.ParamType[int]):
    """A time as ISO 8601, as milliseconds since 1970, or `now`."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Give the time in milliseconds."""
        if value == "now":
            return int(time.time() * 1_000)
        if _NUMBER.fullmatch(str(value)):
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time: give 2026-01-01T00:00:00.000Z, milliseconds since 1970, or now", param, ctx
            )
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
