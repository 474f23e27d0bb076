"""*Merge internals*: live nodes, memory, latency, transactions, lanes."""

from grafana_foundation_sdk.builders import dashboard as build

from deploy.grafana.frame import frame
from deploy.grafana.limits import limit
from deploy.grafana.panels import BOTTOM, Q, Shown, lines, states

_MERGE = 'merge="$merge"'


def internals() -> build.Dashboard:
    """Return the dashboard."""
    made = frame("lmerge-internals", "LMerge: merge internals", "What the processes of the merge service do.")
    made.with_row(build.Row("How quick"))
    _times(made)
    made.with_row(build.Row("How much"))
    _sizes(made)
    made.with_row(build.Row("Lanes and owners"))
    _lanes(made)
    _work(made)
    return made


def quantile(share: float, histogram: str, labels: str) -> str:
    """Ask for a quantile of a histogram."""
    return f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{{labels}}}[$__rate_interval])))"


def _times(made: build.Dashboard) -> None:
    made.with_panel(
        lines(
            "Merge latency",
            "From Kafka's timestamp of the oldest record that waited to the commit. Large right after an attach or a "
            "take-over, when old records are read.",
            "s",
            Q(quantile(0.5, "lmerge_merge_latency_seconds", _MERGE), "p50"),
            Q(quantile(0.99, "lmerge_merge_latency_seconds", _MERGE), "p99"),
            limits={BOTTOM: "green", 0.2: "orange", 1: "red"},
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Commit",
            "How long a transaction takes. p50 above 20 ms: the broker, or the way to it, is slow.",
            "s",
            Q(quantile(0.5, "lmerge_commit_seconds", _MERGE), "p50"),
            Q(quantile(0.99, "lmerge_commit_seconds", _MERGE), "p99"),
            limits={BOTTOM: "green", 0.1: "orange", 1: "red"},
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Output gap",
            "Time between two commits with merged elements in them, also across a take-over. As long as the sources "
            "and windows make it is normal.",
            "s",
            Q(quantile(0.5, "lmerge_output_gap_seconds", _MERGE), "p50"),
            Q(quantile(1, "lmerge_output_gap_seconds", _MERGE), "largest, at most"),
            limits={BOTTOM: "green", 5: "orange", 60: "red"},
            width=8,
        )
    )


def _sizes(made: build.Dashboard) -> None:
    made.with_panel(
        lines(
            "Live events",
            "Events in memory that are not final, by lane. Without end: stables do not come, or lifetimes are long.",
            "short",
            Q(f"max by (lane) (lmerge_live_nodes{{{_MERGE}}})", "lane {{lane}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Memory",
            "Resident memory of each process of the merge service, and what the live events of each lane take of it.",
            "bytes",
            Q('process_resident_memory_bytes{job="merge"}', "{{instance}}"),
            Q(f"max by (lane) (lmerge_live_bytes{{{_MERGE}}})", "live events of lane {{lane}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Processor",
            "Cores that each process uses. A process is worth about one; near 1 a second one helps if there are "
            "several lanes or merges.",
            "none",
            Q('rate(process_cpu_seconds_total{job="merge"}[$__rate_interval])', "{{instance}}"),
            limits={BOTTOM: "green", 0.8: "orange", 0.95: "red"},
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Elements in and out",
            "What all inputs say, what goes out, and what had no effect: of n inputs that agree, n - 1 say nothing "
            "new.",
            "eps",
            Q(f"sum(merge_input:lmerge_elements_in:rate1m{{{_MERGE}}})", "in"),
            Q(f"sum(merge_kind:lmerge_elements_out:rate1m{{{_MERGE}}})", "out"),
            Q(f"sum(rate(lmerge_elements_dropped_total{{{_MERGE}}}[$__rate_interval]))", "without effect"),
            width=6,
        )
    )


def _lanes(made: build.Dashboard) -> None:
    made.with_panel(
        states(
            "Lanes",
            "Whether each lane runs; no bar: nobody owns it.",
            Q(f"max by (lane) (lmerge_lane_running{{{_MERGE}}})", "lane {{lane}}"),
            {0: Shown("stalled", "red"), 1: Shown("runs", "green")},
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Lanes of each process",
            "How many lanes each process owns. The sum must be as many as have to run; if it is not, see the runbook "
            "recovering.",
            "none",
            Q(f"lmerge_lanes_owned{{{_MERGE}}}", "{{instance}}"),
            Q(f"max(lmerge_lanes{{{_MERGE}}})", "have to run"),
            width=8,
            height=6,
            steps=True,
        )
    )
    made.with_panel(
        lines(
            "Safe point age",
            "How far back a successor has to read. It must stay below the retention of the topics; an alert tells "
            "when it is half of that.",
            "s",
            Q(f"max by (lane) (lmerge_safe_point_age_seconds{{{_MERGE}}})", "lane {{lane}}"),
            limits={BOTTOM: "green", limit("retention_seconds") / 4: "orange", limit("retention_seconds") / 2: "red"},
            width=8,
            height=6,
        )
    )


def _work(made: build.Dashboard) -> None:
    made.with_panel(
        lines(
            "Transactions per second",
            "By outcome. Failed ones: see the runbook commits fail.",
            "ops",
            Q(f"sum by (outcome) (rate(lmerge_transactions_total{{{_MERGE}}}[$__rate_interval]))", "{{outcome}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Begun anew, in 5 minutes",
            "Commits and take-overs that failed, and loops that had to begin again. A broker's restart makes some; "
            "hundreds are a loop: see the runbook take-overs fail.",
            "none",
            Q(f"sum by (event) (increase(lmerge_failures_total{{{_MERGE}}}[5m]))", "{{event}}"),
            limits={BOTTOM: "green", 20: "red"},
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Take-overs, leaders and signals, in 5 minutes",
            "How often a lane was taken over, how often another input led, and how often a laggard was told to skip "
            "ahead.",
            "none",
            Q(f"sum(increase(lmerge_recovery_seconds_count{{{_MERGE}}}[5m]))", "take-overs"),
            Q(f"sum(increase(lmerge_leader_changes_total{{{_MERGE}}}[5m]))", "changes of the leader"),
            Q(f"sum(increase(lmerge_feedback_signals_total{{{_MERGE}}}[5m]))", "signals to laggards"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Longest take-over since the processes began",
            "From fencing to ready to read, at most. It grows with the live events and with what came since the safe "
            "point.",
            "s",
            Q(f"histogram_quantile(1, sum by (le) (lmerge_recovery_seconds_bucket{{{_MERGE}}}))", "longest, at most"),
            limits={BOTTOM: "green", 5: "orange", 60: "red"},
            width=6,
        )
    )
