"""*Inputs*: one row per replica: stable, lag, rate, state, feedback."""

from grafana_foundation_sdk.builders import dashboard as build

from deploy.grafana.frame import STATES, frame, input_choice
from deploy.grafana.panels import BEHIND, BOTTOM, Column, Q, lines, number, rows, states

_ALL = 'merge="$merge", input=~"$input"'


def inputs() -> build.Dashboard:
    """Return the dashboard: a table and the states of all, then the same panels for each input."""
    made = frame("lmerge-inputs", "LMerge: inputs", "What each input of a merge says, and how far it is.")
    made.with_variable(input_choice())
    made.with_panel(
        rows(
            "Inputs",
            "One row an input, over all its lanes. Stable and lag are application time; told and skipped count signals "
            "and skips since the processes began.",
            ("input",),
            [
                Column("state", f"max by (input) (merge_input:lmerge_input_state:max{{{_ALL}}})", "none", STATES),
                Column("leads lanes", f"sum by (input) (lmerge_input_leads{{{_ALL}}})", "none"),
                Column("stable", f"min by (input) (lmerge_input_stable_milliseconds{{{_ALL}}})", "dateTimeAsIso"),
                Column("lag", f"max by (input) (merge_input:lmerge_input_lag_seconds:max{{{_ALL}}})", "s"),
                Column("rate", f"sum by (input) (merge_input:lmerge_elements_in:rate1m{{{_ALL}}})", "eps"),
                Column("told to skip", f"sum by (input) ({_happened('fast-forward')})", "none"),
                Column("has skipped", f"sum by (input) ({_happened('skipped')})", "none"),
            ],
        )
    )
    made.with_panel(
        states(
            "State of each input",
            "The worst state over its lanes.",
            Q(f"merge_input:lmerge_input_state:max{{{_ALL}}}", "{{input}}"),
            STATES,
            height=5,
        )
    )
    made.with_row(build.Row("Input $input").repeat("input"))
    return _each_over_time(_each(made))


def _happened(kind: str) -> str:
    """Ask how often something happened; an input to which it never did has 0, as it has a lag or none."""
    return f'lmerge_input_happenings_total{{{_ALL}, kind="{kind}"}} or lmerge_input_joined{{{_ALL}}} * 0'


def _each(made: build.Dashboard) -> build.Dashboard:
    """Add the panels that are repeated for each input: where it is."""
    return (
        made.with_panel(
            number(
                "State",
                "Its worst state over its lanes.",
                "none",
                Q(f"max(merge_input:lmerge_input_state:max{{{_ALL}}})", "state"),
                words=STATES,
                nothing="not attached",
            )
        )
        .with_panel(
            number(
                "Stable",
                "Up to where it calls everything final, in application time, in its slowest lane.",
                "dateTimeAsIso",
                Q(f"min(lmerge_input_stable_milliseconds{{{_ALL}}})", "stable"),
                limits={BOTTOM: "blue"},
                nothing="none yet",
                width=4,
            )
        )
        .with_panel(
            lines(
                "Lag",
                "How far its stable is behind the merged one, in application time. The leader has 0.",
                "s",
                Q(f"lmerge_input_lag_milliseconds{{{_ALL}}} / 1000", "lane {{lane}}"),
                limits=BEHIND,
                width=5,
                height=5,
            )
        )
    )


def _each_over_time(made: build.Dashboard) -> build.Dashboard:
    """Add the rest of them: what it says, and what it is told."""
    return (
        made.with_panel(
            lines(
                "Elements",
                "What it delivers per second, by kind.",
                "eps",
                Q(f"sum by (kind) (rate(lmerge_elements_in_total{{{_ALL}}}[$__rate_interval]))", "{{kind}}"),
                width=4,
                height=5,
            )
        )
        .with_panel(
            lines(
                "Without effect",
                "Elements per second that changed nothing, by reason. frozen and behind are what any follower has; "
                "late_insert is as bad as a contradiction.",
                "eps",
                Q(
                    f"sum by (reason) (rate(lmerge_elements_dropped_total{{{_ALL}}}[$__rate_interval]))",
                    "{{reason}}",
                ),
                width=4,
                height=5,
            )
        )
        .with_panel(
            lines(
                "Feedback",
                "How often it was told to skip ahead, and how often it did, since the processes began.",
                "none",
                Q(f"sum({_happened('fast-forward')})", "told to skip"),
                Q(f"sum({_happened('skipped')})", "has skipped"),
                width=4,
                height=5,
                steps=True,
            )
        )
    )
