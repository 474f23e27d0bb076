"""Client settings: what is passed through, what is refused, what is never shown."""

import pickle

import pytest

from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, Refused, TailReader, TopicAdmin, TopicSpec, TransactionalWriter

LOGIN = {"security.protocol": "SASL_SSL", "sasl.username": "someone", "sasl.password": "open sesame"}


def test_tls_and_sasl_reach_every_client() -> None:
    settings = KafkaSettings("one:1", client=LOGIN)
    for config in (settings.admin(), settings.producer("id"), settings.tail(), settings.consumer("group")):
        assert config.items() >= {**LOGIN, "bootstrap.servers": "one:1"}.items()


def test_defaults_can_be_tuned() -> None:
    settings = KafkaSettings("one:1", client={"fetch.wait.max.ms": 7, "log_level": 6})
    assert settings.tail()["fetch.wait.max.ms"] == settings.consumer("group")["fetch.wait.max.ms"] == 7
    assert settings.admin()["log_level"] == 6


def test_readers_read_what_is_committed_and_never_jump() -> None:
    settings = KafkaSettings("one:1")
    for config in (settings.tail(), settings.consumer("group")):
        assert config["isolation.level"] == "read_committed"
        assert config["auto.offset.reset"] == "error"
        assert config["enable.auto.commit"] is False
        assert config["enable.partition.eof"] is True
    assert settings.consumer("group")["group.id"] == "group"


def test_a_producer_takes_whatever_a_topic_does() -> None:
    assert KafkaSettings("one:1").max_message_bytes > 1_048_588, "what brokers take by default"
    tuned = KafkaSettings("one:1", client={"message.max.bytes": "20000000"})
    assert int(tuned.producer("id")["message.max.bytes"]) == tuned.max_message_bytes == 20_000_000


def test_producers_are_transactional() -> None:
    config = KafkaSettings("one:1", transaction_timeout_ms=5_000).producer("m/0")
    assert config["transactional.id"] == "m/0"
    assert config["transaction.timeout.ms"] == 5_000
    assert config["enable.idempotence"] is True


@pytest.mark.parametrize(
    "name",
    [
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "default.topic.config",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.partition.eof",
        "error_cb",
        "group.id",
        "isolation.level",
        "message.timeout.ms",
        "on_delivery",
        "request.required.acks",
        "test.mock.num.brokers",
        "transaction.timeout.ms",
        "transactional.id",
    ],
)
def test_settings_that_are_not_the_users_are_refused_without_showing_their_value(name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' cannot be set") as caught:
        KafkaSettings("one:1", client={name: "open sesame"})
    assert "sesame" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    settings = KafkaSettings("one:1", client=LOGIN)
    assert repr(settings) == "KafkaSettings('one:1', client=<sasl.password, sasl.username, security.protocol>)"
    assert "sesame" not in f"{settings} {settings!r} {[settings]}"


def test_settings_travel_to_spark_workers() -> None:
    settings = KafkaSettings("one:1", client=LOGIN, transaction_timeout_ms=5_000)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes


@pytest.mark.parametrize("servers", ["", "  "])
def test_servers_are_needed(servers: str) -> None:
    with pytest.raises(UsageError, match="no bootstrap servers"):
        KafkaSettings(servers)


@pytest.mark.parametrize("timeout", [0, 999, 900_001])
def test_the_transaction_timeout_is_one_that_brokers_allow(timeout: int) -> None:
    with pytest.raises(UsageError, match=f"transaction_timeout_ms {timeout}"):
        KafkaSettings("one:1", transaction_timeout_ms=timeout)


def test_a_setting_that_the_client_library_does_not_know_is_refused_when_a_client_is_made() -> None:
    settings = KafkaSettings("one:1", client={"nonsense": "1"})
    with pytest.raises(Refused, match=r"writer 'm/0'.*nonsense"):
        TransactionalWriter(settings, "m/0")
    with pytest.raises(Refused, match=r"reader.*nonsense"):
        TailReader(settings)
    with pytest.raises(Refused, match=r"topic client.*nonsense"):
        TopicAdmin(settings)


def test_a_topic_has_a_partition() -> None:
    with pytest.raises(UsageError, match="topic t: 0 partitions"):
        TopicSpec("t", partitions=0)
