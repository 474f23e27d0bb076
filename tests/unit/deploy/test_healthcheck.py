"""The script of the containers' health checks against an address that is well, one that is not, and none."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.images import healthcheck
from deploy.local import ports
from lmerge.process.probes import Probes, Readiness

SCRIPT = Path(healthcheck.__file__)


def check(*url: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-IS", str(SCRIPT), *url], capture_output=True, text=True, check=False, timeout=30
    )


@pytest.fixture
def url() -> Iterator[str]:
    readiness = Readiness(is_ready=False, status="Spark starts")
    with Probes(ports.HOST, 0, registry=CollectorRegistry(), readiness=lambda: readiness) as probes:
        yield probes.url


def test_who_answers_200_is_healthy(url: str) -> None:
    done = check(f"{url}/healthz")
    assert (done.returncode, done.stdout) == (0, '200 {"status":"alive"}\n')


def test_who_is_not_ready_is_not_healthy_and_says_why(url: str) -> None:
    done = check(f"{url}/readyz")
    assert (done.returncode, done.stdout) == (1, '503 {"status":"Spark starts"}\n')


def test_where_nobody_listens_is_nobody_healthy() -> None:
    (port,) = ports.choose(1)
    done = check(f"http://{ports.HOST}:{port}/readyz")
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_who_has_no_address_is_healthy_while_it_runs() -> None:
    assert check().returncode == 0
