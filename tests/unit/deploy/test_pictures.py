"""What is drawn of a dashboard: values in words and colours, repeated rows, what happened."""

import math
from typing import Any

import pytest

from deploy.grafana.ask import Series, substitute
from deploy.grafana.panels import BLIND
from deploy.grafana.values import COLOURS, Mark, in_words, marks, named, placed, scale, shown, spread
from tests.support.observability import dashboards, panels


class Answers:
    """Stands in for Prometheus: the same answer to every question."""

    def __init__(self, *answers: Series) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def now(self, expression: str, at: float | None = None) -> list[Series]:  # noqa: ARG002
        self.asked.append(expression)
        return self.answers

    def over(self, expression: str, *_: float) -> list[Series]:
        self.asked.append(expression)
        return self.answers


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12 ms"),
        (2.5, "s", "2.5 s"),
        (600, "s", "10.0 min"),
        (250, "ms", "250 ms"),
        (0.05, "percentunit", "5.00%"),
        (1_767_225_600_000, "dateTimeAsIso", "2026-01-01 00:00:00"),
        (5_242_880, "bytes", "5 MiB"),
        (12.34, "eps", "12.3 evt/s"),
        (12_345, "short", "12,345"),
        (-1, "none", "-1"),
    ],
)
def test_a_value_is_written_with_its_unit(value: float, unit: str, text: str) -> None:
    assert in_words(value, unit) == text


def test_a_value_is_coloured_by_the_last_limit_that_it_reaches() -> None:
    steps = [{"value": None, "color": "red"}, {"value": 0, "color": "orange"}, {"value": 1, "color": "green"}]
    defaults: dict[str, Any] = {"unit": "none", "thresholds": {"steps": steps}}
    assert [shown(value, defaults)[1] for value in (-1, 0, 2)] == [COLOURS["red"], COLOURS["orange"], COLOURS["green"]]
    words = {"type": "value", "options": {"0": {"text": "stalled", "color": "red"}}}
    assert shown(0, {**defaults, "mappings": [words]}) == ("stalled", COLOURS["red"])


def test_what_is_no_number_is_grey() -> None:
    panel = next(panel for panel in panels(dashboards()["overview.json"]) if panel["title"] == "Latency, p99")
    assert shown(math.nan, panel["fieldConfig"]["defaults"]) == ("no answer", BLIND)


@pytest.mark.parametrize(
    ("unit", "highest", "value", "text"),
    [
        ("s", 0.4, 0.2, "200 ms"),
        ("s", 250, 0.5, "0.5 s"),
        ("s", 1_200, 30, "0.5 min"),
        ("ms", 900, 50, "50 ms"),
        ("ms", 2_000, 50, "0.05 s"),
        ("bytes", 5_242_880, 524_288, "0.5 MiB"),
        ("eps", 4_000, 2_000, "2,000 evt/s"),
        ("percentunit", 1, 0.2, "20 %"),
        ("none", 3, 2, "2"),
    ],
)
def test_an_axis_has_the_unit_of_its_highest_value(unit: str, highest: float, value: float, text: str) -> None:
    assert scale(unit, highest).write(value) == text


def test_words_are_moved_apart_and_stay_inside() -> None:
    assert spread([], 10, 0, 100) == []
    assert spread([50, 52, 80], 10, 0, 100) == [50, 60, 80]
    assert spread([1, 2], 10, 0, 100) == [10, 20]
    assert spread([90, 98, 99], 10, 0, 100) == [80, 90, 100]


def test_variables_are_put_in_and_what_is_not_given_matches_everything() -> None:
    asked = 'x{merge="$merge", input=~"$input"}[$__rate_interval]'
    assert substitute(asked, merge="m") == 'x{merge="m", input=~".*"}[1m]'


def test_an_answer_is_called_by_its_labels() -> None:
    assert named("{{input}}, lane {{lane}}", Series({"input": "r1", "lane": "0"}, [])) == "r1, lane 0"


def test_a_row_is_repeated_for_each_input_and_none_overlaps() -> None:
    answers = Answers(Series({"input": "r2"}, [(0, 1)]), Series({"input": "r1"}, [(0, 1)]))
    found = list(placed(dashboards()["inputs.json"], answers, 0, {"merge": "m"}))  # type: ignore[arg-type]
    states = [each for each in found if each.panel["title"] == "State"]
    assert [each.values["input"] for each in states] == ["r1", "r2"]
    assert states[1].row - states[0].row == 6  # a heading and five rows of panels
    assert answers.asked == ['count by (input) (lmerge_input_joined{merge="m"})']


def test_what_goes_on_for_a_while_is_marked_once() -> None:
    answers = Answers(Series({"instance": "r1"}, [(10, 1), (11, 1), (12, 1), (30, 1)]))
    one = {"expr": "gone", "iconColor": "red", "textFormat": "{{instance}} is gone"}
    found = marks({"annotations": {"list": [one]}}, answers, (0, 60), {})  # type: ignore[arg-type]
    assert found == [Mark(10, "red", "r1 is gone"), Mark(30, "red", "r1 is gone")]
    later = marks({"annotations": {"list": [one]}}, answers, (10, 60), {})  # type: ignore[arg-type]
    assert later == [Mark(30, "red", "r1 is gone")]
