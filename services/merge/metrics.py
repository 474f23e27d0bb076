"""The metrics of the merge service: one object, set by the loop, read by Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lmerge import INFINITY
from services.merge.status import LaneStatus


class Metrics:
    """What is measured. Names carry their unit; labels are `merge`, `lane`, `input`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        lane = ["merge", "lane"]
        self.elements_in = Counter(
            "lmerge_elements_in", "Input records that a lane has processed.", [*lane, "input"], registry=self.registry
        )
        self.transactions = Counter(
            "lmerge_transactions", "Transactions that a lane has committed.", lane, registry=self.registry
        )
        self.commit_seconds = Histogram(
            "lmerge_commit_seconds",
            "How long a transaction takes from begin to committed.",
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10),
        )
        self.stable = Gauge(
            "lmerge_stable_milliseconds", "The merged stable, in application time.", lane, registry=self.registry
        )
        self.input_lag = Gauge(
            "lmerge_input_lag_milliseconds",
            "How far an input's stable is behind the merged one, in application time.",
            [*lane, "input"],
            registry=self.registry,
        )
        self.input_joined = Gauge(
            "lmerge_input_joined", "1 while an input is joined.", [*lane, "input"], registry=self.registry
        )
        self.live_nodes = Gauge("lmerge_live_nodes", "Events that are not final.", lane, registry=self.registry)
        self.divergences = Gauge(
            "lmerge_divergences",
            "Contradictions between inputs since this process owns the lane.",
            lane,
            registry=self.registry,
        )

    def show(self, merge: str, partition: int, status: LaneStatus) -> None:
        """Set the gauges of a lane."""
        lane = str(partition)
        if status.stable is not None and status.stable != INFINITY:
            self.stable.labels(merge, lane).set(status.stable)
        for name, each in status.inputs.items():
            self.input_joined.labels(merge, lane, name).set(each.membership == "joined")
            if each.lag_ms is not None:
                self.input_lag.labels(merge, lane, name).set(each.lag_ms)
