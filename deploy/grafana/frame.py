"""What all dashboards share: their head, the variables, and the annotations of what happened to inputs."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.panels import DATASOURCE, Shown

STATES: Final = {
    0: Shown("joined", "green"),
    1: Shown("leads", "blue"),
    2: Shown("joining", "super-light-yellow"),
    3: Shown("paused", "purple"),
    4: Shown("lagging", "yellow"),
    5: Shown("silent", "orange"),
    6: Shown("gap", "red"),
    7: Shown("quarantined", "dark-red"),
}
"""What the numbers of the recording rule `merge_input:lmerge_input_state:max` say."""

_HAPPENED: Final = "merge_input_kind:lmerge_input_happenings:delta1m"


class Mark(model.AnnotationQuery):
    """An annotation with words of its own, which Prometheus' annotations have and the builder does not know."""

    def __init__(self, name: str, expr: str, colour: str, text: str) -> None:
        super().__init__(name=name, datasource=DATASOURCE, icon_color=colour, expr=expr)
        self._text = text

    def to_json(self) -> dict[str, object]:
        """Return what goes into the file."""
        return super().to_json() | {"titleFormat": self.name, "textFormat": self._text, "step": "5s"}


MARKS: Final = (
    Mark("attached", f'{_HAPPENED}{{merge="$merge", kind="attached"}}', "green", "{{input}} attached"),
    Mark("detached", f'{_HAPPENED}{{merge="$merge", kind="detached"}}', "blue", "{{input}} detached"),
    Mark("gone", "job_instance:lmerge_gone:1m", "red", "{{job}} {{instance}} is gone"),
    Mark(
        "feedback",
        f'{_HAPPENED}{{merge="$merge", kind=~"fast-forward|skipped"}}',
        "yellow",
        "{{input}}: {{kind}}",
    ),
    Mark(
        "trouble",
        f'{_HAPPENED}{{merge="$merge", kind=~"quarantined|gap|divergence"}}',
        "dark-red",
        "{{input}}: {{kind}}",
    ),
)


class Marked(build.Dashboard):
    """A dashboard whose annotations are `MARKS`."""

    def build(self) -> model.Dashboard:
        """Return the whole dashboard; panels get their numbers in the order in which they were added."""
        made = super().build()
        made.annotations = model.AnnotationContainer(list_val=list(MARKS))
        for place, panel in enumerate(made.panels or [], start=1):
            panel.id_val = place
        return made


def frame(uid: str, title: str, description: str) -> build.Dashboard:
    """Return a dashboard without panels: the last quarter of an hour, refreshed, with links to the others."""
    others = build.DashboardLink("LMerge").type(model.DashboardLinkType.DASHBOARDS).tags(["lmerge"])
    return (
        Marked(title)
        .uid(uid)
        .description(description)
        .tags(["lmerge"])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(others.as_dropdown(False).include_vars(True).keep_time(True))
        .with_variable(_choice("merge", "Merge", "label_values(lmerge_lanes_owned, merge)"))
    )


def feed_choice() -> build.QueryVariable:
    """Return the variable that chooses a feed."""
    return _choice("feed", "Feed", "label_values(lmerge_feed_owned, feed)")


def input_choice() -> build.QueryVariable:
    """Return the variable that chooses inputs of the merge; all of them unless told."""
    asked = 'label_values(lmerge_input_joined{merge="$merge"}, input)'
    return _choice("input", "Input", asked).multi(True).include_all(True).current(_all())


def replica_choice() -> build.QueryVariable:
    """Return the variable that chooses replicas of the merge; all of them unless told."""
    asked = 'label_values(lmerge_replica_incarnation{merge="$merge"}, replica)'
    return _choice("replica", "Replica", asked).multi(True).include_all(True).current(_all())


def _choice(name: str, label: str, asked: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .query(asked)
        .datasource(DATASOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )


def _all() -> model.VariableOption:
    return model.VariableOption(text=["All"], value=["$__all"])
