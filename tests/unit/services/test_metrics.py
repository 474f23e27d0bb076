"""docs/metrics.md and the merge service promise the same metrics: names, types and labels, both ways."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lmerge.facts import DropReason
from services.merge import desired as decide
from services.merge.definitions import Desired, FeedbackDefinition, InputDefinition, MergeDefinition
from services.merge.lane_record import Counts, InputRecord, LaneRecord, Stop
from services.merge.metrics import LaneCollector, Metrics

ROOT = Path(__file__).parents[3]
# What is ours of the page: the heartbeat service and a replica have a section of their own, and a test.
BEFORE, _, REST = (ROOT / "docs" / "metrics.md").read_text().partition("## The heartbeat service\n")
PAGE = BEFORE + REST[REST.index("\n## The process itself") :]
MOST = 40

ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \| (.+) \| (.+) \|$", re.MULTILINE)


class Promise(NamedTuple):
    """What is said about a metric."""

    kind: str
    labels: frozenset[str]


class Owned:
    """A merge of which this process owns lane 0."""

    name = "m"

    def __init__(self, record: LaneRecord) -> None:
        self.records: Mapping[int, LaneRecord] = {0: record}


def page() -> dict[str, Promise]:
    """Return what the page promises."""
    rows = ROW.findall(PAGE)
    assert len(rows) == len({row[0] for row in rows}), "a name is there twice"
    return {name: Promise(kind, frozenset(labels.split(", "))) for name, kind, labels, _, _ in rows}


def desired() -> Desired:
    now: Desired | None = decide.put_merge(
        None, "m", MergeDefinition(feedback=FeedbackDefinition(lag_ms=5)), lambda: "id"
    )
    for name in ("r1", "r2"):
        now = decide.put_input(now, "m", name, InputDefinition(topic=name), lambda name=name: name)  # type: ignore[misc]
    assert now is not None
    return now


def record() -> LaneRecord:
    """Make a lane record with something in every field that a metric shows."""
    counts = Counts(inserts=3, adjusts=2, stables=1, dropped={reason.name.lower(): 1 for reason in DropReason})
    given: dict[str, Any] = {"topic": "t", "position": 5, "start": 0, "safe": 0, "counts": counts}
    return LaneRecord(
        v=1,
        merge_id="id",
        batch=1,
        at_ms=2_000,
        safe_at_ms=1_000,
        max_stable=100,
        leader="r1",
        nodes=7,
        out=Counts(inserts=3, adjusts=2, stables=1),
        leader_changes=1,
        signals=1,
        divergences=1,
        inputs={
            "r1": InputRecord(attachment="r1", own_stable=100, joined=True, **given),
            "r2": InputRecord(attachment="r2", own_stable=50, stop=Stop("quarantined", "broken", 4), **given),
        },
    )


def touch(metrics: Metrics) -> None:
    """Let every metric that is counted on the way show itself once."""
    for metric in vars(metrics).values():
        if isinstance(metric, Counter):
            metric.labels(*(["x"] * len(metric._labelnames))).inc()
        elif isinstance(metric, Histogram):
            metric.labels(*(["x"] * len(metric._labelnames))).observe(0.01)


def scrape(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def exposed(text: str) -> dict[str, Promise]:
    """Return what a scrape shows, but for the process's own metrics and when each series was made."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("process_") or family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        assert family.samples, f"{name} shows nothing: the test must let it"
        found[name] = Promise(family.type, frozenset(labels - {"le"}))
    return found


def full() -> str:
    metrics = Metrics()
    wanted = {"m": desired()}
    metrics.registry.register(LaneCollector(lambda: [Owned(record())], lambda: wanted))
    touch(metrics)
    return scrape(metrics.registry)


def test_the_page_and_the_service_have_the_same_metrics() -> None:
    assert exposed(full()) == page()


def test_there_are_few_enough_to_be_promised_and_all_are_ours() -> None:
    assert 0 < len(page()) <= MOST
    assert all(name.startswith("lmerge_") for name in page())


def test_a_quarantined_laggard_is_seen_and_so_is_how_many_may_die() -> None:
    text = full()
    assert 'lmerge_inputs_may_die{lane="0",merge="m"} 0.0' in text
    assert 'lmerge_input_condition{condition="quarantined",input="r2",lane="0",merge="m"} 1.0' in text
    assert 'lmerge_input_condition{condition="lagging",input="r2",lane="0",merge="m"} 1.0' in text
    assert 'lmerge_input_gap{input="r2",lane="0",merge="m"} 0.0' in text
    assert 'lmerge_input_leads{input="r1",lane="0",merge="m"} 1.0' in text
    assert 'lmerge_input_leads{input="r2",lane="0",merge="m"} 0.0' in text
    assert 'lmerge_input_lag_milliseconds{input="r2",lane="0",merge="m"} 50.0' in text
    assert 'lmerge_safe_point_age_seconds{lane="0",merge="m"} 1.0' in text
    for reason in DropReason:
        assert f'reason="{reason.name.lower()}"}} 1.0' in text
        assert f"`{reason.name.lower()}`" in PAGE


def test_what_has_not_happened_yet_is_shown_as_0() -> None:
    """Else the first one is no change to Prometheus, and no alert sees it."""
    metrics = Metrics()
    metrics.of("m").took_over(3, 0.5)
    text = scrape(metrics.registry)
    assert 'lmerge_failures_total{event="take_over_failed",merge="m"} 0.0' in text
    assert 'lmerge_transactions_total{lane="3",merge="m",outcome="failed"} 0.0' in text
    metrics.registry.register(
        LaneCollector(lambda: [Owned(msgspec.structs.replace(record(), inputs=fresh()))], lambda: {"m": desired()})
    )
    text = scrape(metrics.registry)
    assert 'lmerge_elements_dropped_total{input="r1",lane="0",merge="m",reason="late_insert"} 0.0' in text


def fresh() -> dict[str, InputRecord]:
    """Return an input of which nothing was taken yet."""
    return {"r1": InputRecord(attachment="r1", topic="t", position=0, start=0, safe=0)}


def test_a_process_without_lanes_shows_how_many_have_to_run_once_an_input_has_spoken() -> None:
    """So that a lane that nobody owns is seen by what the others show."""

    def lanes(*, spoken: bool) -> str:
        wanted = desired().model_copy(update={"definition": MergeDefinition(partitions=3), "origin_fixed": spoken})
        registry = CollectorRegistry()
        registry.register(LaneCollector(list, lambda: {"m": wanted}))
        return scrape(registry)

    assert 'lmerge_lanes{merge="m"} 3.0' in lanes(spoken=True)
    assert 'lmerge_lanes{merge="m"} 0.0' in lanes(spoken=False)


def test_a_process_without_lanes_shows_itself_and_no_lane() -> None:
    metrics = Metrics()
    metrics.registry.register(LaneCollector(list, dict))
    text = scrape(metrics.registry)
    assert "process_cpu_seconds_total" in text
    assert 'merge="' not in text
