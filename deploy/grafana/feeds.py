"""*Replicas and feeds*: Spark's progress, heartbeats, late rows."""

from grafana_foundation_sdk.builders import dashboard as build

from deploy.grafana.frame import feed_choice, frame, replica_choice
from deploy.grafana.limits import limit
from deploy.grafana.panels import BEHIND, BOTTOM, Column, Q, Shown, lines, number, rows, states

_FEED = 'feed="$feed"'
_REPLICA = 'merge="$merge", replica=~"$replica"'
_TAU = f"max(lmerge_feed_tau_milliseconds{{{_FEED}}})"


def feeds() -> build.Dashboard:
    """Return the dashboard."""
    made = frame(
        "lmerge-feeds", "LMerge: replicas and feeds", "What the replicas' Sparks do, and what their heartbeats promise."
    )
    made.with_variable(feed_choice()).with_variable(replica_choice())
    made.with_row(build.Row("Heartbeats of $feed"))
    _numbers(made)
    _heartbeats(made)
    made.with_row(build.Row("Rows of $feed"))
    _source_rows(made)
    made.with_row(build.Row("Replicas of $merge"))
    _replicas(made)
    _sparks(made)
    return made


def _numbers(made: build.Dashboard) -> None:
    made.with_panel(
        number(
            "Owners",
            "How many processes own the feed: 1. 0: nobody writes heartbeats, and all replicas wait.",
            "none",
            Q(f"sum(lmerge_feed_owned{{{_FEED}}})", "owners"),
            limits={BOTTOM: "red", 1: "green", 2: "orange"},
            width=6,
        )
    )
    made.with_panel(
        number(
            "Last heartbeat",
            "How old it is. One comes at least every 60 s, also while no rows do.",
            "s",
            Q(f"min(feed:lmerge_feed_heartbeat_age_seconds:min{{{_FEED}}})", "age"),
            limits={BOTTOM: "green", 60: "orange", limit("heartbeat_age_seconds"): "red"},
            width=6,
        )
    )
    made.with_panel(
        number(
            "Rows left out",
            "The share of rows of the last 10 minutes that do not count, of the worst source.",
            "percentunit",
            Q(f"max(feed_source:lmerge_feed_rows_left_out:ratio10m{{{_FEED}}})", "share"),
            limits={BOTTOM: "green", 0.001: "orange", limit("left_out_ratio"): "red"},
            width=6,
        )
    )
    made.with_panel(
        number(
            "Idle partitions",
            "Partitions that the promise does not wait for, by idle_ms. Above 0 progress rests on an assumption.",
            "none",
            Q(f"sum(lmerge_feed_idle_partitions{{{_FEED}}})", "partitions"),
            limits={BOTTOM: "green", 1: "orange"},
            width=6,
        )
    )


def _heartbeats(made: build.Dashboard) -> None:
    made.with_panel(
        lines(
            "Promise behind the newest row",
            "How far tau, and what each source allows by itself, is behind the largest timestamp, in application time: "
            "results are late by as much. The source with the largest holds the others.",
            "s",
            Q(f"(max(lmerge_feed_largest_milliseconds{{{_FEED}}}) - {_TAU}) / 1000", "tau"),
            Q(
                f"(scalar(max(lmerge_feed_largest_milliseconds{{{_FEED}}})) "
                f"- max by (source) (lmerge_feed_source_promise_milliseconds{{{_FEED}}})) / 1000",
                "{{source}}",
            ),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Heartbeats per second",
            "How many are written. One comes at least every 60 s, also while no rows do.",
            "none",
            Q(f"max(deriv(lmerge_feed_heartbeat_number{{{_FEED}}}[1m]))", "heartbeats"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Commit of a heartbeat",
            "How long its transaction takes at the median. Above 20 ms: the broker, or the way to it, is slow.",
            "s",
            Q(
                f"histogram_quantile(0.5, sum by (le) (rate(lmerge_feed_commit_seconds_bucket{{{_FEED}}}"
                "[$__rate_interval])))",
                "p50",
            ),
            limits={BOTTOM: "green", 0.1: "orange", 1: "red"},
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Take-overs and unsafe moves, in 5 minutes",
            "Owners that changed or failed, and heartbeats that a timeout or idleness has moved.",
            "none",
            Q(f"sum(increase(lmerge_feed_take_overs_total{{{_FEED}}}[5m]))", "take-overs"),
            Q(f"sum by (event) (increase(lmerge_feed_failures_total{{{_FEED}}}[5m]))", "{{event}}"),
            Q(f"sum by (rule) (increase(lmerge_feed_unsafe_moves_total{{{_FEED}}}[5m]))", "moved by {{rule}}"),
            width=6,
        )
    )


def _source_rows(made: build.Dashboard) -> None:
    made.with_panel(
        lines(
            "Rows per second",
            "What is read of each source, and what each replica has read.",
            "rowsps",
            Q(f"feed_source:lmerge_feed_rows:rate1m{{{_FEED}}}", "{{source}}"),
            Q(f"sum by (replica) (rate(lmerge_replica_rows_total{{{_REPLICA}}}[$__rate_interval]))", "by {{replica}}"),
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Rows left out per second",
            "Rows that do not count, by reason. late: below what was promised; late_after_idle: only because of "
            "idle_ms; early: ahead of the wall clock; unreadable: no timestamp. Copies not whole: no room "
            "for them in the topic of late rows.",
            "rowsps",
            Q(f"feed_source_reason:lmerge_feed_rows_left_out:rate1m{{{_FEED}}}", "{{source}} {{reason}}"),
            Q(f"sum(rate(lmerge_feed_copies_not_whole_total{{{_FEED}}}[$__rate_interval]))", "copies not whole"),
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Disorder seen",
            "How far a row was behind the largest earlier one of its partition, at most since the take-over. Above the "
            "source's disorder_ms rows were late; far below, the bound costs latency.",
            "ms",
            Q(f"max by (source) (lmerge_feed_disorder_milliseconds{{{_FEED}}})", "{{source}}"),
            width=8,
        )
    )


def _replicas(made: build.Dashboard) -> None:
    made.with_panel(
        rows(
            "Replicas",
            "One row a replica that answers. Batch age: since the process saw its last batch committed.",
            ("replica",),
            [
                Column("incarnation", f"max by (replica) (lmerge_replica_incarnation{{{_REPLICA}}})", "none"),
                Column("batch", f"max by (replica) (lmerge_replica_batch{{{_REPLICA}}})", "none"),
                Column(
                    "batch age",
                    f"min by (replica) (time() - lmerge_replica_batch_timestamp_seconds{{{_REPLICA}}})",
                    "s",
                ),
                Column("attached", f"max by (replica) (lmerge_replica_attached{{{_REPLICA}}})", "none"),
                Column("rows skipped", f"max by (replica) (lmerge_replica_skipped_rows{{{_REPLICA}}})", "short"),
                Column("malformed", f"sum by (replica) (lmerge_replica_malformed_rows_total{{{_REPLICA}}})", "short"),
                Column("dropped", f"sum by (replica) (lmerge_replica_dropped_rows_total{{{_REPLICA}}})", "short"),
            ],
            width=16,
            height=6,
        )
    )
    made.with_panel(
        states(
            "Processes that answer",
            "Whether Prometheus reaches each replica's process, of all merges. One that was killed stays here while it "
            "is listed, and has no row in the table. No bar: it is not listed.",
            Q('max by (instance) (up{job="replica"})', "{{instance}}"),
            {0: Shown("no answer", "red"), 1: Shown("answers", "green")},
            width=8,
        )
    )


def _sparks(made: build.Dashboard) -> None:
    made.with_panel(
        lines(
            "Batch, p95",
            "How long Spark takes for a batch. Above the time between heartbeats for long, batches grow.",
            "s",
            Q(
                f"histogram_quantile(0.95, sum by (le, replica) (rate(lmerge_replica_batch_seconds_bucket{{{_REPLICA}}}"
                "[$__rate_interval])))",
                "{{replica}}",
            ),
            limits={BOTTOM: "green", 2: "orange", 10: "red"},
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Written behind the promise",
            "How far the last stable that each replica has written is behind tau, in application time. Growing: it "
            "cannot keep up.",
            "s",
            Q(
                f"(scalar({_TAU}) - max by (replica) (lmerge_replica_stable_milliseconds{{{_REPLICA}}})) / 1000",
                "{{replica}}",
            ),
            limits=BEHIND,
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Rows in Spark's state",
            "After the last batch. Without end: windows do not close, since tau stands still.",
            "short",
            Q(f"max by (replica) (lmerge_replica_state_rows{{{_REPLICA}}})", "{{replica}}"),
            width=6,
        )
    )
    made.with_panel(
        lines(
            "Spark's state",
            "As Spark counts it; the JVM's own memory comes on top.",
            "bytes",
            Q(f"max by (replica) (lmerge_replica_state_bytes{{{_REPLICA}}})", "{{replica}}"),
            width=6,
        )
    )
