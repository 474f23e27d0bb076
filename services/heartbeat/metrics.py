"""The metrics of the heartbeat service. `docs/metrics.md` promises them; a test holds the two together.

How far the feed is, is shown by the process that owns it and by no other, from its last committed heartbeat. What is
counted, is counted by each process since it began.
"""

from collections.abc import Iterator, Mapping
from typing import Final, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge.feed import Cut, Heartbeat, UnsafeRule

_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)


class FeedState(msgspec.Struct, frozen=True):
    """How far a feed is, as its owner has committed it.

    Attributes:
        heartbeat: the last one.
        at_seconds: when it was committed, by the wall clock.
        promises: what each source topic allows to promise by itself.
        idle: how many partitions of each tau does not wait for.
        disorder_ms: how far a row of each was behind the largest of its partition at most.
    """

    heartbeat: Heartbeat
    at_seconds: float
    promises: dict[str, int | None]
    idle: dict[str, int]
    disorder_ms: dict[str, int]


class Metrics(Collector):
    """All metrics of one process, for one feed, and the registry that holds them."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self.state: FeedState | None = None
        """How far the feed is; None while another process owns it."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self.rows = self._counter("rows", "Rows read, in committed heartbeats.", "source")
        self.left_out = self._counter("rows_left_out", "Rows that do not count, by reason.", "source", "reason")
        self.copies_not_whole = self._counter("copies_not_whole", "Rows that were not copied as a whole: no room.")
        self.unsafe_moves = self._counter("unsafe_moves", "Heartbeats whose tau an unsafe rule has moved.", "rule")
        self.take_overs = self._counter("take_overs", "How often this process became the owner.")
        self.failures = self._counter("failures", "What ended an ownership before its time, by event.", "event")
        self.commit_seconds = Histogram(
            "lmerge_feed_commit_seconds",
            "How long a transaction with a heartbeat takes, from begin to committed.",
            ["feed"],
            buckets=_SECONDS,
            registry=self.registry,
        )

        # Shown as 0 from the start, so that the first one is seen as a change.
        self.take_overs.labels(feed)
        self.copies_not_whole.labels(feed)
        for event in ("fenced", "taking_over_again"):
            self.failures.labels(feed, event)
        for rule in get_args(UnsafeRule):
            self.unsafe_moves.labels(feed, rule)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"lmerge_feed_{name}", meaning, ["feed", *labels], registry=self.registry)

    def settle(self, cut: Cut) -> None:
        """Count what belongs to a cut that is committed."""
        for topic, counts in cut.counts.items():
            self.rows.labels(self._feed, topic).inc(counts.rows)
            for reason, number in counts.left_out.items():
                self.left_out.labels(self._feed, topic, reason).inc(number)
        for rule in cut.unsafe:
            self.unsafe_moves.labels(self._feed, rule).inc()

    def not_copied(self, rows: int) -> None:
        """Count rows of which not all is in the late topic."""
        self.copies_not_whole.labels(self._feed).inc(rows)

    def failed(self, event: str) -> None:
        """Count an ownership that ended before its time."""
        self.failures.labels(self._feed, event).inc()

    def took_over(self) -> None:
        """Count a take-over."""
        self.take_overs.labels(self._feed).inc()

    def committed(self, seconds: float) -> None:
        """Note how long a transaction took."""
        self.commit_seconds.labels(self._feed).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Show how far the feed is."""
        state = self.state
        yield self._gauge("owned", "1 while this process owns the feed.", {(): 0.0 if state is None else 1.0})
        if state is None:
            return
        beat = state.heartbeat
        yield self._gauge("heartbeat_number", "Number of the last heartbeat.", {(): beat.n})
        yield self._gauge("heartbeat_timestamp_seconds", "When it was committed.", {(): state.at_seconds})
        yield self._gauge("tau_milliseconds", "Its promise.", {(): beat.tau})
        yield self._gauge("largest_milliseconds", "The largest timestamp that counted.", {(): beat.max_ts})
        sources: dict[str, tuple[str, Mapping[str, int | None]]] = {
            "source_promise_milliseconds": ("What a source allows to promise by itself.", state.promises),
            "idle_partitions": ("Partitions that tau does not wait for, since they are idle.", state.idle),
            "disorder_milliseconds": ("How far a row was behind at most.", state.disorder_ms),
        }
        for name, (meaning, values) in sources.items():
            yield self._gauge(name, meaning, {(topic,): value for topic, value in values.items()}, "source")

    def _gauge(
        self, name: str, meaning: str, values: "dict[tuple[str, ...], float | int | None]", *labels: str
    ) -> GaugeMetricFamily:
        """Make a gauge; what is not known has no series."""
        gauge = GaugeMetricFamily(f"lmerge_feed_{name}", meaning, labels=["feed", *labels])
        for names, value in values.items():
            if value is not None:
                gauge.add_metric([self._feed, *names], value)
        return gauge
