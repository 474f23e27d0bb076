"""Where a replica without a checkpoint starts, and from where on its result is complete. Pure.

    first            heartbeat 0: everything that the feed has ever read
    latest           the newest heartbeat
    heartbeat:17     that one
    time:…           the last one before which no row has this timestamp or a later one; milliseconds, or ISO 8601

A start is a *cold* one if rows came before it. Let t0 = max_ts + 1 of the heartbeat: every row with `ts >= t0` is read.
With r, the plan's reach, an event that ends at `ve` rests on rows with `ts >= ve - r` alone. So all events with
`ve >= joins_at = t0 + r` are complete (recovery-and-sink.md 5.8; J2 there: t0 = 100, a window of 10, joins_at = 110).
What is below may be wrong, and need not be computed: that is a fast-forward from nothing, with `before = joins_at`.
"""

from datetime import UTC, datetime
from typing import Final, Literal, Self, TypeAlias

import msgspec

from lmerge.errors import UsageError
from lmerge.feed import Heartbeat

Kind: TypeAlias = Literal["first", "latest", "heartbeat", "time"]

_FORMS: Final = "first, latest, heartbeat:NUMBER, time:MILLISECONDS or time:2026-01-31T12:00:00Z"


class Start(msgspec.Struct, frozen=True):
    """Where to start; `value` is the heartbeat's number or the time."""

    kind: Kind
    value: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a user wrote.

        >>> Start.parse("time:1970-01-01T00:00:10Z")
        Start(kind='time', value=10000)

        Raises:
            UsageError: it is none of the forms.
        """
        kind, colon, value = text.partition(":")
        try:
            if kind == "heartbeat" and int(value) >= 0:
                return cls("heartbeat", int(value))
            if kind == "time":
                return cls("time", _milliseconds(value))
            if not colon:
                return msgspec.convert({"kind": kind}, cls)
        except ValueError:  # no number, no date, no kind
            pass
        raise UsageError(f"start {text!r}: it must be one of {_FORMS}")

    def accepts(self, heartbeat: Heartbeat) -> bool:
        """Tell whether this heartbeat, or a later one, is where to start: true up to it, false after it."""
        match self.kind:
            case "first":
                return heartbeat.n == 0
            case "latest":
                return True
            case "heartbeat":
                return heartbeat.n <= self.value
            case "time":
                return heartbeat.max_ts is None or heartbeat.max_ts < self.value

    def require_found(self, heartbeat: Heartbeat) -> None:
        """Check that the last heartbeat that is accepted is the one that was asked for.

        Raises:
            UsageError: it is not there yet.
        """
        if self.kind == "heartbeat" and heartbeat.n != self.value:
            raise UsageError(
                f"start at heartbeat {self.value}: the newest is {heartbeat.n}; wait for it, or start there"
            )


def _milliseconds(text: str) -> int:
    if text.lstrip("-").isdecimal():
        return int(text)
    moment = datetime.fromisoformat(text)
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def joins_at(heartbeat: Heartbeat, reach_ms: int | None) -> int | None:
    """Return from where on a replica that starts at a heartbeat is complete; None: from minus infinity.

    Args:
        heartbeat: where it starts.
        reach_ms: the largest `ve - ts` of a result and a row that it rests on; None if there is none.

    Raises:
        UsageError: rows came before it, and they can matter for ever.
    """
    if heartbeat.max_ts is None:
        return None
    if reach_ms is None:
        raise UsageError(
            f"start at heartbeat {heartbeat.n}: rows came before it, and results of this plan may rest on rows "
            "however old; start at the first heartbeat"
        )
    return heartbeat.max_ts + 1 + reach_ms
