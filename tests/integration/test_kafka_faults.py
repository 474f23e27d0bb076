"""Brokers that die, and brokers that are not there."""

import socket
import time
import uuid
from collections.abc import Iterator

import pytest

from deploy.local import LocalStack
from lmerge.kafka import (
    BrokerError,
    KafkaSettings,
    RebuildError,
    Refused,
    RetryError,
    TailReader,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
)
from tests.support.kafka import numbered, values


@pytest.fixture
def mortal() -> Iterator[LocalStack]:
    """A broker of our own, to be killed."""
    with LocalStack() as stack:
        yield stack


@pytest.fixture
def topic(mortal: LocalStack) -> str:
    name = f"faults-{uuid.uuid4().hex}"
    TopicAdmin(KafkaSettings(mortal.bootstrap_servers)).ensure(TopicSpec(name, partitions=2))
    return name


def test_after_a_killed_broker_a_patient_writer_goes_on_and_a_hasty_one_rebuilds(
    mortal: LocalStack, topic: str
) -> None:
    patient = KafkaSettings(mortal.bootstrap_servers, transaction_timeout_ms=120_000)  # longer than any restart
    hasty = KafkaSettings(mortal.bootstrap_servers, transaction_timeout_ms=3_000)
    with (
        TransactionalWriter(patient, f"{topic}/0") as goes_on,
        TransactionalWriter(hasty, f"{topic}/1") as gives_up,
        TailReader(patient, timeout_seconds=60) as reader,
    ):
        goes_on.fence()
        gives_up.fence()
        with goes_on.transaction():
            goes_on.write(topic, 0, numbered(100))
            goes_on.write(topic, 1, numbered(100))
        for partition in (0, 1):
            # A broker that is killed before the decision reached the partition may lose it (KAFKA-20734).
            reader.require_decided(topic, partition)
        for partition, writer in enumerate((goes_on, gives_up)):
            writer.begin()
            writer.write(topic, partition, numbered(100, first=100))
        mortal.kill()
        goes_on.write(topic, 0, numbered(100, first=200))
        begun = time.monotonic()
        with pytest.raises(RebuildError, match=f"'{topic}/1' cannot commit.*read the tail"):
            gives_up.commit()
        assert time.monotonic() - begun < 60  # bounded
        mortal.restart()

        goes_on.commit()
        with goes_on.transaction():
            goes_on.write(topic, 0, numbered(100, first=300))
        with TransactionalWriter(hasty, f"{topic}/1") as rebuilt:
            rebuilt.fence()
            reader.require_decided(topic, 1)
            tail = reader.read_tail(topic, 1)
            assert tail is not None
            assert tail.value in {b"99", b"199"}  # by what the topic holds, not by what the commit said
            if tail.value == b"99":
                with rebuilt.transaction():
                    rebuilt.write(topic, 1, numbered(100, first=100))
        assert values(patient, topic, 0) == [value for _, value in numbered(400)]
        assert values(patient, topic, 1) == [value for _, value in numbered(200)]


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens: bound, so that nobody else takes it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def failures(settings: KafkaSettings) -> Iterator[BrokerError]:
    """Fail once with each client."""
    with TransactionalWriter(settings, "nobody") as writer, TailReader(settings, timeout_seconds=0.5) as reader:
        with pytest.raises(BrokerError) as caught:
            writer.fence(timeout_seconds=0.5)
        yield caught.value
        with pytest.raises(BrokerError) as caught:
            reader.read_tail("topic", 0)
        yield caught.value
    admin = TopicAdmin(settings, timeout_seconds=0.5)
    with pytest.raises(BrokerError) as caught:
        admin.ensure(TopicSpec("topic", partitions=1))
    yield caught.value
    with pytest.raises(BrokerError) as caught:
        admin.describe("topic")
    yield caught.value


def test_servers_that_do_not_answer_are_named_in_good_time(nobody: str) -> None:
    begun = time.monotonic()
    for error in failures(KafkaSettings(nobody)):
        assert isinstance(error, RetryError)
        assert nobody in str(error)
        assert "Connection refused" in str(error)
    assert time.monotonic() - begun < 60  # bounded


def test_a_login_that_fails_is_refused_and_not_retried_for_ever(bootstrap_servers: str) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "someone",
        "sasl.password": "open sesame",
    }
    for error in failures(KafkaSettings(bootstrap_servers, client=login)):
        assert isinstance(error, Refused)
        assert bootstrap_servers in str(error)
        assert "SASL" in str(error)
        assert "sesame" not in str(error)
