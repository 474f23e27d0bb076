"""Feeds: definitions, timestamps, the rules for rows, and the next heartbeat, by literal examples."""

import pickle
from typing import Any

import pytest

from lmerge.errors import IllegalElement, MalformedRecord, UsageError
from lmerge.feed import (
    MAX_TS,
    MIN_TS,
    CutMaker,
    FeedDefinition,
    Heartbeat,
    Row,
    Segment,
    Source,
    SourceCounts,
    counts,
    is_early,
    is_late,
    read_timestamp,
    segments,
)

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
BIDS = Source(topic="bids", time="$.ts", disorder_ms=10)
AUCTIONS = Source(topic="auctions", time="$.ts", disorder_ms=0)
TOPIC_IDS = {"bids": "B", "auctions": "A", "auction.heartbeats": "H"}


def feed(*sources: Source, max_ahead_ms: int | None = None) -> FeedDefinition:
    return FeedDefinition(name="auction", sources=sources or (BIDS,), max_ahead_ms=max_ahead_ms)


def maker(*partitions: int, definition: FeedDefinition | None = None) -> CutMaker:
    """Make one that begins at offset 0 of as many partitions of each source."""
    definition = definition or feed(*(BIDS, AUCTIONS)[: len(partitions)])
    ends = {topic: (0,) * count for topic, count in zip(definition.topics, partitions, strict=True)}
    return CutMaker(definition, Heartbeat.start("f", ends))


def bid(partition: int, offset: int, ts: int | None) -> Row:
    return Row("bids", partition, offset, ts)


# definition


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


def source(**changes: Any) -> dict[str, Any]:
    return {"topic": "bids", "time": "$.ts", "disorder_ms": 1, **changes}


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
        ("ms", "-1", -1),
        ("ms", "0", 0),
        ("s", "1700000000", 1_700_000_000_000),
        ("us", "1700000000123999", 1_700_000_000_123),
        ("us", "-1", -1),  # rounded down
        ("ns", "1700000000123999999", 1_700_000_000_123),
        ("ms", "1700000000123.9", 1_700_000_000_123),
        ("s", "1.9999", 1_999),
        ("s", "-1.9991", -2_000),
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


@pytest.mark.parametrize(("kafka", "ts"), [(5, 5), (0, 0), (-1, None), (MAX_TS + 1, None)])
def test_kafkas_own_timestamp_needs_no_value(kafka: int, ts: int | None) -> None:
    assert read_timestamp(Source(topic="bids", time="kafka", disorder_ms=0), None, kafka) == ts


# rules


def test_rows_at_the_promise_are_late_and_rows_above_the_ceiling_early() -> None:
    assert [is_late(ts, 5) for ts in (4, 5, 6)] == [True, True, False]
    assert [is_early(ts, 9) for ts in (9, 10)] == [False, True]
    assert [counts(ts, tau_before=5, ceiling=9) for ts in (None, 5, 6, 9, 10)] == [False, False, True, True, False]
    assert not is_late(-(10**9), None)
    assert not is_early(10**18, None)


def heartbeat(n: int, tau: int | None = None, *ends: int, **changes: Any) -> Heartbeat:
    fields = {"feed": "f", "n": n, "tau": tau, "ceiling": None, "max_ts": None, "ends": {"bids": ends}}
    return Heartbeat(**{**fields, **changes})


def test_an_offset_belongs_to_the_heartbeat_that_moved_past_it() -> None:
    before, after = heartbeat(3, None, 2, 7), heartbeat(4, None, 5, 7, 1)
    assert [after.holds("bids", 0, offset, before=before) for offset in (1, 2, 4, 5)] == [False, True, True, False]
    assert not after.holds("bids", 1, 7, before=before)
    assert after.holds("bids", 2, 0, before=before)  # a new partition begins at 0
    assert not after.holds("auctions", 0, 0, before=before)


def test_segments_divide_a_partition_among_heartbeats() -> None:
    cuts = [heartbeat(3, None, 2), heartbeat(4, 9, 2, 1), heartbeat(5, 12, 6, 1, ceiling=77), heartbeat(6, 13, 8, 4)]
    assert segments(cuts, "bids", 0) == [Segment(2, 6, 9, 77), Segment(6, 8, 12, None)]
    assert segments(cuts, "bids", 1) == [Segment(0, 1, None, None), Segment(1, 4, 12, None)]
    assert segments(cuts, "bids", 2) == []
    assert segments(cuts[:1], "bids", 0) == []


# wire


def test_the_wire_form_is_as_documented() -> None:
    value = (
        b'{"kind":"heartbeat","v":1,"feed":"f","n":17,"tau":5,"ceiling":null,"max_ts":9,"ends":{"bids":[1,2],'
        b'"auctions":[3]}}'
    )
    ends = {"bids": (1, 2), "auctions": (3,)}
    beat = Heartbeat(feed="f", n=17, tau=5, ceiling=None, max_ts=9, ends=ends)
    assert beat.encode() == value
    assert Heartbeat.decode(value) == beat
    assert Heartbeat.decode(value[:-1] + b',"later":[true]}') == beat


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"heartbeat"', b'"stable"', "Invalid value 'stable'"),
        (b'"v":1', b'"v":2', r"\$\.v"),
        (b'"n":17', b'"n":-1', r"\$\.n"),
        (b'"n":17', b'"n":"17"', r"\$\.n"),
        (b'"feed":"f"', b'"feed":""', r"\$\.feed"),
        (b'"tau":5,', b"", "missing required field `tau`"),
        (b'"tau":5', b'"tau":9223372036854775807', r"\$\.tau"),
        (b'"tau":5', b'"tau":5.5', r"\$\.tau"),
        (b"[1,2]", b"[1,-2]", r"\$\.ends"),
        (b"}}", b"}", "truncated"),
    ],
)
def test_malformed_heartbeats_say_what_is_wrong(old: bytes, new: bytes, message: str) -> None:
    value = b'{"kind":"heartbeat","v":1,"feed":"f","n":17,"tau":5,"ceiling":null,"max_ts":9,"ends":{"bids":[1,2]}}'
    with pytest.raises(MalformedRecord, match=f"no heartbeat: .*{message}.*the record begins"):
        Heartbeat.decode(value.replace(old, new))


def test_a_tombstone_is_no_heartbeat() -> None:
    with pytest.raises(MalformedRecord, match="tombstone"):
        Heartbeat.decode(None)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (heartbeat(4, 6, 3, 3, feed="g"), "of feed g"),
        (heartbeat(5, 6, 3, 3), "5 comes after 3"),
        (heartbeat(3, 6, 3, 3), "3 comes after 3"),
        (heartbeat(4, 4, 3, 3), "tau goes back from 5 to 4"),
        (heartbeat(4, None, 3, 3), "tau goes back from 5 to None"),
        (heartbeat(4, 5, 3, 3, max_ts=8), "max_ts goes back from 9 to 8"),
        (heartbeat(4, 5, 3, 1, max_ts=9), "bids/1 goes back from 2"),
        (heartbeat(4, 5, 3, max_ts=9), "bids/1 goes back from 2"),
    ],
)
def test_a_heartbeat_that_cannot_follow_is_named(after: Heartbeat, message: str) -> None:
    before = heartbeat(3, 5, 1, 2, max_ts=9)
    heartbeat(4, 5, 1, 2, 0, max_ts=9).require_follows(before)
    with pytest.raises(IllegalElement, match=message):
        after.require_follows(before)


# the next heartbeat


def test_tau_is_null_until_every_partition_has_spoken() -> None:
    cuts = maker(2, 1)
    cuts.add([bid(0, 0, 100), bid(1, 0, 200)], now_ms=0)
    first = cuts.cut(now_ms=0).heartbeat
    assert (first.n, first.tau, first.max_ts, first.ends) == (1, None, 200, {"bids": (1, 1), "auctions": (0,)})
    assert cuts.slowest() == [("auctions", 0)]
    cuts.add([Row("auctions", 0, 4, 95)], now_ms=0)
    second = cuts.cut(now_ms=0).heartbeat
    assert (second.n, second.tau, second.max_ts, second.ends) == (2, 89, 200, {"bids": (1, 1), "auctions": (5,)})
    assert cuts.slowest() == [("bids", 0)]


def test_tau_is_the_largest_timestamp_less_the_disorder_less_one_and_the_minimum_over_partitions() -> None:
    cuts = maker(2)
    cuts.add([bid(0, 0, 100), bid(1, 0, 200), bid(0, 1, 300), bid(0, 2, 290)], now_ms=0)
    assert cuts.cut(now_ms=0).heartbeat.tau == 200 - 10 - 1
    cuts.add([bid(1, 1, 190), bid(1, 2, 400)], now_ms=0)  # 190 is the lowest that obeys, and counts
    cut = cuts.cut(now_ms=0)
    assert cut.heartbeat.tau == 300 - 10 - 1
    assert cut.counts == {"bids": SourceCounts(rows=2)}


def test_rows_are_judged_by_the_tau_before_their_heartbeat() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100), bid(0, 1, 50)], now_ms=0)  # nothing was promised yet, so that it counts
    assert cuts.cut(now_ms=0).counts["bids"].late == 0
    cuts.add([bid(0, 2, 200), bid(0, 3, 90), bid(0, 4, 89)], now_ms=0)
    cut = cuts.cut(now_ms=0)
    assert cut.counts == {"bids": SourceCounts(rows=3, late=1)}
    assert cut.heartbeat.tau == 189


def test_early_and_unreadable_rows_move_the_ends_and_nothing_else() -> None:
    cuts = maker(1, definition=feed(max_ahead_ms=1_000))
    cuts.add([bid(0, 0, 100), bid(0, 3, 1_051), bid(0, 4, None)], now_ms=50)
    cuts.add([bid(0, 5, 1_060)], now_ms=70)  # the first row has fixed the ceiling
    beat, found, _ = cuts.cut(now_ms=90)
    assert (beat.ceiling, beat.tau, beat.max_ts, beat.ends) == (1_050, 89, 100, {"bids": (6,)})
    assert found == {"bids": SourceCounts(rows=4, early=2, unreadable=1)}
    cuts.add([bid(0, 6, 1_060)], now_ms=100)
    assert cuts.cut(now_ms=100).heartbeat.max_ts == 1_060


def test_a_partition_whose_rows_do_not_count_has_not_spoken() -> None:
    cuts = maker(2, definition=feed(max_ahead_ms=1_000))
    cuts.add([bid(0, 0, 100), bid(1, 0, 5_000), bid(1, 1, None)], now_ms=0)
    assert cuts.cut(now_ms=0).heartbeat.tau is None


def test_a_backlog_of_an_hour_read_one_partition_after_the_other_makes_no_row_late() -> None:
    cuts = maker(2)
    late = 0
    for partition in (0, 1):
        for second in range(3_600):
            cuts.add([bid(partition, second, 1_000 * second)], now_ms=0)
            found = cuts.cut(now_ms=0).counts
            late += found["bids"].late
    assert late == 0
    assert cuts.last.tau == 3_599_000 - 10 - 1


def test_a_cut_without_rows_repeats_the_promise() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100)], now_ms=0)
    first = cuts.cut(now_ms=0).heartbeat
    assert not cuts.changed
    second, found, _ = cuts.cut(now_ms=0)
    assert (second.n, second.tau, second.max_ts, second.ends) == (2, first.tau, first.max_ts, first.ends)
    assert found == {}
    assert cuts.last is second


def test_a_new_partition_begins_at_zero_finds_the_promise_and_holds_it_back() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100)], now_ms=0)
    cuts.cut(now_ms=0)
    assert cuts.grow("bids", 1) == []
    assert not cuts.changed
    assert cuts.grow("bids", 3) == [("bids", 1), ("bids", 2)]
    assert cuts.changed
    assert cuts.positions == {("bids", 0): 1, ("bids", 1): 0, ("bids", 2): 0}
    cuts.add([bid(0, 1, 500), bid(1, 0, 89), bid(1, 1, 300)], now_ms=0)
    beat, found, _ = cuts.cut(now_ms=0)
    assert (beat.tau, beat.ends) == (89, {"bids": (2, 2, 0)})
    assert found == {"bids": SourceCounts(rows=3, late_in_new=1)}
    assert cuts.slowest() == [("bids", 2)]


def test_a_new_partition_must_speak_before_the_first_promise() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100)], now_ms=0)
    cuts.grow("bids", 2)
    assert cuts.cut(now_ms=0).heartbeat.tau is None


def test_a_topic_that_lost_partitions_was_made_anew() -> None:
    with pytest.raises(UsageError, match="bids has 1 partitions, it had 2"):
        maker(2).grow("bids", 1)


def test_a_successor_goes_on_from_the_last_heartbeat() -> None:
    last = heartbeat(7, 89, 4, 6, max_ts=500)
    cuts = CutMaker(feed(), last)
    assert cuts.positions == {("bids", 0): 4, ("bids", 1): 6}
    cuts.add([bid(0, 4, 600)], now_ms=0)
    beat = cuts.cut(now_ms=0).heartbeat
    beat.require_follows(last)
    assert (beat.tau, beat.max_ts) == (89, 600)  # what partition 1 had said is forgotten


def test_a_heartbeat_of_other_topics_is_refused() -> None:
    with pytest.raises(UsageError, match=r"heartbeat 7 has the topics \['bids'\], the definition \['auctions', 'bids"):
        CutMaker(feed(BIDS, AUCTIONS), heartbeat(7, 1, 2))


def test_counts_add_up() -> None:
    total = SourceCounts(rows=9, late=1)
    total.add(SourceCounts(rows=5, late=1, late_in_new=2, late_after_idle=6, early=3, unreadable=4))
    assert total == SourceCounts(rows=14, late=2, late_in_new=2, late_after_idle=6, early=3, unreadable=4)
