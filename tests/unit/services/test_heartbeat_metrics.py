"""docs/metrics.md and the heartbeat service promise the same metrics; cuts are counted once."""

import re
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lmerge.feed import Cut, FeedDefinition, Heartbeat, Source, SourceCounts
from services.heartbeat.ledger import Ledger
from services.heartbeat.metrics import FeedState, Metrics

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text().partition("## The heartbeat service\n")[2]
SECTION = PAGE[: PAGE.index("\n## ")]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \| (.+) \| (.+) \|$", re.MULTILINE)
BEAT = Heartbeat(feed="id", n=3, tau=50, ceiling=None, max_ts=90, ends={"bids": (4,)})
CUT = Cut(BEAT, {"bids": SourceCounts(rows=9, late=2, early=1)}, ("idle",))
DEFINITION = FeedDefinition(name="f", sources=(Source(topic="bids", time="kafka", disorder_ms=0),))


def show(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def exposed(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    found = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("process_") and not family.name.endswith("_created"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert family.samples, f"{name} shows nothing: the test must let it"
            labels = {label for sample in family.samples for label in sample.labels}
            found[name] = (family.type, frozenset(labels - {"le"}))
    return found


def full() -> Metrics:
    metrics = Metrics("f")
    metrics.state = FeedState(BEAT, 12.5, {"bids": 50}, {"bids": 1}, {"bids": 7})
    metrics.settle(CUT)
    metrics.failed("fenced")
    metrics.took_over()
    metrics.committed(0.01)
    return metrics


def test_the_page_and_the_service_have_the_same_metrics() -> None:
    rows = ROW.findall(SECTION)
    assert len(rows) > 10
    page = {name: (kind, frozenset(labels.split(", "))) for name, kind, labels, _, _ in rows}
    assert exposed(show(full())) == page


def test_the_page_names_every_reason_and_rule() -> None:
    for word in (*SourceCounts().left_out, "timeout", "idle", "fenced", "taking_over_again"):
        assert f"`{word}`" in SECTION


def test_an_owner_shows_how_far_the_feed_is_and_a_standby_does_not() -> None:
    metrics = full()
    text = show(metrics)
    assert 'lmerge_feed_owned{feed="f"} 1.0' in text
    assert 'lmerge_feed_tau_milliseconds{feed="f"} 50.0' in text
    assert 'lmerge_feed_rows_left_out_total{feed="f",reason="late",source="bids"} 2.0' in text
    metrics.state = None
    text = show(metrics)
    assert 'lmerge_feed_owned{feed="f"} 0.0' in text
    assert "lmerge_feed_tau_milliseconds" not in text


def test_what_is_not_promised_yet_has_no_series() -> None:
    metrics = Metrics("f")
    metrics.state = FeedState(Heartbeat.start("id", {}), 1.0, {"bids": None}, {"bids": 0}, {"bids": 0})
    text = show(metrics)
    assert "lmerge_feed_tau_milliseconds{" not in text
    assert "lmerge_feed_source_promise_milliseconds{" not in text
    assert 'lmerge_feed_idle_partitions{feed="f",source="bids"} 0.0' in text


def test_what_has_not_happened_yet_is_shown_as_0() -> None:
    """Else the first one is no change to Prometheus, and no alert sees it."""
    assert 'lmerge_feed_failures_total{event="fenced",feed="f"} 0.0' in show(Metrics("f"))
    assert 'lmerge_feed_unsafe_moves_total{feed="f",rule="timeout"} 0.0' in show(Metrics("f"))
    assert 'lmerge_feed_rows_left_out_total{feed="f",reason="unreadable",source="bids"} 0.0' in show(full())


def rows_counted(ledger: Ledger, metrics: Metrics) -> tuple[int, bool]:
    return ledger.totals["bids"].rows, 'lmerge_feed_rows_total{feed="f",source="bids"} 9.0' in show(metrics)


def test_a_cut_is_counted_when_it_is_committed() -> None:
    metrics = Metrics("f")
    ledger = Ledger(DEFINITION, metrics)
    ledger.writing(CUT)
    assert rows_counted(ledger, metrics) == (0, False)
    ledger.committed()
    assert rows_counted(ledger, metrics) == (9, True)
    ledger.found(BEAT)  # counted before
    assert rows_counted(ledger, metrics) == (9, True)


def test_a_cut_of_unknown_outcome_is_counted_if_the_tail_is_it() -> None:
    for last, rows in ((BEAT, 9), (Heartbeat.start("id", {}), 0)):
        metrics = Metrics("f")
        ledger = Ledger(DEFINITION, metrics)
        ledger.writing(CUT)
        ledger.found(last)
        ledger.committed()
        assert ledger.totals["bids"].rows == rows
