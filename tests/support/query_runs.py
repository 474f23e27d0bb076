"""What several tests do with replicas of the shipped queries: kill them together, come to the end, merge them."""

import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from lmerge import Hello
from lmerge.kafka import KafkaSettings
from tests.support.cli import run_cli
from tests.support.merge_service import Service
from tests.support.queries import (
    AHEAD_MS,
    CASES,
    PARTITIONS,
    TOPICS,
    WIDTH_MS,
    NexmarkRow,
    RunningQuery,
    with_a_new_partition,
    write,
    write_with_strays,
)
from tests.support.replica import FeedWorld, ReplicaTopic, Written, wait_seldom
from tests.support.replica_group import ReplicaGroup
from tests.support.replica_process import committed_batch, is_between_the_commits
from tests.support.running_replica import LANES

SKEW_MS: Final = 20_000
"""By how much of event time a partition is read behind the one before it."""

WITH_STRAYS: Final = 60
"""How many rows have strays beside them, copies that do not count."""


@contextmanager
def nexmark_world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    """Make a feed of the topics that the shipped queries read."""
    settings = KafkaSettings(bootstrap_servers)
    name = f"f{uuid.uuid4().hex[:12]}"
    made = FeedWorld(settings, name, topics=TOPICS, partitions=PARTITIONS, max_ahead_ms=AHEAD_MS)
    yield made
    made.close()


def close(world: FeedWorld, rows: Sequence[NexmarkRow]) -> int:
    """Write a heartbeat whose tau lies behind every result of the rows, those of windows over a join too; give tau."""
    tau = max(int(row.fields["date_time"]) for row in rows) + 6 * WIDTH_MS
    world.beat(tau=tau)
    return tau


def kill_a_group(
    world: FeedWorld, rows: Sequence[NexmarkRow], directories: Sequence[Path], *, max_cuts: int, cuts: int
) -> None:
    """Run replicas in a process that is killed in their midst, between the two commits of one of them.

    While they run, rows come that are late and early, and a partition is added, which has late ones too: those that
    count are `rows`.
    """
    half = len(rows) // 2
    write(world, rows[:half], cuts=3, lag_ms=0)
    topics = [f"{world.name}.replica.{directory.name}" for directory in directories]
    group = ReplicaGroup(world, directories, max_cuts=max_cuts)
    with ExitStack() as stack:
        stack.callback(group.close)
        group.start()
        begun = [committed_batch(world.settings, topic, LANES) for topic in topics]
        world.grow("bids", PARTITIONS + 1)
        later = with_a_new_partition(rows[half:])
        write_with_strays(world, later[:WITH_STRAYS])
        write(world, later[WITH_STRAYS:], cuts=cuts, lag_ms=SKEW_MS)

        def all_went_on() -> bool:
            group.check()
            return all(
                committed_batch(world.settings, topic, LANES) > batch
                for topic, batch in zip(topics, begun, strict=True)
            )

        wait_seldom(all_went_on, "every replica has written more", seconds=120)
        group.arm()
        world.beat(tau=(world.last.tau or 0) + 1)  # brings another commit, should all have come to their end
        assert group.wait_for_end() == -signal.SIGKILL
    batches = [committed_batch(world.settings, topic, LANES) for topic in topics]
    assert any(map(is_between_the_commits, directories, batches))


def define_merge(service: Service, replicas: Mapping[RunningQuery, Written], *, algorithm: str) -> str:
    """Let `auto` choose by what the replicas say of themselves, and attach them; give the name of the merge."""
    merge = f"{next(iter(replicas)).name}-{uuid.uuid4().hex[:8]}"
    hellos = [written.lanes[0][0] for written in replicas.values()]
    properties = [hello.properties for hello in hellos if isinstance(hello, Hello)]
    defined = service.put(merge, {"partitions": LANES, "properties": properties})
    assert defined["desired"]["algorithm"] == algorithm
    for number, each in enumerate(replicas):
        service.put(f"{merge}/inputs/r{number}", {"topic": each.topic.name})
    return merge


def merged_and_certified(service: Service, world: FeedWorld, name: str, merge: str, tau: int) -> Written:
    """Wait until all results of a query are merged, and certify; give what is merged."""
    service.wait_until_running(merge)
    merged = ReplicaTopic(world.settings, f"{merge}.merged", LANES)
    merged.wait_for_stable(CASES[name].complete(tau), check=lambda: None, seconds=60)
    result = run_cli("certify", "--merge", merge, "--bootstrap-servers", world.settings.bootstrap_servers)
    assert result.code == 0, result
    return merged.written()
