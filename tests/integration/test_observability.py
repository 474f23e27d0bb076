"""A real Prometheus scrapes a real stack: every panel, rule and alert is asked of it, and alerts are provoked."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.grafana.ask import Asker, substitute
from deploy.grafana.pictures import draw_all
from deploy.local import prometheus
from deploy.local.errors import StackError
from lmerge.kafka import KafkaSettings
from tests.integration.conftest import Figure
from tests.support.live_stack import LiveStack
from tests.support.observability import dashboards, queries, rules
from tests.support.replica import wait_seldom

DEADLINE = 120
ALERTS = {rule.name: rule.expression for rule in rules() if rule.is_alert}
RECORDED = [rule.name for rule in rules() if not rule.is_alert]
QUERIES = [query for dashboard in dashboards().values() for query in queries(dashboard)]

WHILE_IT_RUNS = {
    "LMergeOutputStalled",
    "LMergeRedundancyLost",
    "LMergeInputsDiverging",
    "LMergeInputQuarantined",
    "LMergeInputLagging",
    "LMergeInputSilent",
    "LMergeLateRows",
}
"""Alerts whose condition holds in the stack of this test."""

WHEN_IT_DIES = {"LMergeServiceDown", "LMergeHeartbeatsStalled", "LMergeStandbyLost"}


class Live:
    """A stack, its Prometheus, and waiting for what that knows."""

    def __init__(self, stack: LiveStack, asker: Asker) -> None:
        self.stack = stack
        self.asker = asker

    def has_data(self, expression: str) -> bool:
        """Tell whether a question has an answer with a number, for one of the merges."""
        for merge in (self.stack.merge, self.stack.trouble):
            asked = substitute(expression, merge=merge, feed=self.stack.feed)
            if any(not math.isnan(series.last) for series in self.asker.now(asked)):
                return True
        return False

    def wait_for_data(self, *expressions: str) -> None:
        """Wait until all questions have answers; what was answered once is not asked again."""
        left = list(expressions)

        def is_all() -> bool:
            self.stack.tick()
            left[:] = [expression for expression in left if not self.has_data(expression)]
            return not left

        self.wait(is_all, lambda: f"these have no data: {left}")

    def wait(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait for a condition; say at the end what was missing."""
        try:
            wait_seldom(condition, "", seconds=DEADLINE)
        except AssertionError:
            pytest.fail(what())


@pytest.fixture(scope="module")
def live(bootstrap_servers: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    try:
        prometheus.find("prometheus")
    except StackError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("live")
    with LiveStack(KafkaSettings(bootstrap_servers), spark, directory) as stack, Asker(stack.prometheus.url) as asker:
        made = Live(stack, asker)
        made.wait_for_data(f'sum(lmerge_input_joined{{merge="{stack.trouble}"}}) == 5')
        stack.get_worse()
        yield made


@pytest.mark.timeout(400)
def test_everything_that_is_asked_has_an_answer(live: Live, figure: Figure) -> None:
    """But for what asks who is gone: nobody is, yet. An alert without an answer is one that does not fire."""
    gone = [query.expression for query in QUERIES if "lmerge_gone" in query.expression]
    asked = {query.expression for query in QUERIES if query.expression not in gone}
    recorded = [name for name in RECORDED if "lmerge_gone" not in name]
    live.wait_for_data(*asked, *recorded)
    for expression in (*gone, *ALERTS.values()):
        live.asker.now(substitute(expression, merge=live.stack.merge))  # refused if it is no PromQL
    figure(f"{len(asked)} questions of dashboards and {len(recorded)} recording rules have answers")


def test_alerts_are_provoked(live: Live, figure: Figure) -> None:
    live.wait_for_data(*(ALERTS[name] for name in WHILE_IT_RUNS))
    quick = {"LMergeInputsDiverging", "LMergeInputQuarantined"}  # the others wait for a minute or more
    live.wait(lambda: quick <= live.asker.firing(), lambda: f"these fire: {live.asker.firing()}")
    figure(f"{len(WHILE_IT_RUNS | WHEN_IT_DIES)} of {len(ALERTS)} alerts are provoked")


def test_every_dashboard_can_be_drawn(live: Live, tmp_path: Path) -> None:
    span = (time.time() - 60, time.time())
    files = draw_all(live.stack.prometheus.url, span, {"merge": live.stack.merge, "feed": live.stack.feed}, tmp_path)
    assert {file.stem for file in files} == {"overview", "inputs", "internals", "feeds"}
    assert all(file.stat().st_size > 20_000 for file in files), "an empty picture"


def test_processes_that_die_are_noticed(live: Live) -> None:
    """The last test: it leaves nothing running."""
    quiet = [name for name in WHEN_IT_DIES if not live.asker.now(ALERTS[name])]
    assert set(quiet) == WHEN_IT_DIES
    live.stack.service.remove_merges()  # services of other tests would run them
    live.stack.heartbeat.end(signal.SIGKILL)
    live.stack.service.end(signal.SIGKILL)
    (gone,) = {query.expression for query in QUERIES if "lmerge_gone" in query.expression}
    left = {ALERTS[name] for name in WHEN_IT_DIES}
    live.wait(lambda: all(live.asker.now(each) for each in left), lambda: f"one of these has no data: {left}")

    def named() -> set[str]:
        return {series.labels["instance"] for series in live.asker.now(gone)}

    live.wait(lambda: named() >= {"merge-1", "heartbeat-1"}, lambda: f"only these are marked as gone: {named()}")
