"""*Overview*: is the merged output alive and right, who leads, how many may die. One screen of a laptop."""

from grafana_foundation_sdk.builders import dashboard as build

from deploy.grafana.frame import STATES, feed_choice, frame
from deploy.grafana.panels import BEHIND, BOTTOM, SCREEN, Column, Q, Shown, lines, number, rows, states

_TAU = 'max(lmerge_feed_tau_milliseconds{feed="$feed"})'
_MERGED = 'min(merge:lmerge_stable_milliseconds:min{merge="$merge"})'

_NUMBERS = 3
_STATES = 6
_LINES = SCREEN - _NUMBERS - _STATES
"""Rows of the panels, from top to bottom: together one screen."""

_ALERT = ("alertname", "severity", "merge", "input", "lane", "feed", "source", "job", "instance")
"""What tells one alert from another: every label that an alert of ours may have."""


def overview() -> build.Dashboard:
    """Return the dashboard."""
    made = frame(
        "lmerge-overview", "LMerge: overview", "Is the merged output alive and right, who leads, how many may die."
    ).with_variable(feed_choice())
    for add in (_alive, _right, _who, _how_far):
        add(made)
    return made


def _alive(made: build.Dashboard) -> build.Dashboard:
    """Add the first half of the row of numbers: whether the output is there, and what it rests on."""
    return (
        made.with_panel(
            number(
                "Merged output",
                "Whether every lane runs. No owner: no process runs one of the lanes, see the runbook recovering. "
                "Stalled: no input can carry a lane on, see the runbook of the same name. Not begun: no input has "
                "spoken yet, or no process answers.",
                "none",
                Q('min(merge:lmerge_output_state:min{merge="$merge"})', "state"),
                words={-1: Shown("no owner", "red"), 0: Shown("stalled", "red"), 1: Shown("runs", "green")},
                limits={BOTTOM: "red", 1: "green"},
                nothing="not begun",
                height=_NUMBERS,
            )
        )
        .with_panel(
            number(
                "Inputs that may die",
                "How many inputs may die now without a gap in the output. 0: one replica carries everything. "
                "-1: a lane is stalled.",
                "none",
                Q('min(merge:lmerge_inputs_may_die:min{merge="$merge"})', "inputs"),
                limits={BOTTOM: "red", 0: "orange", 1: "green"},
                height=_NUMBERS,
            )
        )
        .with_panel(
            number(
                "Leads",
                "Whose stable the merged stable was last, in each lane. It changes all the time where inputs are "
                "equally quick.",
                "none",
                Q('max by (input) (lmerge_input_leads{merge="$merge"}) == 1', "{{input}}"),
                limits={BOTTOM: "blue"},
                nothing="nobody",
                name_only=True,
                height=_NUMBERS,
            )
        )
    )


def _right(made: build.Dashboard) -> build.Dashboard:
    """Add the second half: whether the output is right and in time."""
    return (
        made.with_panel(
            number(
                "Contradictions",
                "How often inputs contradicted each other about final events in the last 10 minutes. Above 0 the "
                "output cannot be right for all of them: see the runbook diverging.",
                "none",
                Q('round(max(merge:lmerge_contradictions:increase10m{merge="$merge"}))', "events"),
                limits={BOTTOM: "green", 1: "red"},
                height=_NUMBERS,
            )
        )
        .with_panel(
            number(
                "Behind the feed",
                "How far the merged stable is behind what the heartbeats promise, in application time. As long as a "
                "window is normal; growing is not.",
                "s",
                Q(f"({_TAU} - {_MERGED}) / 1000", "merged topic"),
                limits=BEHIND,
                height=_NUMBERS,
            )
        )
        .with_panel(
            number(
                "Latency, p99",
                "From Kafka's timestamp of the oldest record that waited to the commit of what was merged from it.",
                "s",
                Q('max(merge:lmerge_merge_latency_seconds:p99_1m{merge="$merge"})', "p99"),
                limits={BOTTOM: "green", 0.2: "orange", 1: "red"},
                height=_NUMBERS,
            )
        )
        .with_panel(
            number(
                "Elements out",
                "Merged elements per second, of all kinds.",
                "eps",
                Q('sum(merge_kind:lmerge_elements_out:rate1m{merge="$merge"})', "elements"),
                limits={BOTTOM: "red", 0.001: "green"},
                height=_NUMBERS,
            )
        )
        .with_panel(
            number(
                "Alerts",
                "How many alerts fire now; the table beside the states names them.",
                "none",
                Q('count(ALERTS{alertstate="firing"}) or vector(0)', "alerts"),
                limits={BOTTOM: "green", 1: "red"},
                height=_NUMBERS,
            )
        )
    )


def _who(made: build.Dashboard) -> build.Dashboard:
    """Add who leads and who is silent over time, and which alerts fire."""
    return made.with_panel(
        states(
            "State of each input",
            "The worst state over its lanes. A replica that was killed leads no more at once, and is silent 30 s "
            "later; its input stays until it is detached.",
            Q('merge_input:lmerge_input_state:max{merge="$merge"}', "{{input}}"),
            STATES,
            width=13,
            height=_STATES,
        )
    ).with_panel(
        rows(
            "Alerts that fire",
            "Each has a runbook in docs/operations.md.",
            _ALERT,
            [Column("number", f'sum by ({", ".join(_ALERT)}) (ALERTS{{alertstate="firing"}})', "none")],
            width=11,
            height=_STATES,
        )
    )


def _how_far(made: build.Dashboard) -> build.Dashboard:
    """Add how far the inputs and the output are, and how many inputs may die, over time."""
    inputs = 'min by (input) (lmerge_input_stable_milliseconds{merge="$merge"})'
    return (
        made.with_panel(
            lines(
                "Behind the feed, each input and the merged topic",
                "How far each stable is behind what the heartbeats promise, in application time. A dead input rises "
                "without end; the merged topic stays as low as its best input.",
                "s",
                Q(f"(scalar({_TAU}) - {inputs}) / 1000", "{{input}}"),
                Q(f"({_TAU} - {_MERGED}) / 1000", "merged topic"),
                limits=BEHIND,
                width=10,
                height=_LINES,
            )
        )
        .with_panel(
            lines(
                "Merged elements per second",
                "What consumers get. Many adjusts: inputs revise much, or the policy is eager.",
                "eps",
                Q('merge_kind:lmerge_elements_out:rate1m{merge="$merge"}', "{{kind}}"),
                width=7,
                height=_LINES,
            )
        )
        .with_panel(
            lines(
                "Inputs that may die",
                "The same number as above, over time. Red below 0: the output stands still.",
                "none",
                Q('min(merge:lmerge_inputs_may_die:min{merge="$merge"})', "may die"),
                limits={BOTTOM: "red", 0: "orange", 1: "green"},
                width=7,
                height=_LINES,
                least=-1,
                steps=True,
            )
        )
    )
