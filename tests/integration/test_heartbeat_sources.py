"""Sources that fall silent, jump, go back or stand still, and what a feed makes of it, on a real broker."""

import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its hints forget to export two of them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec, TransactionalWriter
from services.heartbeat.topics import MISSING_LOOKS
from tests.support.heartbeat import DISORDER_MS, T0, Feed, HeartbeatProcess, rows_that_count
from tests.support.kafka import committed, delete_before, wait_until


@pytest.fixture
def feed(bootstrap_servers: str, tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(KafkaSettings(bootstrap_servers), tmp_path, partitions=2)
    yield feed
    feed.close()


def url_of(service: HeartbeatProcess) -> str:
    wait_until(lambda: "begun" in service.events(), "it listens")
    return str(service.lines[0]["url"])


def metric(service: HeartbeatProcess, name: str) -> float:
    """Give the sum of the series whose name and labels begin so."""
    with urllib.request.urlopen(f"{url_of(service)}/metrics", timeout=5) as answer:  # noqa: S310  # our own
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def set_config(settings: KafkaSettings, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def test_a_bound_moves_a_silent_partition_after_all_was_read_up_to_its_end(feed: Feed) -> None:
    bound = f'latency_ms = 300\n[[bounds]]\nfrom = "{feed.topic}"\nto = "{feed.topic}"\nskew_ms = 500'
    feed.define(source=bound)
    feed.write(1, 3_000, aborts=True)  # what is before its end is no row
    feed.start()
    begun = time.monotonic()
    feed.write(0, 10_000)
    last = feed.wait_for(lambda beat: beat.tau is not None, "the bound promises for the partition that never spoke")
    assert last.tau == T0 + 10_000 - 500 - 1
    assert time.monotonic() - begun >= 0.3
    feed.write(1, 9_499, 9_500)
    feed.wait_for(lambda beat: beat.end(feed.topic, 1) > 2, "its rows are in a cut")
    assert rows_that_count(feed, 1, feed.heartbeats()) == [9_500]


def test_a_timeout_releases_what_all_have_said_once_all_are_silent(feed: Feed) -> None:
    feed.define(feed="timeout_ms = 1000")
    service = feed.start("--port", "0")
    feed.write(0, 1_000)
    feed.write(1, 400)
    feed.wait_for(lambda beat: beat.tau == T0 + 400 - DISORDER_MS - 1, "the bounds promise")
    assert feed.wait_for(lambda beat: beat.tau == beat.max_ts, "the timeout releases").tau == T0 + 1_000
    wait_until(lambda: metric(service, "lmerge_feed_unsafe_moves_total") == 1, "it is counted")


def test_silent_ahead_back_and_stopped(feed: Feed) -> None:
    feed.define(feed="copy_left_out = true", source="idle_ms = 1000")
    service = feed.start("--port", "0")
    feed.write(1, 1_000)
    feed.wait_for(lambda beat: beat.max_ts == T0 + 1_000, "it runs")
    clock = iter(range(1_000, 100_000, 10))
    written = []

    def partition_0_has_moved_tau() -> bool:
        """Go on in one partition while the other is silent."""
        written.append(next(clock))
        feed.write(0, written[-1])
        last = feed.last()
        return last is not None and last.tau is not None and last.tau > T0 + 1_000

    wait_until(partition_0_has_moved_tau, "the silent partition is left out", every=0.02)
    feed.write(1, 1_000)
    wait_until(lambda: metric(service, "lmerge_feed_rows_left_out_total") == 1, "what it says is late")
    ahead = time.time_ns() // 1_000_000 - T0 + 3_600_000 + 60_000
    stopped = written[-1] + 5_000
    feed.write(0, ahead, stopped, None)  # an hour ahead of the clock, and right again
    feed.write(0, 0)  # it goes back
    feed.write(1, stopped)
    tau = T0 + stopped - DISORDER_MS - 1
    feed.wait_for(lambda beat: beat.tau == tau, "both are there")
    for _ in range(3):
        feed.write(0, stopped)  # its clock stands still
    end = committed(feed.settings, feed.topic, 0)[-1].offset + 1
    last = feed.wait_for(lambda beat: beat.end(feed.topic, 0) == end, "all is in cuts")
    assert last.tau == tau
    assert (last.max_ts or 0) == T0 + stopped
    wait_until(lambda: metric(service, "lmerge_feed_heartbeat_number") >= last.n, "it shows so")
    assert service.end(signal.SIGTERM) == 0
    beats = feed.heartbeats()
    assert rows_that_count(feed, 0, beats) == [*written, stopped, *[stopped] * 3]
    assert rows_that_count(feed, 1, beats) == [1_000, stopped]
    copies = [dict(record.headers) for record in committed(feed.settings, f"{feed.name}.late")]
    assert sorted((copy["lmerge-partition"], copy["lmerge-reason"]) for copy in copies) == [
        (b"0", b"early"),
        (b"0", b"late"),
        (b"0", b"unreadable"),
        (b"1", b"late_after_idle"),
    ]
    assert {copy["lmerge-topic"] for copy in copies} == {feed.topic.encode()}
    sampled = {line["reason"] for line in service.lines if line["event"] == "a row does not count"}
    assert sampled == {"early", "late", "unreadable", "late_after_idle"}
    totals = service.lines[-2]["rows"][feed.topic]
    assert {reason: totals[reason] for reason in sampled} == dict.fromkeys(sampled, 1)


def test_topics_with_other_units_and_kafkas_own_time_are_one_feed(feed: Feed) -> None:
    other = f"{feed.topic}-seconds"
    TopicAdmin(feed.settings).ensure(TopicSpec(other, partitions=1))
    feed.define(time="kafka", source=f'[[sources]]\ntopic = "{other}"\ntime = "$.at"\nunit = "s"\ndisorder_ms = 0')
    feed.start()
    feed.write(0, 0)
    feed.write(1, 0)
    with TransactionalWriter(feed.settings, other) as writer:
        writer.fence()
        with writer.transaction():
            writer.write(other, 0, [(None, b'{"at":"%d.5"}' % (T0 // 1_000))])
    last = feed.wait_for(lambda beat: beat.tau is not None, "all have spoken")
    assert last.tau == T0 + 499
    assert last.max_ts == max(committed(feed.settings, feed.topic, partition)[0].timestamp for partition in (0, 1))


def test_a_source_that_becomes_compacted_ends_the_service(feed: Feed) -> None:
    service = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it runs")
    set_config(feed.settings, feed.topic, "cleanup.policy", "compact")
    assert service.wait() == 2
    assert "has cleanup.policy=compact" in service.lines[-1]["error"]


def test_a_source_that_is_made_anew_ends_the_feed(feed: Feed) -> None:
    service = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it runs")
    admin = TopicAdmin(feed.settings)
    admin.delete(feed.topic)
    admin.ensure(TopicSpec(feed.topic, partitions=2))
    assert service.wait() == 2
    assert "a topic was made anew" in service.lines[-1]["error"]
    again = feed.start()
    assert again.wait() == 2
    assert "a topic was made anew" in again.lines[-1]["error"]


def test_a_source_that_is_deleted_ends_the_feed(feed: Feed) -> None:
    service = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it runs")
    TopicAdmin(feed.settings).delete(feed.topic)
    assert service.wait() == 2
    assert "it was deleted; the feed has ended" in service.lines[-1]["error"]
    assert service.events().count("cannot look at the topics") >= MISSING_LOOKS - 1


def write_large(feed: Feed, *sizes: int) -> None:
    """Write rows of these sizes that cannot be read, in one transaction, and then one that can."""
    with TransactionalWriter(feed.settings, f"{feed.topic}/large") as writer:
        writer.fence()
        with writer.transaction():
            writer.write(feed.topic, 0, [(b"key", b"x" * size) for size in sizes])
            writer.write(feed.topic, 0, [(None, b'{"ts":%d}' % T0)])


def test_a_row_of_the_largest_size_is_copied_with_its_headers(feed: Feed) -> None:
    """The source takes three times what topics take by default."""
    limit = 3_000_000
    set_config(feed.settings, feed.topic, "max.message.bytes", str(limit))
    feed.define(feed="copy_left_out = true")
    feed.start()
    size = limit - 90  # what is left are the frames of a batch and a record
    write_large(feed, size)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it goes on")
    (copy,) = committed(feed.settings, f"{feed.name}.late")
    assert (copy.key, copy.value, dict(copy.headers)["lmerge-reason"]) == (b"key", b"x" * size, b"unreadable")


def test_copies_that_do_not_fit_end_nothing(feed: Feed) -> None:
    """The topic of the copies was there before, and takes less than a batch."""
    late = f"{feed.name}.late"
    TopicAdmin(feed.settings).ensure(TopicSpec(late, partitions=1, config={"max.message.bytes": "100000"}))
    feed.define(feed="copy_left_out = true")
    service = feed.start("--port", "0")
    write_large(feed, 60_000, 60_000, 150_000)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it goes on")
    copies = committed(feed.settings, late)
    assert [len(copy.value or b"") for copy in copies] == [60_000, 0, 0]
    assert [dict(copy.headers)["lmerge-offset"] for copy in copies] == [b"0", b"1", b"2"]
    assert 150_000 < int(dict(copies[2].headers)["lmerge-omitted"] or b"") < 151_000
    wait_until(lambda: metric(service, "lmerge_feed_copies_not_whole_total") == 2, "they are counted")
    assert service.events().count("feed taken over") == 1
    assert "a copy does not fit" in service.events()


def test_rows_that_are_gone_before_they_were_read_end_the_service(feed: Feed) -> None:
    first = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it runs")
    assert first.end(signal.SIGTERM) == 0
    feed.write(0, 1, 2, 3)
    delete_before(feed.settings, feed.topic, 4)
    again = feed.start()
    assert again.wait() == 1
    assert f"cannot read {feed.topic}/0" in again.lines[-1]["error"]


def test_health_says_who_owns_the_feed(feed: Feed) -> None:
    owner = feed.start("--port", "0")
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "it owns the feed")
    standby = feed.start("--port", "0")
    wait_until(lambda: "standing by" in standby.events(), "the other one stands by")
    for service, status in ((owner, b"owner"), (standby, b"standby")):
        with urllib.request.urlopen(f"{url_of(service)}/readyz", timeout=5) as answer:  # noqa: S310  # our own
            assert answer.read() == b'{"status":"%s"}' % status
    assert [metric(service, "lmerge_feed_owned") for service in (owner, standby)] == [1, 0]
