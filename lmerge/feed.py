"""Feeds: which rows of the source topics count, decided once by numbered heartbeats (design, section 7). Pure.

A *feed* is a named set of source topics with, for each, where a row's timestamp is and how far a partition may be out
of order. The heartbeat service reads them and writes heartbeat after heartbeat, each a *cut* through all partitions:

    {"kind":"heartbeat","v":1,"feed":…,"n":17,"tau":…,"ceiling":…,"max_ts":…,"ends":{"bids":[…],"auctions":[…]}}

For a row with timestamp `ts` at offset `o` of a partition, and for every reader alike:

    it belongs to heartbeat n   iff   ends[n-1] <= o < ends[n]        a partition that ends[n-1] lacks begins at 0
    it is late                  iff   ts <= tau[n-1]                  tau null: nothing is late
    it is early                 iff   ts > ceiling[n]                 ceiling null: nothing is early
    it counts                   iff   ts is readable, neither late nor early

Tau never falls, so after heartbeat n every row that counts has `ts > tau[n]`: heartbeat n equals `stable(tau[n] + 1)`.

How large may tau be? Let D be the disorder bound of a partition: after a row with timestamp t, its later rows have
`ts >= t - D` (notes/seed-003, 3.2, with d = D + 1). So after its largest counted timestamp m, the smallest that can
still come is m - D, and the largest sound promise of partition j is

    tau_j = max(tau when it was first known, m_j - D - 1)      tau = min over all j, null while one of them is

Only this bound acts at once: in a partition reading order *is* writing order, over partitions it is not, so nothing
that one partition says moves another's tau_j. A row that does not count moves nothing: a late one could not, an early
one (a broken clock) must not. When a bound is broken, the rows that break it are late; the promise holds regardless.

No state but the last heartbeat: a successor seeks to its `ends` and takes every tau_j = tau. That is sound, as tau is
below each; what is forgotten (the largest timestamps) delays progress until the partitions speak again.

Not here: reading and writing topics, the clock (`services/heartbeat`), bounds that span partitions.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY
from lmerge.errors import IllegalElement, MalformedRecord, UsageError

KAFKA: Final = "kafka"
"""The value of `time` that stands for the record's own timestamp in place of a field."""

MIN_TS: Final = -62_135_596_800_000
MAX_TS: Final = 253_402_300_799_999
"""The years 1 to 9999: what Spark and `datetime` can show. A timestamp beyond is unreadable, so that sums of it with
windows and bounds stay inside 64 bits, in microseconds too."""

MAX_AHEAD_MS: Final = 3_600_000
"""How far ahead of the wall clock a row may be before it is early, unless the feed says otherwise: one hour."""

_LONGEST_BOUND_MS: Final = 3_155_760_000_000
"""A hundred years: a larger bound is a slip of the unit, and the replicas' watermark leaves no room for it."""

_SHORTEST_AHEAD_MS: Final = 1_000
"""A cut's ceiling is fixed when its first row is read; with less room, a row of this very moment could be early."""

_MAX_DEPTH: Final = 100
"""Nesting at which JSON is unreadable. Decoders have a limit anyway, but one that depends on the caller's stack: the
same row would count in one process and not in another."""

_MAX_NUMBER: Final = 64
"""Characters of the longest number that is read; what a timestamp needs, with any fraction that people write."""

_POWERS: Final = {"s": 3, "ms": 0, "us": -3, "ns": -6}
"""Milliseconds in each unit, as powers of ten."""

_FEED_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PATH: Final = re.compile(r"\$\.([^\s.\[\]*?@'\"]+)")
_NUMBER: Final = re.compile(rb"(-?[0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,2}))?")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")

TopicPartition: TypeAlias = tuple[str, int]
Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
Ends: TypeAlias = Mapping[str, tuple[int, ...]]
"""For each topic, the offset after the last row that was read, partition by partition."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source topic of a feed.

    Args:
        topic: its name.
        time: where a row's timestamp is: `"$.key"`, a key of the JSON object that is the record's value, or `"kafka"`,
            the record's own timestamp.
        unit: what one of that field is: `s`, `ms`, `us` or `ns`. Kafka's timestamps are `ms`.
        disorder_ms: D, per partition: after a row with timestamp t, no later row of its partition is below t - D.
            0: each partition is in order (equal timestamps allowed).

    Raises:
        UsageError: one of them cannot be; the message names it.
    """

    topic: str
    time: str
    unit: Unit = "ms"
    disorder_ms: int

    def __post_init__(self) -> None:
        if not _TOPIC_NAME.fullmatch(self.topic) or self.topic in {".", ".."}:
            raise UsageError(f"topic {self.topic!r}: no name of a Kafka topic; letters, digits, '.', '_' and '-' are")
        if self.time != KAFKA and not _PATH.fullmatch(self.time):
            raise UsageError(
                f'time {self.time!r}: neither "kafka" nor a JSON path of one key such as "$.date_time" '
                "(nested fields are not supported)"
            )
        if self.time == KAFKA and self.unit != "ms":
            raise UsageError(f'unit {self.unit!r}: Kafka\'s own timestamps are in "ms"; leave it out')
        if not 0 <= self.disorder_ms <= _LONGEST_BOUND_MS:
            raise UsageError(f"disorder_ms {self.disorder_ms}: it must be between 0 and {_LONGEST_BOUND_MS}")

    @property
    def field(self) -> str | None:
        """The key that holds the timestamp; None if it is Kafka's."""
        return None if self.time == KAFKA else self.time.removeprefix("$.")


class FeedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed consists of; `parse` makes it of a feed file.

    Args:
        name: the feed's name, which names its topics.
        sources: the source topics.
        max_ahead_ms: how far ahead of the wall clock a row may be before it is early; None: as far as it likes.

    Raises:
        UsageError: the parts do not fit together.
    """

    name: str
    sources: tuple[Source, ...]
    max_ahead_ms: int | None = MAX_AHEAD_MS

    def __post_init__(self) -> None:
        if not _FEED_NAME.fullmatch(self.name):
            raise UsageError(f"feed name {self.name!r}: it must match {_FEED_NAME.pattern}")
        if self.max_ahead_ms is not None and not _SHORTEST_AHEAD_MS <= self.max_ahead_ms <= _LONGEST_BOUND_MS:
            raise UsageError(
                f"feed {self.name}: max_ahead_ms {self.max_ahead_ms}: it must be between {_SHORTEST_AHEAD_MS} and "
                f"{_LONGEST_BOUND_MS}"
            )
        if not self.sources:
            raise UsageError(f"feed {self.name}: sources: at least one is needed")
        topics = [source.topic for source in self.sources]
        for topic in topics:
            if topics.count(topic) > 1:
                raise UsageError(f"feed {self.name}: sources: topic {topic} is named twice")
            if topic in {self.heartbeats_topic, self.late_topic}:
                raise UsageError(f"feed {self.name}: sources: topic {topic} is the feed's own output")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a feed file, which is TOML.

            name = "auction"
            # max_ahead_ms = 3600000      rows further ahead of the clock are early; "none": they count

            [[sources]]
            topic = "bids"
            time = "$.date_time"          # or "kafka"
            unit = "ms"                   # s, ms, us or ns; ms if left out
            disorder_ms = 2000

        Raises:
            UsageError: it is no TOML, or a field is missing, unknown or wrong; the message names it.
        """
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"feed file: no TOML: {error}") from error
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a definition of plain values, laid out as in `parse`.

        Raises:
            UsageError: a field is missing, unknown or wrong; the message names it.
        """
        file = _convert(data, _FeedFile, "feed file")
        sources = []
        for number, entry in enumerate(file.sources):
            topic = entry.get("topic")
            place = f"feed {file.name}: sources[{number}]" + (f" ({topic})" if isinstance(topic, str) else "")
            sources.append(_convert(entry, Source, place))
        ahead = None if file.max_ahead_ms == "none" else file.max_ahead_ms
        return cls(name=file.name, sources=tuple(sources), max_ahead_ms=ahead)

    @property
    def heartbeats_topic(self) -> str:
        """Where the heartbeats are."""
        return f"{self.name}.heartbeats"

    @property
    def late_topic(self) -> str:
        """Where late rows are copied to, if asked."""
        return f"{self.name}.late"

    @property
    def topics(self) -> tuple[str, ...]:
        """The source topics, in the order of the definition."""
        return tuple(source.topic for source in self.sources)

    def feed_id(self, topic_ids: Mapping[str, str]) -> str:
        """Give the identity of the feed: a hash of what decides which rows count, and of the topics they are in.

        Bounds are not part of it: a feed may get other ones and go on, as the decisions are in the heartbeats.

        Args:
            topic_ids: Kafka's own ids of the source topics and of the heartbeats topic, by name; more are ignored.
                They change when a topic is made anew.

        Raises:
            UsageError: the id of a topic is missing.
        """
        for topic in (*self.topics, self.heartbeats_topic):
            if not topic_ids.get(topic):
                raise UsageError(f"feed {self.name}: no id of topic {topic}; the feed cannot be told from another")
        sources = sorted((s.topic, s.time, s.unit, topic_ids[s.topic]) for s in self.sources)
        identity = msgspec.json.encode([1, sources, topic_ids[self.heartbeats_topic]])
        return hashlib.sha256(identity).hexdigest()[:32]


class _FeedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outer layout of a feed file; the sources are converted one by one, so that errors say which."""

    name: str
    sources: list[dict[str, Any]]
    max_ahead_ms: int | Literal["none"] = MAX_AHEAD_MS


_Layout = TypeVar("_Layout", _FeedFile, Source)


def _convert(value: Mapping[str, Any], kind: type[_Layout], place: str) -> _Layout:
    """Make a struct of plain values; every error begins with the place."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{place}: {error}") from error


def read_timestamp(source: Source, value: bytes | None, kafka_timestamp: int) -> int | None:
    """Read the timestamp of a row, in milliseconds; None if it is unreadable, and then the row does not count.

    A function of its arguments and nothing else: every replica must come to the same result. The rule for a field:

    - The value must be a JSON object, nested at most 100 deep. Of equal keys the last one is meant.
    - A number is read exactly as it is written, with fraction and exponent (of two digits), never as a binary float,
      converted to milliseconds and rounded down, also below zero: `1.9999` s is 1999 ms.
    - A string is read as the number that it spells; protobuf writes 64-bit integers so. Dates as text are not read.
    - `true`, `false`, `null`, arrays, objects and a missing key are unreadable, and so is what lies outside of the
      years 1 to 9999, or is written with more than 64 characters.

    Args:
        source: the topic the row comes from.
        value: the record's value.
        kafka_timestamp: the record's own timestamp; negative if it has none.
    """
    field = source.field
    if field is None:
        return kafka_timestamp if 0 <= kafka_timestamp <= MAX_TS else None
    if value is None or is_too_deep(value):
        return None
    try:
        text = bytes(_row_decoder(field).decode(value).ts)
    except msgspec.DecodeError:
        return None
    return _to_ms(text[1:-1] if text.startswith(b'"') else text, _POWERS[source.unit])


class _Row(msgspec.Struct):
    """A row, but for everything other than its timestamp, which stays as it is written."""

    ts: msgspec.Raw


@lru_cache(maxsize=64)
def _row_decoder(field: str) -> msgspec.json.Decoder[_Row]:
    """Make the decoder of rows whose timestamp is under this key; all other fields are skipped in C."""
    layout = msgspec.defstruct("Row", [("ts", msgspec.Raw)], bases=(_Row,), rename={"ts": field}, gc=False)
    return msgspec.json.Decoder(layout)


def is_too_deep(value: bytes) -> bool:
    """Tell whether JSON is nested deeper than what is read as a row."""
    if value.count(b"[") + value.count(b"{") <= _MAX_DEPTH:
        return False  # as good as always
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", value)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > _MAX_DEPTH


def _to_ms(text: bytes, power: int) -> int | None:
    """Read a number times 10 to the power, rounded down; None if it is none or no timestamp."""
    if len(text) > _MAX_NUMBER:
        return None
    if text.isdigit():
        digits = int(text)  # as good as always
    elif match := _NUMBER.fullmatch(text):
        whole, fraction, exponent = match.groups(b"")
        power += int(exponent or b"0") - len(fraction)
        digits = int(whole + fraction)
    else:
        return None
    ms = digits * 10**power if power >= 0 else digits // 10**-power
    return ms if MIN_TS <= ms <= MAX_TS else None


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


class Row(NamedTuple):
    """What the heartbeats need of a row; `ts` is what `read_timestamp` gave."""

    topic: str
    partition: int
    offset: int
    ts: int | None


class SourceCounts(msgspec.Struct):
    """What became of the rows of one source topic. Those left out are late, early or unreadable.

    `late_in_new` are late rows of partitions that were added while the feed ran: such a partition finds a promise that
    it had no part in.
    """

    rows: int = 0
    late: int = 0
    late_in_new: int = 0
    early: int = 0
    unreadable: int = 0

    def add(self, other: "SourceCounts") -> None:
        """Add the counts of further rows."""
        self.rows += other.rows
        self.late += other.late
        self.late_in_new += other.late_in_new
        self.early += other.early
        self.unreadable += other.unreadable


class Cut(NamedTuple):
    """A heartbeat to be written, and what became of its rows, by topic; they count once it is committed."""

    heartbeat: Heartbeat
    counts: dict[str, SourceCounts]


class _Partition(msgspec.Struct):
    """What is known of one partition: `tau` is its tau_j at the last cut, `max_ts` the largest ts seen that counted."""

    end: int
    tau: int | None
    is_new: bool
    max_ts: int | None = None


class CutMaker:
    """Decides the next heartbeat from the rows that were read since the last one.

    After a failed write throw it away and make another from the last heartbeat that was committed: it has no state
    that must survive. Adding a row costs O(1), a cut O(partitions).

    Args:
        definition: the feed.
        last: the last committed heartbeat.

    Raises:
        UsageError: the heartbeat has other topics than the definition.
    """

    def __init__(self, definition: FeedDefinition, last: Heartbeat) -> None:
        if set(last.ends) != set(definition.topics):
            raise UsageError(
                f"feed {definition.name}: heartbeat {last.n} has the topics {sorted(last.ends)}, the definition "
                f"{sorted(definition.topics)}"
            )
        self._disorder_ms = {source.topic: source.disorder_ms for source in definition.sources}
        self._max_ahead_ms = definition.max_ahead_ms
        # What the rows of the next cut are judged by: its tau_before, its n.
        self._last = last
        # Every known partition, in the order of `ends`; a successor takes every tau_j = tau.
        self._partitions = {
            (topic, partition): _Partition(end=end, tau=last.tau, is_new=False)
            for topic, ends in last.ends.items()
            for partition, end in enumerate(ends)
        }
        self._counts: dict[str, SourceCounts] = {}
        # Of the cut in the making, fixed by its first row; `_open` says whether it is.
        self._ceiling: int | None = None
        self._open = False
        self._changed = False

    @property
    def last(self) -> Heartbeat:
        """The last heartbeat that was made."""
        return self._last

    @property
    def changed(self) -> bool:
        """Whether rows or partitions came since the last cut."""
        return self._changed

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where to read on: the end of every partition."""
        return {key: state.end for key, state in self._partitions.items()}

    def slowest(self) -> list[TopicPartition]:
        """Name the partitions that hold tau back: those that have not spoken yet or, if all have, the lowest."""
        taus = {key: self._tau(key, state) for key, state in self._partitions.items()}
        silent = [key for key, tau in taus.items() if tau is None]
        lowest = min((tau for tau in taus.values() if tau is not None), default=None)
        return silent or [key for key, tau in taus.items() if tau == lowest]

    def grow(self, topic: str, partitions: int) -> list[TopicPartition]:
        """Take note of how many partitions a topic has now; return those that are new. They begin at offset 0.

        Raises:
            UsageError: it has fewer than it had.
        """
        known = sum(key[0] == topic for key in self._partitions)
        if partitions < known:
            raise UsageError(f"topic {topic} has {partitions} partitions, it had {known}: it was made anew")
        new = [(topic, partition) for partition in range(known, partitions)]
        for key in new:
            self._partitions[key] = _Partition(end=0, tau=self._last.tau, is_new=True)
        self._changed = self._changed or bool(new)
        return new

    def add(self, rows: Iterable[Row], *, now_ms: int) -> None:
        """Take rows that were read, each partition's in the order of offsets.

        Args:
            rows: the rows.
            now_ms: the wall clock; the first call of a cut fixes its ceiling.
        """
        for topic, partition, offset, ts in rows:
            if not self._open:
                self._fix_ceiling(now_ms)
            state = self._partitions[topic, partition]
            assert offset >= state.end, f"{topic}/{partition}: offset {offset} comes after {state.end - 1}"
            state.end = offset + 1
            if counts(ts, tau_before=self._last.tau, ceiling=self._ceiling):
                self._counts_of(topic).rows += 1
                state.max_ts = _later(state.max_ts, ts)
            else:
                self._leave_out(topic, ts, is_new=state.is_new)

    def cut(self, *, now_ms: int) -> Cut:
        """Make the next heartbeat. Not written, it must not be followed by another: see the class."""
        if not self._open:
            self._fix_ceiling(now_ms)
        max_ts = self._last.max_ts
        ends: dict[str, list[int]] = {topic: [] for topic in self._last.ends}
        for key, state in self._partitions.items():
            state.tau = self._tau(key, state)
            max_ts = _later(max_ts, state.max_ts)
            ends[key[0]].append(state.end)
        taus = [state.tau for state in self._partitions.values()]
        self._last = Heartbeat(
            feed=self._last.feed,
            n=self._last.n + 1,
            tau=_minimum(taus),
            ceiling=self._ceiling,
            max_ts=max_ts,
            ends={topic: tuple(offsets) for topic, offsets in ends.items()},
        )
        cut = Cut(self._last, self._counts)
        self._counts, self._open, self._changed = {}, False, False
        return cut

    def _tau(self, key: TopicPartition, state: _Partition) -> int | None:
        """Give tau_j as of the rows added so far."""
        promise = None if state.max_ts is None else state.max_ts - self._disorder_ms[key[0]] - 1
        return _later(state.tau, promise)

    def _fix_ceiling(self, now_ms: int) -> None:
        self._ceiling = None if self._max_ahead_ms is None else now_ms + self._max_ahead_ms
        self._open = self._changed = True

    def _leave_out(self, topic: str, ts: int | None, *, is_new: bool) -> None:
        found = self._counts_of(topic)
        found.rows += 1
        if ts is None:
            found.unreadable += 1
        elif not is_late(ts, self._last.tau):
            found.early += 1
        elif is_new:
            found.late_in_new += 1
        else:
            found.late += 1

    def _counts_of(self, topic: str) -> SourceCounts:
        return self._counts.setdefault(topic, SourceCounts())


def _later(one: int | None, other: int | None) -> int | None:
    """Give the larger; None is smaller than every instant."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _minimum(taus: Sequence[int | None]) -> int | None:
    """Give the smallest, None if one is None."""
    known = [tau for tau in taus if tau is not None]
    return min(known) if len(known) == len(taus) else None
