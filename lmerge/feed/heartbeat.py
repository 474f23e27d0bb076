"""The heartbeat, as a value and as a record, and the rules by which it decides about rows."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY
from lmerge.errors import IllegalElement, MalformedRecord

Ends: TypeAlias = Mapping[str, tuple[int, ...]]
"""For each topic, the offset after the last row that was read, partition by partition."""


def is_late(ts: int, tau_before: int | None) -> bool:
    """Tell whether a row of heartbeat n is late; `tau_before` is tau[n-1], null if nothing was promised yet."""
    return tau_before is not None and ts <= tau_before


def is_early(ts: int, ceiling: int | None) -> bool:
    """Tell whether a row of heartbeat n is early; `ceiling` is ceiling[n], null if there is none."""
    return ceiling is not None and ts > ceiling


def counts(ts: int | None, *, tau_before: int | None, ceiling: int | None) -> bool:
    """Tell whether a row of heartbeat n counts: its timestamp is readable, and it is neither late nor early."""
    return ts is not None and not is_late(ts, tau_before) and not is_early(ts, ceiling)


_Instant: TypeAlias = Annotated[int, msgspec.Meta(gt=MINUS_INFINITY, lt=INFINITY)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=INFINITY)]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat n of a feed: a cut through its partitions, and the promise that goes with it.

    Attributes:
        feed: the feed's id (`FeedDefinition.feed_id`).
        n: its number; 0 is where the feed starts, and has no rows.
        tau: after this heartbeat every row that counts has ts > tau; None: no promise yet.
        ceiling: of the rows of this heartbeat, those with ts > ceiling are early; None: none are.
        max_ts: the largest timestamp that counted so far; None: no row did.
        ends: for each topic and partition, the offset after the last row of this heartbeat or of those before it.
    """

    feed: str
    n: int
    tau: int | None
    ceiling: int | None
    max_ts: int | None
    ends: Ends

    @classmethod
    def start(cls, feed: str, ends: Ends) -> Self:
        """Make heartbeat 0 of a feed that begins at these offsets."""
        return cls(feed=feed, n=0, tau=None, ceiling=None, max_ts=None, ends=ends)

    def encode(self) -> bytes:
        """Give the record value."""
        wire = _Wire(1, self.feed, self.n, self.tau, self.ceiling, self.max_ts, dict(self.ends))
        return msgspec.json.encode(wire)

    @classmethod
    def decode(cls, value: bytes | None) -> Self:
        """Read a record value. Unknown fields are left alone: what changes the meaning changes the version.

        Raises:
            MalformedRecord: it is no heartbeat of version 1; the message says why.
        """
        if value is None:
            raise MalformedRecord(0, "no heartbeat: the record has no value (a tombstone)")
        try:
            wire = _wire_decoder.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedRecord(0, f"no heartbeat: {error}; the record begins {value[:80]!r}") from error
        ends, tau, ceiling, max_ts = wire.ends, wire.tau, wire.ceiling, wire.max_ts
        return cls(feed=wire.feed, n=wire.n, tau=tau, ceiling=ceiling, max_ts=max_ts, ends=ends)

    def end(self, topic: str, partition: int) -> int:
        """Give the end of a partition; 0 if this heartbeat does not know it, since there a new one begins."""
        ends = self.ends.get(topic, ())
        return ends[partition] if partition < len(ends) else 0

    def holds(self, topic: str, partition: int, offset: int, *, before: "Heartbeat") -> bool:
        """Tell whether the row at this offset belongs to this heartbeat; `before` is heartbeat n - 1."""
        return before.end(topic, partition) <= offset < self.end(topic, partition)

    def require_follows(self, before: "Heartbeat") -> None:
        """Check that this heartbeat can come right after `before`: for readers, who rest on it.

        Raises:
            IllegalElement: another feed, a gap, or a promise or an end that goes back.
        """
        if self.feed != before.feed:
            raise IllegalElement(
                f"heartbeat {self.n} is of feed {self.feed}, the one before of {before.feed}: a topic was made anew, "
                "or the definition changed; start a feed with another name"
            )
        if self.n != before.n + 1:
            raise IllegalElement(f"heartbeat {self.n} comes after {before.n}: heartbeats are missing")
        for name, now, then in (("tau", self.tau, before.tau), ("max_ts", self.max_ts, before.max_ts)):
            if then is not None and (now is None or now < then):
                raise IllegalElement(f"heartbeat {self.n}: {name} goes back from {then} to {now}")
        for topic, ends in before.ends.items():
            for partition, end in enumerate(ends):
                if self.end(topic, partition) < end:
                    raise IllegalElement(f"heartbeat {self.n}: the end of {topic}/{partition} goes back from {end}")


class _Wire(msgspec.Struct, frozen=True, tag_field="kind", tag="heartbeat"):
    v: Literal[1]
    feed: Annotated[str, msgspec.Meta(min_length=1)]
    n: _Count
    tau: _Instant | None
    ceiling: _Instant | None
    max_ts: _Instant | None
    ends: dict[str, tuple[_Count, ...]]


_wire_decoder: Final = msgspec.json.Decoder(_Wire)


class Segment(NamedTuple):
    """The offsets ``[start, end)`` of a partition that belong to one heartbeat, and what its rows are judged by."""

    start: int
    end: int
    tau_before: int | None
    ceiling: int | None


def segments(heartbeats: Sequence[Heartbeat], topic: str, partition: int) -> list[Segment]:
    """Divide a partition among heartbeats, in order; those without an offset of it are left out.

    Args:
        heartbeats: consecutive ones, *beginning with the one before the first that is wanted*.
        topic: which topic.
        partition: which of its partitions.
    """
    found = []
    for before, heartbeat in pairwise(heartbeats):
        start, end = before.end(topic, partition), heartbeat.end(topic, partition)
        if start < end:
            found.append(Segment(start, end, before.tau, heartbeat.ceiling))
    return found
