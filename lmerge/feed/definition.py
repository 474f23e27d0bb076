"""What a feed consists of, as its file says, and what tells it from another feed."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import msgspec

from lmerge.errors import UsageError

KAFKA: Final = "kafka"
"""The value of `time` that stands for the record's own timestamp in place of a field."""

MAX_AHEAD_MS: Final = 3_600_000
"""How far ahead of the wall clock a row may be before it is early, unless the feed says otherwise: one hour."""

_LONGEST_BOUND_MS: Final = 3_155_760_000_000
"""A hundred years: a larger bound is a slip of the unit, and the replicas' watermark leaves no room for it."""

_SHORTEST_AHEAD_MS: Final = 1_000
"""A cut's ceiling is fixed when its first row is read; with less room, a row of this very moment could be early."""

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
