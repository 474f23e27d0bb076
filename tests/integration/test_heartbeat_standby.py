"""Owners of a feed are killed while others stand by: the heartbeats go on, and none of them was wrong."""

import random
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmerge.feed import Heartbeat
from lmerge.kafka import KafkaSettings
from tests.integration.conftest import Figure
from tests.support.heartbeat import T0, Feed, HeartbeatProcess, rows_that_count
from tests.support.kafka import committed, wait_until

KILLS = 10
FEW_KILLS = 4
SEED = 7


@pytest.fixture
def feed(bootstrap_servers: str, tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(KafkaSettings(bootstrap_servers), tmp_path, partitions=2)
    yield feed
    feed.close()


def owner_of(feed: Feed) -> HeartbeatProcess:
    """Find the process that owns the feed, and wait until one does."""

    def owners() -> list[HeartbeatProcess]:
        alive = [service for service in feed.services if service.process.poll() is None]
        return [service for service in alive if "feed taken over" in service.events()]

    wait_until(lambda: bool(owners()), "a process owns the feed")
    (owner,) = owners()
    return owner


def test_an_owner_killed_at_random_moments_is_followed_by_its_standby(feed: Feed, figure: Figure, long: bool) -> None:
    kills = KILLS if long else FEW_KILLS
    rng = random.Random(SEED)
    print(f"seed {SEED}")  # noqa: T201
    feed.start()
    feed.start()
    expected: list[list[int]] = [[], []]
    ts = 0
    seconds = []
    for _ in range(kills):
        owner = owner_of(feed)
        wait_until(lambda: "standing by" in feed.services[-1].events(), "the other one stands by")
        for _ in range(rng.randrange(1, 60)):  # transactions of 5 ms: the moment of the kill
            partition, ts = rng.randrange(2), ts + rng.randrange(1, 20)
            feed.write(partition, ts, ts - 50)
            expected[partition] += [ts, ts - 50]
        killed_at = time.time()
        owner.end(signal.SIGKILL)
        feed.start()  # the standby of the next
        feed.write(0, ts)  # so that there is something to say
        expected[0].append(ts)
        successor = owner_of(feed)
        found = next(line["n"] for line in successor.lines if line["event"] == "feed taken over")
        feed.wait_for(lambda beat: beat.n > found, "the standby writes")  # noqa: B023  # waited for in this round
        record = next(
            record
            for record in committed(feed.settings, f"{feed.name}.heartbeats")
            if Heartbeat.decode(record.value).n == found + 1
        )
        seconds.append(record.timestamp / 1000 - killed_at)
    ends = tuple(committed(feed.settings, feed.topic, partition)[-1].offset + 1 for partition in (0, 1))
    feed.wait_for(lambda beat: beat.ends == {feed.topic: ends}, "all rows are in cuts")
    beats = feed.heartbeats()  # each follows the one before: contiguous cuts, tau never falls
    assert [rows_that_count(feed, partition, beats) for partition in (0, 1)] == expected
    for partition in (0, 1):
        offsets = [record.offset for record in committed(feed.settings, feed.topic, partition)]
        rows = list(zip(offsets, expected[partition], strict=True))
        for beat in beats:
            later = [ts for offset, ts in rows if offset >= beat.end(feed.topic, partition)]
            assert beat.tau is None or all(T0 + ts > beat.tau for ts in later), "a promise is broken"
    assert beats[-1].tau is not None
    figure(
        f"kill -9 of the heartbeat service, {kills} times: until the standby's first heartbeat "
        f"{statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (longest), session of 1 s"
    )


def test_an_owner_that_was_thought_dead_comes_back_and_writes_nothing(feed: Feed) -> None:
    feed.start()
    first = owner_of(feed)
    second = feed.start()
    feed.write(0, 0)
    feed.wait_for(lambda beat: beat.max_ts == T0, "the first one writes")
    wait_until(lambda: "standing by" in second.events(), "the second one stands by")
    first.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: "feed taken over" in second.events(), "the second one takes over")
    feed.write(0, 100)
    feed.wait_for(lambda beat: beat.max_ts == T0 + 100, "the second one writes")
    first.process.send_signal(signal.SIGCONT)
    wait_until(lambda: first.events().count("standing by") == 2, "the first one stands by")
    feed.write(0, 200)
    feed.wait_for(lambda beat: beat.max_ts == T0 + 200, "the second one writes on")
    assert rows_that_count(feed, 0, feed.heartbeats()) == [0, 100, 200]
    assert first.events().count("feed taken over") == 1
