"""Feed files and feed ids, and the timestamps of rows, by literal examples."""

import pickle
from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge.feed import (
    MAX_TS,
    MIN_TS,
    FeedDefinition,
    Source,
    read_timestamp,
)
from lmerge.feed.bounds import Bound

FEED_FILE = """
name = "auction"

[[sources]]
topic = "bids"
time = "$.date_time"
unit = "us"
disorder_ms = 2000

[[sources]]
topic = "auctions"
time = "kafka"
disorder_ms = 0
"""
EVERYTHING = """
name = "auction"
timeout_ms = 30000
copy_left_out = true

[[sources]]
topic = "bids"
time = "$.date_time"
disorder_ms = 2000
latency_ms = 500

[[sources]]
topic = "auctions"
time = "kafka"
disorder_ms = 0
latency_ms = 800
idle_ms = 60000

[[bounds]]
from = "bids"
to = "auctions"
skew_ms = 4000

[[bounds]]
from = "bids"
to = "auctions"
after_ms = 2000
skew_ms = 0
"""
BACK = """
[[bounds]]
from = "auctions"
to = "bids"
skew_ms = 6
"""
BIDS = Source(topic="bids", time="$.ts", disorder_ms=10)
AUCTIONS = Source(topic="auctions", time="$.ts", disorder_ms=0)
TOPIC_IDS = {"bids": "B", "auctions": "A", "auction.heartbeats": "H"}


def feed(*sources: Source, max_ahead_ms: int | None = None) -> FeedDefinition:
    return FeedDefinition(name="auction", sources=sources or (BIDS,), max_ahead_ms=max_ahead_ms)


def test_a_feed_file_is_read() -> None:
    definition = FeedDefinition.parse(FEED_FILE)
    bids = Source(topic="bids", time="$.date_time", unit="us", disorder_ms=2000)
    assert definition.sources == (bids, Source(topic="auctions", time="kafka", disorder_ms=0))
    assert definition.max_ahead_ms == 3_600_000
    assert (definition.name, definition.topics) == ("auction", ("bids", "auctions"))
    assert (definition.heartbeats_topic, definition.late_topic) == ("auction.heartbeats", "auction.late")
    assert [source.field for source in definition.sources] == ["date_time", None]
    assert pickle.loads(pickle.dumps(definition)) == definition  # noqa: S301 - our own; Spark sends it to its workers


def test_the_room_ahead_of_the_clock_is_as_the_file_says() -> None:
    assert FeedDefinition.parse('max_ahead_ms = "none"' + FEED_FILE).max_ahead_ms is None
    assert FeedDefinition.parse("max_ahead_ms = 5000" + FEED_FILE).max_ahead_ms == 5_000


def test_a_feed_file_with_everything_is_read() -> None:
    definition = FeedDefinition.parse(EVERYTHING)
    assert (definition.timeout_ms, definition.copy_left_out, definition.needs_ends) == (30_000, True, True)
    assert [(s.latency_ms, s.idle_ms) for s in definition.sources] == [(500, None), (800, 60_000)]
    assert definition.matrix == {("bids", "auctions"): (Bound(0, 4_001), Bound(2_000, 1))}
    clocks = FeedDefinition.parse("bounds_are_of_clocks = true" + EVERYTHING + BACK)
    assert clocks.matrix["bids", "bids"] == (Bound(0, 4_008), Bound(2_000, 8))
    assert ("bids", "bids") not in FeedDefinition.parse(EVERYTHING + BACK).matrix
    plain = FeedDefinition.parse(FEED_FILE)
    assert (plain.needs_ends, plain.matrix) == (False, {})


def source(**changes: Any) -> dict[str, Any]:
    return {"topic": "bids", "time": "$.ts", "disorder_ms": 1, **changes}


def bound(**changes: Any) -> dict[str, Any]:
    return {"from": "bids", "to": "bids", "skew_ms": 5, **changes}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sources": [source()]}, "feed file: Object missing required field `name`"),
        ({"name": "a", "sources": [source()], "colour": 1}, "unknown field `colour`"),
        ({"name": "Aa", "sources": [source()]}, "feed name 'Aa'"),
        ({"name": "a", "sources": []}, "feed a: sources: at least one"),
        ({"name": "a", "sources": [source(), source()]}, "sources: topic bids is named twice"),
        ({"name": "a", "sources": [source(topic="a.late")]}, "topic a.late is the feed's own output"),
        ({"name": "a", "sources": [source(topic="a.heartbeats")]}, "a.heartbeats is the feed's own output"),
        ({"name": "a", "sources": [source()], "max_ahead_ms": 999}, "max_ahead_ms 999"),
        ({"name": "a", "sources": [source()], "max_ahead_ms": 10**30}, "max_ahead_ms 1000"),
        ({"name": "a", "sources": [source()], "max_ahead_ms": "never"}, "max_ahead_ms"),
        ({"name": "a", "sources": "bids"}, r"Expected `array`, got `str` - at `\$.sources`"),
        ({"name": "a", "sources": [source(), {"topic": "b"}]}, r"sources\[1\] \(b\): .* field `time`"),
        ({"name": "a", "sources": [source(topic=3)]}, r"sources\[0\]: Expected `str`, got `int` - at `\$.topic`"),
        ({"name": "a", "sources": [source(topic="b d")]}, r"sources\[0\] \(b d\): topic 'b d'"),
        ({"name": "a", "sources": [source(topic="..")]}, "topic '..'"),
        ({"name": "a", "sources": [source(time="ts")]}, "time 'ts': neither \"kafka\" nor a JSON path"),
        ({"name": "a", "sources": [source(time="$.a.b")]}, r"time '\$.a.b'"),
        ({"name": "a", "sources": [source(unit="h")]}, "unit"),
        ({"name": "a", "sources": [source(time="kafka", unit="s")]}, "unit 's': Kafka's own timestamps"),
        ({"name": "a", "sources": [source(disorder_ms=-1)]}, "disorder_ms -1"),
        ({"name": "a", "sources": [source(disorder_ms=10**30)]}, "disorder_ms 1000"),
        ({"name": "a", "sources": [source(disorder_ms=True)]}, "disorder_ms"),
        ({"name": "a", "sources": [source(disorder=1)]}, "unknown field `disorder`"),
        ({"name": "a", "sources": [source(latency_ms=-1)]}, "latency_ms -1"),
        ({"name": "a", "sources": [source(idle_ms=999)]}, "idle_ms 999"),
        ({"name": "a", "sources": [source()], "timeout_ms": 1}, "feed a: timeout_ms 1"),
        ({"name": "a", "sources": [source()], "copy_left_out": 1}, "copy_left_out"),
        ({"name": "a", "sources": [source()], "bounds": [bound(skew_ms=-1)]}, r"feed a: bounds\[0\]: skew_ms -1"),
        ({"name": "a", "sources": [source()], "bounds": [bound(after_ms=-1)]}, r"bounds\[0\]: after_ms -1"),
        ({"name": "a", "sources": [source()], "bounds": [bound(off="x")]}, "unknown field `off`"),
        ({"name": "a", "sources": [source()], "bounds": [bound(to="x")]}, "from bids to x: x is no source"),
        ({"name": "a", "sources": [source()], "bounds": [{**bound(), "from": "x"}]}, "x is no source"),
        ({"name": "a", "sources": [source()], "bounds": [bound()]}, "bound from bids to bids: .* needs latency_ms"),
    ],
)
def test_what_is_wrong_with_a_definition_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FeedDefinition.from_dict(data)


def test_a_feed_file_that_is_no_toml_is_refused() -> None:
    with pytest.raises(UsageError, match=r"feed file: no TOML: .*line 1"):
        FeedDefinition.parse("name: auction")


def test_the_feed_id_tells_feeds_apart_and_ignores_bounds_and_order() -> None:
    first = feed(BIDS, AUCTIONS).feed_id(TOPIC_IDS)
    looser = Source(topic="bids", time="$.ts", disorder_ms=99)
    assert feed(AUCTIONS, looser, max_ahead_ms=5_000).feed_id({**TOPIC_IDS, "other": "O"}) == first
    others = [
        feed(BIDS).feed_id(TOPIC_IDS),
        feed(Source(topic="bids", time="$.t", disorder_ms=10), AUCTIONS).feed_id(TOPIC_IDS),
        feed(Source(topic="bids", time="$.ts", unit="s", disorder_ms=10), AUCTIONS).feed_id(TOPIC_IDS),
        feed(BIDS, AUCTIONS).feed_id({**TOPIC_IDS, "bids": "B2"}),
        feed(BIDS, AUCTIONS).feed_id({**TOPIC_IDS, "auction.heartbeats": "H2"}),
    ]
    assert len({first, *others}) == 6


@pytest.mark.parametrize("missing", ["bids", "auction.heartbeats"])
def test_no_feed_id_without_the_id_of_every_topic(missing: str) -> None:
    with pytest.raises(UsageError, match=f"no id of topic {missing}"):
        feed().feed_id({topic: topic_id for topic, topic_id in TOPIC_IDS.items() if topic != missing})


# timestamps


@pytest.mark.parametrize(
    ("unit", "text", "ts"),
    [
        ("ms", "1700000000123", 1_700_000_000_123),
        ("ms", "-1", None),
        ("ms", "0", None),
        ("s", "1700000000", 1_700_000_000_000),
        ("us", "1700000000123999", 1_700_000_000_123),
        ("us", "-1", None),  # rounded down
        ("us", "999", None),  # rounded down to 0, which Spark's watermark is before it is anything
        ("us", "1000", 1),
        ("ns", "1700000000123999999", 1_700_000_000_123),
        ("ms", "1700000000123.9", 1_700_000_000_123),
        ("s", "1.9999", 1_999),
        ("s", "-1.9991", None),
        ("s", "1700000000.123", 1_700_000_000_123),  # as a binary float it would be …122
        ("ms", "1.7e12", 1_700_000_000_000),
        ("ms", "17E+11", 1_700_000_000_000),
        ("ms", "1700000000000000e-3", 1_700_000_000_000),
        ("ms", '"1700000000123"', 1_700_000_000_123),
        ("s", '"1700000000.123"', 1_700_000_000_123),
        ("ms", str(MAX_TS), MAX_TS),
        ("ms", str(MIN_TS), MIN_TS),
        ("ms", str(MAX_TS + 1), None),
        ("ms", str(MIN_TS - 1), None),
        ("ms", "1e999", None),
        ("ms", "9" * 5_000, None),
        ("ms", '"2023-11-14T22:13:20Z"', None),
        ("ms", '" 1"', None),
        ("ms", '""', None),
        ("ms", "true", None),
        ("ms", "false", None),
        ("ms", "null", None),
        ("ms", "[1]", None),
        ("ms", '{"ts":1}', None),
    ],
)
def test_a_field_is_read_by_the_rule(unit: Any, text: str, ts: int | None) -> None:
    source = Source(topic="bids", time="$.ts", unit=unit, disorder_ms=0)
    assert read_timestamp(source, f'{{"a":{{"ts":5}},"ts":{text},"b":[]}}'.encode(), 99) == ts


@pytest.mark.parametrize(
    ("value", "ts"),
    [
        (None, None),
        (b"", None),
        (b"17", None),
        (b"[]", None),
        (b'{"other":1}', None),
        (b'{"ts":1', None),
        (b'{"ts":01}', None),
        (b'{"ts":1,"ts":2}', 2),
        (b' { "ts" : 1 } ', 1),
        (b'{"ts":1,"a":' + b"[" * 99 + b"]" * 99 + b"}", 1),
        (b'{"ts":1,"a":' + b"[" * 100 + b"]" * 100 + b"}", None),
        (b'{"ts":1,"a":' + b"[" * 100_000, None),
        (b'{"ts":1,"a":"' + b"[" * 500 + b'\\""}', 1),
        (b'{"ts":1,"a":[' + b"[]," * 500 + b"[]]}", 1),
    ],
)
def test_what_surrounds_the_field_is_read_by_the_rule(value: bytes | None, ts: int | None) -> None:
    assert read_timestamp(BIDS, value, 99) == ts


@pytest.mark.parametrize(("kafka", "ts"), [(5, 5), (1, 1), (0, None), (-1, None), (MAX_TS + 1, None)])
def test_kafkas_own_timestamp_needs_no_value(kafka: int, ts: int | None) -> None:
    assert read_timestamp(Source(topic="bids", time="kafka", disorder_ms=0), None, kafka) == ts
