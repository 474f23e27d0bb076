"""What alerts, recording rules and dashboards ask of Prometheus, read from the files that are deployed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import promql_parser
import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
OWN = frozenset({"up", "ALERTS"})
"""Series that Prometheus makes itself."""

_CATALOGUE = re.compile(r"^\| `(lmerge_\w+)` \| (\w+) \|", re.MULTILINE)
_PROCESS = re.compile(r"`(process_\w+)`")


class Rule(NamedTuple):
    """A rule of Prometheus: its name, what it asks, and all of it."""

    name: str
    expression: str
    is_alert: bool
    whole: dict[str, Any]


class Query(NamedTuple):
    """What one panel, annotation or variable asks."""

    dashboard: str
    where: str
    expression: str


def rules() -> list[Rule]:
    """Read all rules."""
    groups = [group for file in sorted(PROMETHEUS.glob("rules/*.yml")) for group in read_yaml(file)["groups"]]
    return [
        Rule(rule.get("alert") or rule["record"], rule["expr"], "alert" in rule, rule)
        for group in groups
        for rule in group["rules"]
    ]


def read_yaml(file: Path) -> Any:
    """Read a file of YAML."""
    return yaml.safe_load(file.read_text())


def dashboards() -> dict[str, Any]:
    """Read all dashboards, by file name."""
    return {file.name: msgspec.json.decode(file.read_bytes()) for file in sorted(GRAFANA.glob("dashboards/*.json"))}


def panels(dashboard: Any) -> Iterator[Any]:
    """Give the panels of a dashboard, those inside of rows too."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def queries(dashboard: Any) -> Iterator[Query]:
    """Give everything that a dashboard asks but for its variables."""
    title = dashboard["title"]
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Query(title, panel["title"], target["expr"])
    for annotation in annotations(dashboard):
        yield Query(title, annotation["name"], annotation["expr"])


def annotations(dashboard: Any) -> list[Any]:
    """Give the annotations of a dashboard that are ours."""
    return [each for each in dashboard["annotations"]["list"] if not each.get("builtIn")]


def catalogue() -> dict[str, str]:
    """Read which series docs/metrics.md promises, with their types; a histogram has three."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    found = dict.fromkeys(_PROCESS.findall(page), "gauge")
    for name, kind in _CATALOGUE.findall(page):
        if kind == "histogram":
            found |= dict.fromkeys((f"{name}_bucket", f"{name}_sum", f"{name}_count"), kind)
        else:
            found[name] = kind
    return found


def names_in(expression: str) -> set[str]:
    """Parse an expression, and give the names of the series that it asks for.

    Raises:
        ValueError: it is no PromQL.
    """
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name, f"a selector without a name in {expression}"
            found.add(node.name)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.update(names_in(node.vector_selector.prettify()))
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found
