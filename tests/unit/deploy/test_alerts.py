"""Prometheus' configuration, rules and alerts: valid, each alert tried both ways, each with a runbook that exists."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.local import prometheus
from deploy.local.errors import StackError
from tests.support.observability import OWN, PROMETHEUS, ROOT, catalogue, names_in, read_yaml, rules

TESTS = sorted(PROMETHEUS.glob("tests/*.yml"))
ALERTS = [rule for rule in rules() if rule.is_alert]


@pytest.fixture(scope="session")
def promtool() -> Path:
    try:
        return prometheus.find("promtool")
    except StackError as error:
        pytest.skip(str(error))


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_is_valid(promtool: Path) -> None:
    assert "3 rule files found" in run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_only_then(promtool: Path, file: Path) -> None:
    run(promtool, "test", "rules", file)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases: dict[str, set[bool]] = {rule.name: set() for rule in ALERTS}
    for test in [test for file in TESTS for test in read_yaml(file)["tests"]]:
        for case in test.get("alert_rule_test", ()):
            assert test["name"].startswith(f"{case['alertname']}: ")
            cases[case["alertname"]].add(bool(case["exp_alerts"]))
    assert cases == {rule.name: {True, False} for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule.name)
def test_an_alert_says_what_it_means_and_where_its_runbook_is(rule: Any) -> None:
    annotations = rule.whole["annotations"]
    assert annotations["summary"]
    assert annotations["description"]
    assert rule.whole["labels"]["severity"] in {"critical", "warning"}
    page, _, anchor = annotations["runbook_url"].partition("#")
    assert f'<a id="{anchor}"></a>' in (ROOT / page).read_text()


def test_the_page_lists_every_alert_with_its_runbook() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    listed = dict(re.findall(r"^\| `(LMerge\w+)` \| .* \| \[[^]]+\]\(#([\w-]+)\) \|$", page, re.MULTILINE))
    assert listed == {rule.name: rule.whole["annotations"]["runbook_url"].partition("#")[2] for rule in ALERTS}


def test_rules_ask_for_metrics_that_are_promised() -> None:
    known = catalogue().keys() | OWN | {rule.name for rule in rules() if not rule.is_alert}
    for rule in rules():
        assert names_in(rule.expression) <= known, rule.name


def test_all_processes_of_the_compose_file_are_scraped() -> None:
    jobs = {job["job_name"]: job for job in read_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"]}
    listed = {
        job: sorted(target for file in sorted(PROMETHEUS.glob(pattern)) for target in read_yaml(file)[0]["targets"])
        for job, config in jobs.items()
        for pattern in config["file_sd_configs"][0]["files"]
    }
    assert listed == {
        "merge": ["merge-1:8080", "merge-2:8080"],
        "heartbeat": ["heartbeat-1:8081", "heartbeat-2:8081"],
        "replica": ["r1:8082", "r2:8082", "r3:8082"],
    }


def test_the_fourth_replica_of_the_compose_file_is_found_by_its_name_and_called_by_it() -> None:
    (job,) = [job for job in read_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"] if job["job_name"] == "replica"]
    (lookup,) = job["dns_sd_configs"]
    assert (lookup["names"], lookup["type"], lookup["port"]) == (["r4"], "A", 8082)
    (rule,) = job["relabel_configs"]
    assert (rule["source_labels"], rule["regex"]) == (["__meta_dns_name"], "(.+)")  # no match for what a file lists
    assert (rule["target_label"], rule["replacement"]) == ("instance", "$1:8082")
