"""What a replica says about itself: docs/metrics.md and the code promise the same, and when it is ready."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from replicas.checkpoint import Skipped
from replicas.errors import ReplicaFailed
from replicas.metrics import Metrics
from replicas.report import Report

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text().partition("## A replica\n")[2]
SECTION = PAGE[: PAGE.index("\n## ")]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \| (.+) \| (.+) \|$", re.MULTILINE)

BUSY = {"message": "Processing new data", "isDataAvailable": True, "isTriggerActive": True}
FRESH = {"message": "Initializing StreamExecution", "isDataAvailable": False, "isTriggerActive": False}
WAITING = "Waiting for next trigger"


def batch(number: int, *, rows: int = 10, dropped: int = 0, malformed: int = 0) -> Mapping[str, Any]:
    """Make Spark's report of a batch, as far as we read it."""
    operator = {"numRowsDroppedByWatermark": dropped, "numRowsTotal": 4, "memoryUsedBytes": 100}
    return {
        "batchId": number,
        "numInputRows": rows,
        "batchDuration": 250,
        "durationMs": {"addBatch": 200, "triggerExecution": 250},
        "stateOperators": [operator, {**operator, "numRowsDroppedByWatermark": 0}],
        "observedMetrics": {"source bids": {"malformed": malformed, "samples": None}},
    }


def show(metrics: Metrics) -> dict[str, float]:
    """Give the values of all series, by the name without our prefix."""
    return {
        sample.name.removeprefix("lmerge_replica_"): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if sample.labels == {"merge": "m", "replica": "r1"}
    }


def test_the_page_and_the_code_have_the_same_metrics() -> None:
    metrics = Metrics("m", "r1")
    metrics.began(1)
    metrics.promised(5)
    metrics.skipped(Skipped(before=5, cuts=1, rows=2))
    metrics.attached(is_attached=True)
    metrics.committed(batch(0))
    exposed = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        if not family.name.startswith("process_") and not family.name.endswith("_created"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert family.samples, f"{name} shows nothing: the test must let it"
            labels = {label for sample in family.samples for label in sample.labels}
            exposed[name] = (family.type, frozenset(labels - {"le"}))
    rows = ROW.findall(SECTION)
    assert len(rows) == 14
    assert exposed == {name: (kind, frozenset(labels.split(", "))) for name, kind, labels, _, _ in rows}


def test_each_batch_is_counted_once_however_often_spark_reports_it() -> None:
    metrics = Metrics("m", "r1")
    report = Report(metrics)
    report.started(3)
    report.look([batch(4), batch(5, malformed=2)], BUSY, None)
    report.look([batch(4), batch(5, malformed=2), batch(6, rows=7)], BUSY, 1_000)
    shown = show(metrics)
    expected = {
        "incarnation": 3,
        "batch": 6,
        "rows_total": 27,
        "malformed_rows_total": 2,
        "dropped_rows_total": 0,
        "stable_milliseconds": 1_000,
        "state_rows": 8,
        "state_bytes": 200,
        "batch_seconds_count": 3,
        "batch_seconds_sum": 0.75,
    }
    assert {name: shown[name] for name in expected} == expected


def test_a_report_of_an_idle_query_is_no_batch_and_does_not_hide_the_one_with_its_number() -> None:
    metrics = Metrics("m", "r1")
    report = Report(metrics)
    idle = {**batch(1, rows=0), "durationMs": {"latestOffset": 20, "triggerExecution": 26}}
    report.look([idle], {"message": WAITING, "isDataAvailable": False}, None)
    assert report.readiness == (True, "running, nothing new to read yet")
    assert "batch" not in show(metrics)
    report.look([idle, batch(1, rows=5)], BUSY, None)
    assert report.readiness == (True, "running, batch 1 is committed")
    assert show(metrics)["rows_total"] == 5


def test_what_is_not_known_has_no_series() -> None:
    metrics = Metrics("m", "r1")
    Report(metrics).look([], BUSY, None)
    assert {name for name in show(metrics) if not name.endswith("_created")} == {
        "rows_total",
        "malformed_rows_total",
        "dropped_rows_total",
        "skipped_cuts",
        "skipped_rows",
    }


def test_what_was_left_out_is_shown() -> None:
    metrics = Metrics("m", "r1")
    Report(metrics).look([], BUSY, None, Skipped(before=900, cuts=4, rows=60))
    shown = show(metrics)
    assert [shown[f"skipped_{what}"] for what in ("to_milliseconds", "cuts", "rows")] == [900, 4, 60]


def test_it_is_ready_from_its_first_batch_until_it_stops() -> None:
    report = Report(Metrics("m", "r1"))
    assert report.readiness == (False, "looking for the feed")
    report.starting()
    assert report.readiness == (False, "starting Spark")
    report.started(1)
    report.look([], BUSY, None)
    assert report.readiness == (False, "working on its first batch")
    report.look([batch(0)], BUSY, None)
    assert report.readiness == (True, "running, batch 0 is committed")
    report.stopping()
    assert report.readiness == (False, "stopping")


@pytest.mark.parametrize("message", ["Waiting for data to arrive", WAITING])
def test_it_is_ready_without_a_batch_if_there_is_nothing_new(message: str) -> None:
    report = Report(Metrics("m", "r1"))
    report.started(1)
    for status in (FRESH, BUSY, {**BUSY, "message": WAITING}):
        report.look([], status, None)
        assert not report.readiness.is_ready
    report.look([], {**FRESH, "message": message}, None)
    assert report.readiness == (True, "running, nothing new to read yet")


def test_rows_that_spark_drops_end_the_replica() -> None:
    metrics = Metrics("m", "r1")
    with pytest.raises(ReplicaFailed, match="batch 2: Spark dropped 3 rows by its watermark"):
        Report(metrics).look([batch(2, dropped=3)], BUSY, None)
    assert show(metrics)["dropped_rows_total"] == 3
