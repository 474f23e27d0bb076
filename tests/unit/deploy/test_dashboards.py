"""The dashboards: as the code makes them, whole, and about metrics that exist."""

import re
from typing import Any

import pytest

from deploy.grafana.ask import substitute
from deploy.grafana.generate import DASHBOARDS, generate
from deploy.grafana.limits import limit
from deploy.grafana.panels import BLIND, SCREEN
from tests.support.observability import (
    GRAFANA,
    OWN,
    PROMETHEUS,
    annotations,
    catalogue,
    dashboards,
    names_in,
    panels,
    queries,
    read_yaml,
    rules,
)

UNITS = {"none", "short", "s", "ms", "bytes", "eps", "ops", "rowsps", "percentunit", "dateTimeAsIso"}
"""Grafana's ids of units that we use; it takes an unknown one for a suffix, without a word."""

BUILT_IN = {"__rate_interval", "__all"}
VARIABLE = re.compile(r"\$\{?(\w+)")

ALL = dashboards()
every_dashboard = pytest.mark.parametrize("dashboard", ALL.values(), ids=ALL.keys())


def texts(value: Any) -> list[str]:
    """Give all texts in a piece of JSON."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in texts(each)]


def test_the_files_are_what_the_code_makes() -> None:
    files = {file.name: file.read_text() for file in DASHBOARDS.glob("*")}
    assert files == generate(), "run `make dashboards`"


def test_titles_and_uids_are_unique() -> None:
    assert len({dashboard["uid"] for dashboard in ALL.values()}) == len(ALL) == 4
    assert len({dashboard["title"] for dashboard in ALL.values()}) == len(ALL)


@every_dashboard
def test_every_panel_says_what_it_is(dashboard: Any) -> None:
    shown = list(panels(dashboard))
    assert len(shown) >= 8
    for panel in shown:
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert len(panel["description"]) > 10
        assert defaults["thresholds"]["steps"][0]["value"] is None, "the bottom"
        assert panel["targets"]
        units = [defaults["unit"]] + [
            each["value"]
            for override in panel["fieldConfig"]["overrides"]
            for each in override["properties"]
            if each["id"] == "unit"
        ]
        assert set(units) <= UNITS, panel["title"]


def test_the_overview_is_one_screen_of_a_laptop() -> None:
    """With its alerts: who has to scroll does not see them."""
    places = [panel["gridPos"] for panel in ALL["overview.json"]["panels"]]
    assert max(place["y"] + place["h"] for place in places) <= SCREEN


@pytest.mark.parametrize(
    ("file", "title", "value"),
    [
        ("overview.json", "Behind the feed", limit("lag_seconds")),
        ("overview.json", "Behind the feed, each input and the merged topic", limit("lag_seconds")),
        ("inputs.json", "Lag", limit("lag_seconds")),
        ("feeds.json", "Written behind the promise", limit("lag_seconds")),
        ("feeds.json", "Last heartbeat", limit("heartbeat_age_seconds")),
        ("feeds.json", "Rows left out", limit("left_out_ratio")),
        ("internals.json", "Safe point age", limit("retention_seconds") * 0.5),
    ],
)
def test_a_panel_is_red_from_where_its_alert_fires(file: str, title: str, value: float) -> None:
    (panel,) = [panel for panel in panels(ALL[file]) if panel["title"] == title]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["color"] for step in steps] == ["green", "orange", "red"]
    assert steps[-1]["value"] == value
    if panel["type"] == "timeseries":
        assert panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"] == "dashed"


LIMITED = {
    "overview.json": {
        *("Merged output", "Inputs that may die", "Contradictions", "Latency, p99", "Elements out", "Alerts"),
    },
    "internals.json": {
        *("Merge latency", "Commit", "Output gap", "Processor", "Begun anew, in 5 minutes"),
        "Longest take-over since the processes began",
    },
    "feeds.json": {"Owners", "Idle partitions", "Commit of a heartbeat", "Batch, p95"},
}
"""Further panels whose colour says whether it is well."""


@pytest.mark.parametrize("file", LIMITED)
def test_a_panel_that_says_whether_it_is_well_has_a_limit(file: str) -> None:
    shown = [panel for panel in panels(ALL[file]) if panel["title"] in LIMITED[file]]
    assert {panel["title"] for panel in shown} == LIMITED[file]
    for panel in shown:
        assert len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1, panel["title"]


def test_a_replica_that_does_not_answer_is_shown() -> None:
    """Its own metrics are gone, and its row of the table with them: only Prometheus knows of it."""
    (panel,) = [panel for panel in panels(ALL["feeds.json"]) if panel["title"] == "Processes that answer"]
    (target,) = panel["targets"]
    assert target["expr"] == 'max by (instance) (up{job="replica"})'
    (words,) = panel["fieldConfig"]["defaults"]["mappings"]
    assert words["options"]["0"]["color"] == "red"


@every_dashboard
def test_a_time_is_drawn_as_one_and_not_among_counts(dashboard: Any) -> None:
    for panel in panels(dashboard):
        times = [
            any(name.endswith("_seconds_bucket") for name in names_in(substitute(target["expr"])))
            for target in panel["targets"]
        ]
        if any(times):
            assert all(times), panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"] == "s", panel["title"]


@every_dashboard
def test_numbers_and_tables_are_of_now_and_the_rest_is_over_time(dashboard: Any) -> None:
    for panel in panels(dashboard):
        of_now = panel["type"] in {"stat", "table"}
        assert all((target["instant"], target["range"]) == (of_now, not of_now) for target in panel["targets"])


@every_dashboard
def test_a_number_is_grey_where_there_is_no_answer(dashboard: Any) -> None:
    """Grafana shows the colour of the bottom otherwise, which is often green."""
    for panel in [panel for panel in panels(dashboard) if panel["type"] == "stat"]:
        special = panel["fieldConfig"]["defaults"]["mappings"][-1]
        assert (special["type"], special["options"]["match"]) == ("special", "null+nan")
        assert special["options"]["result"]["color"] == BLIND
        assert special["options"]["result"]["text"] == panel["fieldConfig"]["defaults"]["noValue"]


def test_the_table_of_alerts_keeps_every_label_of_an_alert() -> None:
    (panel,) = [panel for panel in panels(ALL["overview.json"]) if panel["title"] == "Alerts that fire"]
    kept = set(re.findall(r"\w+", re.findall(r"by \((.*?)\)", panel["targets"][0]["expr"])[0]))
    cases = [
        case
        for file in PROMETHEUS.glob("tests/*.yml")
        for test in read_yaml(file)["tests"]
        for case in test.get("alert_rule_test", ())
    ]
    labels = {name for case in cases for alert in case["exp_alerts"] for name in alert["exp_labels"]}
    assert labels <= kept


@every_dashboard
def test_panels_do_not_overlap_and_fill_their_rows(dashboard: Any) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


@every_dashboard
def test_every_data_source_is_the_one_that_is_provisioned(dashboard: Any) -> None:
    (provisioned,) = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    expected = {"type": provisioned["type"], "uid": provisioned["uid"]}
    for panel in panels(dashboard):
        assert panel["datasource"] == expected
        assert all(target["datasource"] == expected for target in panel["targets"])
    assert all(each["datasource"] == expected for each in annotations(dashboard))
    assert all(each["datasource"] == expected for each in dashboard["templating"]["list"])


@every_dashboard
def test_every_variable_is_defined_and_used(dashboard: Any) -> None:
    defined = {each["name"] for each in dashboard["templating"]["list"]}
    used = {name for text in texts([dashboard["panels"], dashboard["annotations"]]) for name in VARIABLE.findall(text)}
    repeated = {panel["repeat"] for panel in dashboard["panels"] if panel.get("repeat")}
    assert (used | repeated) - BUILT_IN == defined


@every_dashboard
def test_every_expression_parses_and_asks_for_metrics_that_are_promised(dashboard: Any) -> None:
    known = catalogue().keys() | OWN | {rule.name for rule in rules() if not rule.is_alert}
    for query in queries(dashboard):
        assert names_in(substitute(query.expression)) <= known, query
    for variable in dashboard["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"])
        assert asked, variable["name"]
        assert names_in(substitute(asked[1])) <= known


@every_dashboard
def test_the_columns_of_a_table_have_the_same_labels(dashboard: Any) -> None:
    """Else Grafana cannot put them into one row."""
    for panel in panels(dashboard):
        if panel["type"] == "table":
            by = {re.match(r"(?:sum|min|max) by \(([\w, ]+)\) ", target["expr"])[1] for target in panel["targets"]}  # type: ignore[index]
            assert len(by) == 1, panel["title"]


@every_dashboard
def test_what_happens_to_inputs_is_marked(dashboard: Any) -> None:
    assert [each["name"] for each in annotations(dashboard)] == ["attached", "detached", "gone", "feedback", "trouble"]


def test_every_promised_metric_is_looked_at_but_for_details_of_a_skip() -> None:
    """A metric that no panel and no alert asks for is promised for nothing, or was forgotten here."""
    asked = [query.expression for dashboard in ALL.values() for query in queries(dashboard)]
    asked += [rule.expression for rule in rules()]
    seen = set().union(*(names_in(substitute(each)) for each in asked))
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in seen}
    promised = {re.sub("_(bucket|sum|count)$", "", name) for name in catalogue() if name.startswith("lmerge_")}
    assert promised - families == {"lmerge_replica_skipped_to_milliseconds", "lmerge_replica_skipped_cuts"}
