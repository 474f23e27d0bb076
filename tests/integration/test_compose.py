"""docker-compose.yml without an engine: its commands work as processes on this machine, and so do its health checks.

Grafana is not started here: there is no package of it. `make compose-trial` runs the file on a real engine.
"""

from collections.abc import Iterator

import pytest

from deploy.grafana.ask import Asker
from deploy.local import prometheus
from deploy.local.errors import StackError
from lmerge.kafka import KafkaSettings, TailReader
from tests.integration.conftest import Figure
from tests.support.compose import PROMETHEUS, ComposeProcesses, port_of
from tests.support.kafka import wait_until

SERVICES = ("workload", "heartbeat-1", "heartbeat-2", "merge-1", "merge-2")


@pytest.fixture(scope="module")
def replicas(long: bool) -> tuple[str, ...]:
    """One replica in the short run, as each is a Spark; all of the core in the long one."""
    return ("r1", "r2", "r3") if long else ("r2",)


@pytest.fixture(scope="module")
def stack(replicas: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProcesses]:
    with ComposeProcesses(tmp_path_factory.mktemp("compose")) as made:
        assert made.is_healthy("kafka")
        made.up(*SERVICES, *replicas)
        yield made


def merged_records(servers: str) -> int:
    """Count what is committed in the merged topic."""
    with TailReader(KafkaSettings(servers)) as reader:
        return sum(reader.watermarks("hot_items.merged", lane).end for lane in range(2))


def test_the_commands_of_the_file_make_a_stack_that_passes_its_own_smoke_test(
    stack: ComposeProcesses, replicas: tuple[str, ...], long: bool, figure: Figure
) -> None:
    """In the long run the fourth replica joins."""
    assert "defined merge hot_items" in stack.log("setup")
    said = stack.run("smoke", **{"3": str(len(replicas))})
    assert "hot_items.merged is right" in said
    figure(f"compose as processes: {said.splitlines()[-1]}, {merged_records(stack.bootstrap_servers)} records")
    if long:
        stack.up("r4")
        assert "4 inputs are joined" in stack.run("smoke", **{"3": "4"})


def test_prometheus_of_the_file_comes_up_healthy_and_reaches_every_process(
    stack: ComposeProcesses, replicas: tuple[str, ...]
) -> None:
    try:
        prometheus.find("prometheus")
    except StackError as error:
        pytest.skip(str(error))
    stack.up(PROMETHEUS)
    running = {f"{name}:{port}" for name in (*SERVICES, *replicas) if (port := port_of(stack.services[name]))}
    with Asker(stack.url(PROMETHEUS)) as asker:

        def reached() -> set[str]:
            return {series.labels["instance"] for series in asker.now("up == 1")}

        wait_until(lambda: reached() == running, f"Prometheus reaches {running}", seconds=30, every=0.5)


def test_a_replica_that_is_stopped_detaches(stack: ComposeProcesses, replicas: tuple[str, ...]) -> None:
    """The last test: what it stops is not started again."""
    assert stack.stop(replicas[0]) == 0
    assert "detached from" in stack.log(replicas[0])
