"""The heartbeat service as a process of its own, on a real broker."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lmerge.feed import FeedDefinition, Heartbeat, segments
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.heartbeat import DISORDER_MS, T0, Feed, rows_that_count
from tests.support.kafka import committed, wait_until


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def feed(settings: KafkaSettings, tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(settings, tmp_path, partitions=2)
    yield feed
    feed.close()


def test_cuts_are_contiguous_hold_committed_rows_only_and_promise_what_the_rule_allows(feed: Feed) -> None:
    feed.write(0, 0, 50)
    feed.write(1, 500, aborts=True)
    service = feed.start()
    first = feed.wait_for(lambda beat: beat.max_ts == T0 + 50, "the backlog is in a cut")
    assert first.tau is None  # partition 1 has said nothing that is committed
    feed.write(0, 1_000)
    feed.write(1, 9_999, aborts=True)
    feed.write(1, 700)
    last = feed.wait_for(lambda beat: beat.tau is not None, "both partitions have spoken")
    assert (last.tau, last.max_ts) == (T0 + 700 - DISORDER_MS - 1, T0 + 1_000)
    assert service.end(signal.SIGTERM) == 0
    assert service.events()[-2:] == ["progress", "stopped"]
    beats = feed.heartbeats()
    assert beats[0] == Heartbeat.start(last.feed, {feed.topic: (0, 0)})
    assert [beat.n for beat in beats] == list(range(len(beats)))
    assert [rows_that_count(feed, partition, beats) for partition in (0, 1)] == [[0, 50, 1_000], [700]]
    offsets = [record.offset for record in committed(feed.settings, feed.topic, 1)]
    assert beats[-1].end(feed.topic, 1) == offsets[-1] + 1


def test_killed_and_started_again_it_goes_on_from_its_last_record_and_skips_nothing(feed: Feed) -> None:
    expected: list[list[int]] = [[], []]
    for life in range(3):
        service = feed.start()
        for step in range(4):
            ts = 1_000 * life + 200 * step
            for partition in (0, 1):
                feed.write(partition, ts, ts + 100 - partition)
                expected[partition] += [ts, ts + 100 - partition]
            if step == 1:
                feed.wait_for(lambda beat, ts=ts: (beat.max_ts or 0) >= T0 + ts, "the rows are in a cut")  # type: ignore[misc]
        service.end(signal.SIGKILL)  # with rows on their way
    feed.start()
    ends = tuple(committed(feed.settings, feed.topic, partition)[-1].offset + 1 for partition in (0, 1))
    feed.wait_for(lambda beat: beat.ends == {feed.topic: ends}, "all rows are in cuts")
    beats = feed.heartbeats()
    assert [rows_that_count(feed, partition, beats) for partition in (0, 1)] == expected
    taken_over = [
        line["n"] for service in feed.services for line in service.lines if line["event"] == "feed taken over"
    ]
    assert taken_over[0] == 0
    assert taken_over[-1] > taken_over[1] > 0


def test_a_second_process_stands_by_and_takes_over_when_the_first_stops(feed: Feed) -> None:
    first = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "the first one writes")
    second = feed.start()
    wait_until(lambda: "standing by" in second.events(), "the second one stands by")
    feed.write(0, 100)
    feed.wait_for(lambda beat: beat.max_ts == T0 + 100, "the first one writes on")
    assert "feed taken over" not in second.events()
    assert first.end(signal.SIGTERM) == 0
    feed.write(0, 200)
    feed.wait_for(lambda beat: beat.max_ts == T0 + 200, "the second one writes")
    assert "feed taken over" in second.events()
    assert rows_that_count(feed, 0, feed.heartbeats()) == [0, 100, 200]


def test_an_owner_that_was_fenced_takes_over_again_if_the_feed_is_still_its_own(feed: Feed) -> None:
    service = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it writes")
    with TransactionalWriter(feed.settings, f"{feed.name}/heartbeat") as stranger:
        stranger.fence()
        feed.write(0, 100)
        wait_until(lambda: "fenced" in service.events(), "it learns that it was fenced")
    feed.wait_for(lambda beat: beat.max_ts == T0 + 100, "it writes on")
    assert rows_that_count(feed, 0, feed.heartbeats()) == [0, 100]


def test_late_early_and_unreadable_rows_are_left_out_and_counted(feed: Feed) -> None:
    service = feed.start()
    far = 10**12  # thirty years ahead of any clock that reads this
    feed.write(0, 1_000)
    feed.write(1, 1_000)
    promise = feed.wait_for(lambda beat: beat.tau is not None, "something is promised")
    assert promise.tau == T0 + 899
    feed.write(0, 899, 900, None, far, 898, 1_001)
    last = feed.wait_for(lambda beat: beat.max_ts == T0 + 1_001, "the rows are in a cut")
    assert last.tau == T0 + 899  # partition 1 holds it
    assert service.end(signal.SIGINT) == 0
    assert rows_that_count(feed, 0, feed.heartbeats()) == [1_000, 900, 1_001]
    totals = service.lines[-2]["rows"][feed.topic]
    assert totals == {"rows": 8, "late": 2, "late_in_new": 0, "late_after_idle": 0, "early": 1, "unreadable": 1}


def test_new_partitions_begin_at_zero(feed: Feed) -> None:
    feed.start()
    feed.write(0, 1_000)
    feed.write(1, 1_000)
    feed.wait_for(lambda beat: beat.tau == T0 + 899, "something is promised")
    feed.grow(3)
    feed.wait_for(lambda beat: len(beat.ends[feed.topic]) == 3, "the new partition is known")
    feed.write(0, 3_000)
    feed.write(1, 3_000)
    feed.write(2, 10, 2_000)
    last = feed.wait_for(lambda beat: beat.tau is not None and beat.tau > T0 + 899, "the new partition has spoken")
    assert last.tau == T0 + 1_899
    beats = feed.heartbeats()
    begin, _, tau, *_ = segments(beats, feed.topic, 2)[0]
    assert (begin, tau) == (0, T0 + 899)
    assert rows_that_count(feed, 2, beats) == [2_000]


def test_latest_begins_at_the_committed_end_and_silence_is_broken(feed: Feed) -> None:
    feed.write(0, 1, 2, 3)
    feed.start("--start", "latest", "--silence-ms", "100")
    last = feed.wait_for(lambda beat: beat.n >= 3, "heartbeats come though nothing does")
    beats = feed.heartbeats()
    assert beats[0].ends == last.ends == {feed.topic: (4, 0)}  # the marker too is behind it
    feed.write(0, 7)
    feed.wait_for(lambda beat: beat.max_ts == T0 + 7, "the row is in a cut")
    assert [cut[:3] for cut in segments(feed.heartbeats(), feed.topic, 0)] == [(4, 5, None)]


def empty_with_a_log_start_above_zero(feed: Feed) -> str:
    topic = f"{feed.name}.heartbeats"
    TopicAdmin(feed.settings).ensure(TopicSpec(topic, partitions=1))
    with TransactionalWriter(feed.settings, "any") as writer:
        writer.fence()
        with writer.transaction():
            writer.write(topic, 0, [(None, Heartbeat.start("f", {}).encode())])
    with TailReader(feed.settings) as reader:
        reader.require_decided(topic, 0)
    admin = AdminClient({"bootstrap.servers": feed.settings.bootstrap_servers, "log_level": 2})
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(10)
    return "is empty but begins above offset 0"


def a_compacted_source(feed: Feed) -> str:
    TopicAdmin(feed.settings).ensure(
        TopicSpec(f"{feed.topic}-keyed", partitions=1, config={"cleanup.policy": "compact,delete"})
    )
    feed.define(topic=f"{feed.topic}-keyed")
    return "has cleanup.policy=compact,delete"


def a_missing_source(feed: Feed) -> str:
    feed.define(topic="no-such-topic")
    return "topic no-such-topic"


def a_wrong_feed_file(feed: Feed) -> str:
    feed.define(time="ts")
    return f"sources[0] ({feed.topic}): time 'ts'"


def another_definition(feed: Feed) -> str:
    topic = f"{feed.name}.heartbeats"
    other = FeedDefinition.parse(feed.file.read_text()).feed_id({feed.topic: "other", topic: "other"})
    TopicAdmin(feed.settings).ensure(TopicSpec(topic, partitions=1))
    with TransactionalWriter(feed.settings, "any") as writer:
        writer.fence()
        with writer.transaction():
            writer.write(topic, 0, [(None, Heartbeat.start(other, {feed.topic: (0, 0)}).encode())])
    return "its heartbeats are of feed id"


@pytest.mark.parametrize(
    "situation",
    [
        a_missing_source,
        a_compacted_source,
        a_wrong_feed_file,
        another_definition,
        empty_with_a_log_start_above_zero,
    ],
)
def test_what_cannot_go_well_is_refused(feed: Feed, situation: Callable[[Feed], str]) -> None:
    message = situation(feed)
    service = feed.start()
    assert service.wait() == 2
    line = service.lines[-1]
    assert (line["level"], line["event"]) == ("error", "refused")
    assert message in line["error"]


def test_a_changed_definition_under_the_same_name_is_refused_and_other_bounds_are_not(feed: Feed) -> None:
    assert _run_until_owner(feed) == 0
    feed.file.write_text(feed.file.read_text().replace(str(DISORDER_MS), "7"))
    assert _run_until_owner(feed) == 0
    feed.define(time="kafka")
    service = feed.start()
    assert service.wait() == 2
    assert "time fields or units were changed" in service.lines[-1]["error"]


def _run_until_owner(feed: Feed) -> int:
    service = feed.start()
    wait_until(lambda: "feed taken over" in service.events(), "it owns the feed")
    return service.end(signal.SIGTERM)
