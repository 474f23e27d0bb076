"""Replicas that answer early and revise, beside conservative ones: killed, merged by R3, certified, right."""

import itertools
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from lmerge import TDB, Adjust, Element, Event, Insert, Skip, Stable, reconstitute
from lmerge.canonical import payload
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from replicas.early import early_plan
from replicas.loader import load_query
from replicas.operators import Mode, maximum, minimum
from replicas.process import cause
from replicas.query import Query
from replicas.windows import Windows
from tests.integration.conftest import Figure
from tests.support.merge_service import Service, running
from tests.support.queries import (
    RunningQuery,
    answers,
    assert_equals_the_answer,
    directory_name,
    merge_lane,
    nexmark_rows,
)
from tests.support.query_runs import close, define_merge, kill_a_group, merged_and_certified, nexmark_world
from tests.support.replica import FeedWorld, Written, bids, wait_seldom, window_counts
from tests.support.running_replica import LANES, RunningReplica, settings_in, start_all, tell

SEED = 8
MAX_CUTS = 2
PLANS = (
    {"hot_items": ("eager", "panes"), "highest_bid": ("ordered", "by_auction"), "top_bids": ("eager", "direct")},
    {"hot_items": ("ordered", "direct"), "highest_bid": ("eager", "direct"), "top_bids": ("ordered", "panes")},
)
"""An early plan and a conservative one of each query."""


@pytest.fixture(scope="module")
def service(bootstrap_servers: str) -> Iterator[Service]:
    with running(KafkaSettings(bootstrap_servers)) as service:
        yield service


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    with nexmark_world(bootstrap_servers) as world:
        yield world


@pytest.fixture
def one_topic(bootstrap_servers: str) -> Iterator[FeedWorld]:
    made = FeedWorld(KafkaSettings(bootstrap_servers), f"f{uuid.uuid4().hex[:12]}", partitions=2)
    yield made
    made.close()


def first_answers(lane: Sequence[Element]) -> dict[int, bool]:
    """Tell for each window of a lane whether its first answer came while rows of it could still come.

    A stable at or below the start of a window says that the window was open then.
    """
    early: dict[int, bool] = {}
    waiting: set[int] = set()
    for element in lane:
        if isinstance(element, Insert) and element.vs not in early:
            waiting.add(element.vs)
        elif isinstance(element, Stable):
            early |= {vs: element.vc <= vs for vs in waiting}
            waiting.clear()
    return early


def early_share(written: Written, start: int) -> float:
    """Give the share of windows that start there or later, over all lanes, with a first answer before they closed."""
    lanes = map(first_answers, written.lanes)
    told = [is_early for lane in lanes for vs, is_early in lane.items() if vs >= start]
    return sum(told) / len(told)


def revisions(written: Written) -> int:
    return written.kinds()["adjust"]


@pytest.mark.timeout(900)  # a start of Spark that may starve, and six or nine starts of a replica
@pytest.mark.parametrize("plans", PLANS, ids=["one", "other"])
def test_early_and_conservative_replicas_are_killed_and_merged_and_equal_the_answer(
    *,
    plans: Mapping[str, tuple[str, str]],
    spark: SparkSession,
    service: Service,
    world: FeedWorld,
    tmp_path: Path,
    figure: Figure,
    long: bool,
) -> None:
    """Killed together, one of them between the sink's commit and Spark's own; in the short run for one query."""
    if not long and plans is not PLANS[0]:
        pytest.skip("other plans of the same queries are for the long run")
    began = time.monotonic()
    rows = nexmark_rows(SEED, seconds=100 if long else 60)
    expected = answers(rows)
    directories = {
        name: [tmp_path / directory_name(name, plan, MAX_CUTS) for plan in both]
        for name, both in plans.items()
        if long or name == "hot_items"
    }
    killed = [*itertools.chain(*directories.values())]
    kill_a_group(world, rows, killed, max_cuts=MAX_CUTS, cuts=24 if long else 16)
    tau = close(world, rows)
    figure(f"{len(killed)} replicas killed after {time.monotonic() - began:.1f} s")
    # The first half of the rows came in a few large cuts.
    middle = int(rows[len(rows) // 2].fields["date_time"])
    for name, both in directories.items():
        with ExitStack() as stack:
            replicas = [RunningQuery(stack, spark, world, one, max_cuts=MAX_CUTS) for one in both]
            start_all(replicas)
            found = {}
            for each in replicas:
                each.wait_for_end(tau)
                found[each] = each.topic.written()
                assert found[each].kinds()["hello"] == LANES, "a kill is no new incarnation"
            early, conservative = found.values()
            assert_equals_the_answer(early, name, expected[name], tau, revised=True)
            assert_equals_the_answer(conservative, name, expected[name], tau)
            merge = define_merge(service, found, algorithm="R3")
            merged = merged_and_certified(service, world, name, merge, tau)
            assert_equals_the_answer(merged, name, expected[name], tau, revised=True)
        assert early_share(early, middle) == 1
        assert early_share(conservative, middle) == 0
        assert revisions(early) > 0
        figure(
            f"{name}: {len(expected[name])} results, first answers of all windows before they closed (merged: of "
            f"{early_share(merged, middle):.0%}), {revisions(early)} revisions (merged: {revisions(merged)}), right "
            f"after {time.monotonic() - began:.1f} s"
        )


def assert_taken_back_before_the_skip(lane: Sequence[Element], before: int) -> int:
    """What the replica will not finish is gone when it says that it skips, and comes no more; give how much it was."""
    (at,) = [number for number, element in enumerate(lane) if isinstance(element, Skip)]
    skip = lane[at]
    assert isinstance(skip, Skip)
    assert skip.before == before
    until = reconstitute(lane[1:at])
    assert all(event.ve >= before for event in until if event.vs >= until.stable), "open, and will not be finished"
    assert not [element for element in lane[at:] if isinstance(element, Insert) and element.ve < before]
    removals = itertools.takewhile(
        lambda element: isinstance(element, Adjust) and element.ve == element.vs, reversed(lane[:at])
    )
    return len([*removals])


def test_an_early_replica_takes_back_what_it_skips_and_is_right_from_there_on(
    spark: SparkSession, one_topic: FeedWorld, tmp_path: Path, figure: Figure
) -> None:
    """And another mode under the same name is another plan: it begins a new incarnation."""
    world, query = one_topic, load_query("hot_items")
    windows = query.windows
    rows = bids(seed=17, count=600, partitions=2, seconds=120)
    TopicAdmin(world.settings).ensure(TopicSpec(f"{world.name}.feedback", 1))
    with ExitStack() as stack:
        skipping = RunningReplica(stack, settings_in(world, tmp_path / "skipping", query, "eager", max_cuts=4), spark)
        whole = RunningReplica(stack, settings_in(world, tmp_path / "whole", query, "direct"), spark)
        start_all([skipping, whole])
        world.write_rows("bids", rows[:200])
        world.cut(steps=8)
        tau = world.last.tau or 0
        skipping.wait_for_watermark(tau + 1)
        both = zip(skipping.topic.written().lanes, whole.topic.written().lanes, strict=True)
        answered = [element for lane in both for element in merge_lane(lane)[1] if isinstance(element, Insert)]
        assert any(insert.ve > tau + 1 for insert in answered), "merged, it answers before a window closes"
        before = rows[400].ts
        tell(world, before, "skipping")
        world.write_rows("bids", rows[200:])
        world.cut(steps=20)
        tau = max(row.ts for row in rows) + 2 * windows.width_ms
        world.beat(tau=tau)
        skipping.wait_for_watermark(tau + 1)
        whole.wait_for_watermark(tau)
        left_out = skipping.replica.skipped
    assert left_out.before == before
    assert left_out.cuts > 0
    skipped, complete = skipping.topic.written(), whole.topic.written()
    taken_back = sum(assert_taken_back_before_the_skip(lane, before) for lane in skipped.lanes)
    assert taken_back > 0
    figure(f"an early replica took back {taken_back} answers and left out {left_out.cuts} cuts, {left_out.rows} rows")
    stable = complete.stable
    truth = window_counts(rows, windows, below=stable)
    frozen = skipped.frozen()
    assert all(event in truth for event in frozen), "what it has finished stays"
    assert all(event in frozen for event in truth if event.ve >= before)
    merged = [merge_lane(both) for both in zip(skipped.lanes, complete.lanes, strict=True)]
    assert {algorithm for algorithm, _ in merged} == {"R3"}
    assert TDB(event for _, lane in merged for event in reconstitute(lane).frozen(stable)) == truth

    changed = msgspec.structs.replace(query, plans={"eager": query.plan("ordered")})
    with ExitStack() as stack:
        again = RunningReplica(stack, settings_in(world, tmp_path / "skipping", changed, "eager"), spark).start()
        assert again.replica.incarnation == 2


def test_columns_of_every_type_come_back_exactly(spark: SparkSession, one_topic: FeedWorld, tmp_path: Path) -> None:
    """Also integers that no float holds, beside heartbeat rows that have none."""
    world, large = one_topic, 2**53 + 1
    query = Query(
        name="exact",
        sources={"bids": {"auction": int, "price": int}},
        plans={
            "eager": early_plan(
                Mode.EAGER,
                maximum(),
                by=["cast(auction AS string) AS name", "auction % 2 = 0 AS even"],
                of=["cast(price AS decimal(20, 2)) AS price", f"{large} + auction AS large"],
                result=["name", "even", "price", "large"],
            )
        },
        windows=Windows(width_ms=10_000, slide_ms=10_000),
    )
    rows = bids(seed=2, count=60, partitions=2, seconds=30)
    tau = max(row.ts for row in rows) + 30_000
    with ExitStack() as stack:
        replica = RunningReplica(stack, settings_in(world, tmp_path / "r1", query, "eager", max_cuts=2), spark).start()
        world.write_rows("bids", rows)
        world.cut(steps=4)
        world.beat(tau=tau)
        replica.wait_for_watermark(tau + 1)
    assert replica.topic.written().frozen() == TDB(
        Event(
            payload({"name": str(auction), "even": not auction % 2, "price": "250.00", "large": large + auction}), *at
        )
        for auction, at in {
            (row.auction, (row.ts // 10_000 * 10_000, row.ts // 10_000 * 10_000 + 10_000)) for row in rows
        }
    )


def test_what_an_operator_cannot_take_ends_the_replica_with_a_sentence(
    spark: SparkSession, one_topic: FeedWorld, tmp_path: Path
) -> None:
    query = Query(
        name="lowest",
        sources={"bids": {"price": int}},
        plans={"eager": early_plan(Mode.EAGER, minimum(), of=["nullif(price, 250) AS price"], result=["price"])},
        windows=Windows(width_ms=10_000, slide_ms=10_000),
    )
    with ExitStack() as stack:
        replica = RunningReplica(stack, settings_in(one_topic, tmp_path / "r1", query, "eager"), spark).start()
        one_topic.write_rows("bids", bids(seed=1, count=10, partitions=2, seconds=10))
        one_topic.cut(steps=2)
        wait_seldom(lambda: not replica.query.isActive, "it has ended", seconds=60)
        said = cause(replica.query, replica.replica.failure)
    assert said.startswith("UsageError: a null among price: an operator's columns have none; give them a value")
    assert "\n" not in said
