"""The metrics of the merge service. `docs/metrics.md` promises them; a test holds the two together.

What is in a committed lane record is shown from there, by a collector, so that it survives a change of owner and
disappears with its lane or input. What is measured on the way (latencies, transactions, failures) is counted here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge import INFINITY
from lmerge.facts import DropReason
from lmerge.kafka import Batch
from services.clock import now_ms
from services.merge.definitions import Desired
from services.merge.lane import Prepared
from services.merge.lane_record import InputRecord, LaneRecord
from services.merge.status import InputStatus, LaneStatus, lane_status

Failure = Literal["merge_failed", "take_over_failed", "commit_failed"]
"""What has to be begun anew."""

_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)


class Metrics:
    """All metrics of one process, and the registry that holds them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        lane = ["merge", "lane"]
        self.latency = Histogram(
            "lmerge_merge_latency_seconds",
            "From the timestamp of the oldest input record of a transaction to its commit.",
            ["merge"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "lmerge_commit_seconds",
            "How long a transaction takes, from begin to committed.",
            ["merge"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.output_gap = Histogram(
            "lmerge_output_gap_seconds",
            "Time between two commits of a lane with merged elements in them.",
            ["merge"],
            buckets=(*_SECONDS, 300),
            registry=self.registry,
        )
        self.recovery_seconds = Histogram(
            "lmerge_recovery_seconds",
            "How long taking a lane over took, from fencing to ready.",
            ["merge"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.transactions = Counter(
            "lmerge_transactions",
            "Transactions of a lane, by outcome: committed or failed.",
            [*lane, "outcome"],
            registry=self.registry,
        )
        self.failures = Counter(
            "lmerge_failures",
            "What this process had to begin anew: merge_failed, take_over_failed, commit_failed.",
            ["merge", "event"],
            registry=self.registry,
        )
        self.happenings = Counter(
            "lmerge_input_happenings",
            "What happened to inputs: attached, detached, joined, quarantined, released, gap, divergence, "
            "fast-forward, skipped.",
            ["merge", "input", "kind"],
            registry=self.registry,
        )

    def of(self, merge: str) -> "MergeMetrics":
        """Return the metrics of one merge."""
        return MergeMetrics(self, merge)


class MergeMetrics:
    """The metrics of one merge, for its loop."""

    def __init__(self, metrics: Metrics, merge: str) -> None:
        self._merge = merge
        self._metrics = metrics
        self._latency = metrics.latency.labels(merge)
        self._commit_seconds = metrics.commit_seconds.labels(merge)
        self._output_gap = metrics.output_gap.labels(merge)
        self._recovery_seconds = metrics.recovery_seconds.labels(merge)
        self.transactions = metrics.transactions
        self.failures = metrics.failures
        # For each lane the time of the oldest record that waits for its next commit.
        self._oldest_ms: dict[int, int] = {}
        for event in get_args(Failure):
            self.failures.labels(merge, event)  # shown as 0 from the start, so that the first one is seen as a change

    def took_over(self, lane: int, seconds: float) -> None:
        """Note that a lane was taken over."""
        self._recovery_seconds.observe(seconds)
        for outcome in ("committed", "failed"):
            self.transactions.labels(self._merge, str(lane), outcome)  # shown as 0 from the start

    def took(self, lane: int, batches: Iterable[Batch]) -> None:
        """Note how old the oldest record is that waits for the lane's next commit."""
        oldest = min(batch.first_timestamp for batch in batches)
        self._oldest_ms[lane] = min(oldest, self._oldest_ms.get(lane, oldest))

    def committed(self, lane: int, prepared: Prepared, seconds: float, before: LaneRecord | None) -> None:
        """Note a transaction; `before` is the record of the one before it, perhaps of another owner."""
        self._commit_seconds.observe(seconds)
        self.transactions.labels(self._merge, str(lane), "committed").inc()
        oldest_ms = self._oldest_ms.pop(lane, None)
        if prepared.values:
            at_ms = prepared.record.at_ms
            if before is not None and before.output_at_ms:
                self._output_gap.observe(max(0, at_ms - before.output_at_ms) / 1000)
            if oldest_ms is not None:
                self._latency.observe(max(0.0, at_ms - oldest_ms) / 1000 + seconds)

    def happened(self, kind: str, name: str, times: int = 1) -> None:
        """Note what happened to an input."""
        self._metrics.happenings.labels(self._merge, name, kind).inc(times)


class OwnedLanes(Protocol):
    """A merge with the lanes of it that this process owns."""

    @property
    def name(self) -> str:
        """The merge."""

    @property
    def records(self) -> Mapping[int, LaneRecord]:
        """The last committed record of every lane that this process owns."""


class LaneCollector(Collector):
    """Shows what the committed lane records of this process say.

    Args:
        loops: the merges that this process runs.
        desired: what is wanted of them.
    """

    def __init__(self, loops: Callable[[], Iterable[OwnedLanes]], desired: Callable[[], Mapping[str, Desired]]) -> None:
        self._loops = loops
        self._desired = desired

    def collect(self) -> Iterator[Metric]:
        """Give the metrics as of now."""
        families = _Families()
        wanted = self._desired()
        for name, each in wanted.items():
            families.lanes.add_metric([name], each.definition.partitions if each.origin_fixed else 0)
        for loop in self._loops():
            desired = wanted.get(loop.name)
            records = loop.records
            families.lanes_owned.add_metric([loop.name], len(records))
            for lane, record in records.items():
                if desired is not None and record.merge_id == desired.id:
                    families.add(loop.name, str(lane), record, lane_status(record, desired, now_ms=now_ms()))
        yield from families.all()


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["merge", *labels])


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=["merge", *labels])


class _Families:
    """The metrics of one scrape."""

    def __init__(self) -> None:
        each = ("lane", "input")
        self.lanes = _gauge("lmerge_lanes", "Lanes that have to run: 0 until the first input has spoken.")
        self.lanes_owned = _gauge("lmerge_lanes_owned", "Lanes that this process runs.")
        self.running = _gauge("lmerge_lane_running", "1 while a lane runs, 0 while it is stalled.", "lane")
        self.stable = _gauge("lmerge_stable_milliseconds", "The merged stable, in application time.", "lane")
        self.may_die = _gauge(
            "lmerge_inputs_may_die", "How many inputs may die now without a gap; -1: the lane is stalled.", "lane"
        )
        self.live = _gauge("lmerge_live_nodes", "Events that are not final.", "lane")
        self.live_bytes = _gauge("lmerge_live_bytes", "About how much memory they take.", "lane")
        self.safe_age = _gauge(
            "lmerge_safe_point_age_seconds",
            "How far back a successor has to read; must stay below the retention of the topics.",
            "lane",
        )
        self.out = _counter("lmerge_elements_out", "Merged elements, by kind.", "lane", "kind")
        self.leaders = _counter("lmerge_leader_changes", "How often another input took the lead.", "lane")
        self.signals = _counter("lmerge_feedback_signals", "Signals that told an input to skip ahead.", "lane")
        self.divergences = _counter("lmerge_divergences", "Contradictions between inputs.", "lane")
        self.taken = _counter("lmerge_elements_in", "Elements taken of an input, by kind.", *each, "kind")
        self.dropped = _counter("lmerge_elements_dropped", "Elements without effect, by reason.", *each, "reason")
        self.own_stable = _gauge("lmerge_input_stable_milliseconds", "An input's own stable.", *each)
        self.lag = _gauge("lmerge_input_lag_milliseconds", "How far it is behind the merged stable.", *each)
        self.joined = _gauge("lmerge_input_joined", "1 while an input is joined.", *each)
        self.leads = _gauge("lmerge_input_leads", "1 while the merged stable is this input's.", *each)
        self.condition = _gauge(
            "lmerge_input_condition", "1 while an input is lagging, silent, paused, quarantined.", *each, "condition"
        )
        self.gap = _gauge("lmerge_input_gap", "1 while an input's records are gone.", *each)

    def add(self, merge: str, lane: str, record: LaneRecord, status: LaneStatus) -> None:
        where = [merge, lane]
        self.running.add_metric(where, status.state == "running")
        _add_instant(self.stable, where, record.max_stable)
        self.may_die.add_metric(where, -1 if status.state == "stalled" else status.may_die)
        self.live.add_metric(where, record.nodes)
        self.live_bytes.add_metric(where, record.bytes)
        self.safe_age.add_metric(where, status.safe_point_age_ms / 1000)
        for kind in ("insert", "adjust", "stable"):
            self.out.add_metric([*where, kind], getattr(record.out, f"{kind}s"))
        self.leaders.add_metric(where, record.leader_changes)
        self.signals.add_metric(where, record.signals)
        self.divergences.add_metric(where, record.divergences)
        for name, each in record.inputs.items():
            self._add_input([merge, lane, name], each, status.inputs[name])
            self.leads.add_metric([merge, lane, name], name == record.leader)

    def _add_input(self, where: list[str], record: InputRecord, status: InputStatus) -> None:
        for kind in ("insert", "adjust", "stable"):
            self.taken.add_metric([*where, kind], getattr(record.counts, f"{kind}s"))
        for reason in DropReason:  # those that were not met yet are 0
            name = reason.name.lower()
            self.dropped.add_metric([*where, name], record.counts.dropped.get(name, 0))
        _add_instant(self.own_stable, where, record.own_stable)
        _add_instant(self.lag, where, status.lag_ms)
        self.joined.add_metric(where, status.membership == "joined")
        self.gap.add_metric(where, status.membership == "gap" and "quarantined" not in status.conditions)
        for condition in ("lagging", "silent", "paused", "quarantined"):
            self.condition.add_metric([*where, condition], condition in status.conditions)

    def all(self) -> Iterator[Metric]:
        yield from vars(self).values()


def _add_instant(family: GaugeMetricFamily, where: list[str], instant: int | None) -> None:
    if instant is not None and instant != INFINITY:
        family.add_metric(where, instant)
