"""The local stack on real brokers: from the command line and from Python."""

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local import LocalStack, places
from deploy.local.ports import is_free
from deploy.local.probe import registered_nodes

_DEADLINE_SECONDS = 30.0


@pytest.fixture
def name() -> Iterator[str]:
    """A stack's name that nobody else uses; what a failed test leaves under it is removed."""
    name = f"test-{secrets.token_hex(4)}"
    yield name
    run_cli("stop", "--name", name)


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.local", *arguments]
    return subprocess.run(command, cwd=places.CHECKOUT, capture_output=True, text=True, check=False)


def create_topic(bootstrap_servers: str, topic: str, *, replication: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = NewTopic(topic, num_partitions=1, replication_factor=replication)
    admin.create_topics([new])[topic].result(timeout=_DEADLINE_SECONDS)


def commit(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(_DEADLINE_SECONDS)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(_DEADLINE_SECONDS)


def read_committed(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def test_cli_starts_beside_another_stack_survives_a_killed_broker_and_leaves_nothing(
    stack: LocalStack, name: str
) -> None:
    started = run_cli("start", "--name", name)
    assert started.returncode == 0, started.stderr
    own = LocalStack(name=name)
    servers = own.bootstrap_servers
    assert servers in started.stdout
    assert f"{name}: running, {servers}" in run_cli("status").stdout
    assert not own.layout.ports & stack.layout.ports
    assert registered_nodes(stack.brokers[0].node.port) == {1}

    create_topic(servers, "survivor")
    commit(servers, "survivor", [b"a", b"b"])
    assert read_committed(servers, "survivor", 2) == [b"a", b"b"]  # see LocalStack.kill
    own.kill()
    assert f"{name}: down" in run_cli("status").stdout
    stopped = run_cli("stop", "--name", name, "--keep-data")
    assert stopped.returncode == 0, stopped.stderr
    again = run_cli("start", "--name", name)
    assert again.returncode == 0, again.stderr
    assert own.bootstrap_servers == servers
    assert read_committed(servers, "survivor", 2) == [b"a", b"b"]

    own.kill()
    assert run_cli("stop", "--name", name).returncode == 0
    assert not own.directory.exists()
    assert name not in run_cli("status").stdout


def test_cli_names_a_port_that_is_taken(stack: LocalStack, name: str) -> None:
    port = stack.brokers[0].node.port
    refused = run_cli("start", "--name", name, "--port", str(port))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: port {port} is taken")
    assert "Traceback" not in refused.stderr
    assert not (places.RUN / name).exists()


def test_three_brokers_are_all_registered_once_started_and_gone_once_stopped() -> None:
    with LocalStack(brokers=3) as three:
        brokers = three.brokers
        assert [registered_nodes(broker.node.port) for broker in brokers] == [{1, 2, 3}] * 3
        create_topic(three.bootstrap_servers, "replicated", replication=3)
    assert not three.directory.exists()
    assert [broker.pid for broker in brokers] == [None, None, None]
    assert all(is_free(port) for broker in brokers for port in broker.node.ports)
