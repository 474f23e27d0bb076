"""What a feed consists of, as its file says, and what tells it from another feed."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import msgspec

from lmerge.errors import UsageError
from lmerge.feed.bounds import Bound, Matrix, closure, reduced

KAFKA: Final = "kafka"
"""The value of `time` that stands for the record's own timestamp in place of a field."""

MAX_AHEAD_MS: Final = 3_600_000
"""How far ahead of the wall clock a row may be before it is early, unless the feed says otherwise: one hour."""

_LONGEST_BOUND_MS: Final = 3_155_760_000_000
"""A hundred years: a larger bound is a slip of the unit, and the replicas' watermark leaves no room for it."""

_SHORTEST_AHEAD_MS: Final = 1_000
"""A cut's ceiling is fixed when its first row is read; with less room, a row of this very moment could be early."""

_SHORTEST_SILENCE_MS: Final = 1_000
"""A shorter silence is none: rows are committed, read and cut in steps of some hundred milliseconds."""

_FEED_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PATH: Final = re.compile(r"\$\.([^\s.\[\]*?@'\"]+)")

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source topic of a feed.

    Args:
        topic: its name.
        time: where a row's timestamp is: `"$.key"`, a key of the JSON object that is the record's value, or `"kafka"`,
            the record's own timestamp.
        unit: what one of that field is: `s`, `ms`, `us` or `ns`. Kafka's timestamps are `ms`.
        disorder_ms: D, per partition: after a row with timestamp t, no later row of its partition is below t - D.
            0: each partition is in order (equal timestamps allowed).
        latency_ms: L: a row can be read at most so long after it was emitted, commits of transactions included. Needed
            by bounds to this topic, and used by nothing else.
        idle_ms: after how long without a row that counts a partition is left out of the minimum. Unsafe: its next rows
            may be late though they break no bound. None: never.

    Raises:
        UsageError: one of them cannot be; the message names it.
    """

    topic: str
    time: str
    unit: Unit = "ms"
    disorder_ms: int
    latency_ms: int | None = None
    idle_ms: int | None = None

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
        _require_between("disorder_ms", self.disorder_ms, 0)
        _require_between("latency_ms", self.latency_ms, 0)
        _require_between("idle_ms", self.idle_ms, _SHORTEST_SILENCE_MS)

    @property
    def field(self) -> str | None:
        """The key that holds the timestamp; None if it is Kafka's."""
        return None if self.time == KAFKA else self.time.removeprefix("$.")


class TopicBound(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"from_topic": "from", "to_topic": "to"},
):
    """A bound that spans topics: what a row of one says about another (`bounds.py`, with d = skew_ms + 1).

    Args:
        from_topic: if a row with timestamp t is emitted to any partition of it at some moment,
        to_topic: then rows that are emitted to any partition of this one (it may be the same topic)
        after_ms: more than so much later
        skew_ms: have timestamps of at least t - skew_ms.

    Raises:
        UsageError: one of them cannot be; the message names it.
    """

    from_topic: str
    to_topic: str
    after_ms: int = 0
    skew_ms: int

    def __post_init__(self) -> None:
        _require_between("after_ms", self.after_ms, 0)
        _require_between("skew_ms", self.skew_ms, 0)


class FeedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed consists of; `parse` makes it of a feed file.

    Args:
        name: the feed's name, which names its topics.
        sources: the source topics.
        max_ahead_ms: how far ahead of the wall clock a row may be before it is early; None: as far as it likes.
        bounds: what rows of one topic say about another; several may hold for a pair.
        bounds_are_of_clocks: whether they limit the clocks of the sources, so that they hold over topics in between
            that are silent.
        timeout_ms: after how long without a row that counts, in any source, tau becomes the largest timestamp. Unsafe:
            rows that come later and are not above it are late. None: never.
        copy_left_out: whether rows that do not count are copied to the late topic.

    Raises:
        UsageError: the parts do not fit together.
    """

    name: str
    sources: tuple[Source, ...]
    max_ahead_ms: int | None = MAX_AHEAD_MS
    bounds: tuple[TopicBound, ...] = ()
    bounds_are_of_clocks: bool = False
    timeout_ms: int | None = None
    copy_left_out: bool = False

    def __post_init__(self) -> None:
        if not _FEED_NAME.fullmatch(self.name):
            raise UsageError(f"feed name {self.name!r}: it must match {_FEED_NAME.pattern}")
        _require_between(f"feed {self.name}: max_ahead_ms", self.max_ahead_ms, _SHORTEST_AHEAD_MS)
        _require_between(f"feed {self.name}: timeout_ms", self.timeout_ms, _SHORTEST_SILENCE_MS)
        if not self.sources:
            raise UsageError(f"feed {self.name}: sources: at least one is needed")
        topics = [source.topic for source in self.sources]
        for topic in topics:
            if topics.count(topic) > 1:
                raise UsageError(f"feed {self.name}: sources: topic {topic} is named twice")
            if topic in {self.heartbeats_topic, self.late_topic}:
                raise UsageError(f"feed {self.name}: sources: topic {topic} is the feed's own output")
        for bound in self.bounds:
            self._check(bound)

    def _check(self, bound: TopicBound) -> None:
        place = f"feed {self.name}: bound from {bound.from_topic} to {bound.to_topic}"
        known = {source.topic: source for source in self.sources}
        for topic in (bound.from_topic, bound.to_topic):
            if topic not in known:
                raise UsageError(f"{place}: {topic} is no source of the feed")
        if known[bound.to_topic].latency_ms is None:
            raise UsageError(
                f"{place}: source {bound.to_topic} needs latency_ms, lest the bound make late what is on its way"
            )

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

        `docs/feeds.md` has all settings.

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
        bounds = [_convert(entry, TopicBound, f"feed {file.name}: bounds[{n}]") for n, entry in enumerate(file.bounds)]
        return cls(
            name=file.name,
            sources=tuple(sources),
            max_ahead_ms=None if file.max_ahead_ms == "none" else file.max_ahead_ms,
            bounds=tuple(bounds),
            bounds_are_of_clocks=file.bounds_are_of_clocks,
            timeout_ms=file.timeout_ms,
            copy_left_out=file.copy_left_out,
        )

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

    @property
    def matrix(self) -> Matrix:
        """The bounds that span topics, as they act; what each partition promises by its own disorder is not in it."""
        found: dict[tuple[str, str], list[Bound]] = {}
        for bound in self.bounds:
            found.setdefault((bound.from_topic, bound.to_topic), []).append(Bound(bound.after_ms, bound.skew_ms + 1))
        matrix = {pair: reduced(bounds) for pair, bounds in found.items()}
        return closure(matrix) if self.bounds_are_of_clocks else matrix

    @property
    def needs_ends(self) -> bool:
        """Whether heartbeats depend on more than each partition's own rows: then the service asks for ends."""
        return bool(self.bounds) or self.timeout_ms is not None or any(s.idle_ms is not None for s in self.sources)

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
    bounds: list[dict[str, Any]] = []
    bounds_are_of_clocks: bool = False
    timeout_ms: int | None = None
    copy_left_out: bool = False


_Layout = TypeVar("_Layout", _FeedFile, Source, TopicBound)


def _convert(value: Mapping[str, Any], kind: type[_Layout], place: str) -> _Layout:
    """Make a struct of plain values; every error begins with the place."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{place}: {error}") from error


def _require_between(name: str, value: int | None, least: int) -> None:
    """Check a setting in milliseconds; None is none.

    Raises:
        UsageError: it is out of range.
    """
    if value is not None and not least <= value <= _LONGEST_BOUND_MS:
        raise UsageError(f"{name} {value}: it must be between {least} and {_LONGEST_BOUND_MS}")
