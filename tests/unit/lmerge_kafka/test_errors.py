"""The table that sorts librdkafka's errors, and the edge that applies it."""

import pytest
from confluent_kafka import KafkaError, KafkaException

import lmerge.kafka
from lmerge.errors import LMergeError
from lmerge.kafka import (
    BrokerError,
    Fenced,
    MissingTopic,
    RebuildError,
    RecordsGone,
    Refused,
    RetryError,
    StopError,
    Undecided,
    WrongPartitions,
)
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import _CODES, translate


def error(name: str, text: str = "words", **facts: bool) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), text, **facts)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (error("_FENCED", fatal=True), Fenced),
        (error("PRODUCER_FENCED"), Fenced),
        (error("INVALID_PRODUCER_EPOCH", txn_requires_abort=True), Fenced),
        (error("_TIMED_OUT", retriable=True), RetryError),
        (error("_TIMED_OUT"), RetryError),
        (error("_TRANSPORT"), RetryError),
        (error("_DESTROY_BROKER"), RetryError),
        (error("COORDINATOR_LOAD_IN_PROGRESS", retriable=True), RetryError),
        (error("_STATE", retriable=True), RetryError),
        (error("_INCONSISTENT", txn_requires_abort=True), RebuildError),
        (error("NOT_ENOUGH_REPLICAS", txn_requires_abort=True), RebuildError),
        (error("MSG_SIZE_TOO_LARGE", txn_requires_abort=True), Refused),
        (error("TOPIC_AUTHORIZATION_FAILED", txn_requires_abort=True), Refused),
        (error("_AUTHENTICATION"), Refused),
        (error("_INVALID_ARG"), Refused),
        (error("UNKNOWN_TOPIC_OR_PART"), MissingTopic),
        (error("_UNKNOWN_PARTITION"), MissingTopic),
        (error("_AUTO_OFFSET_RESET"), RecordsGone),
        (error("_GAPLESS_GUARANTEE", fatal=True), StopError),
        (error("_STATE"), StopError),
    ],
    ids=lambda value: value.name() if isinstance(value, KafkaError) else value.__name__,
)
def test_each_error_is_sorted_by_what_to_do(failure: KafkaError, expected: type[BrokerError]) -> None:
    ours = translate(failure, "cannot do it")
    assert type(ours) is expected
    assert str(ours) == f"cannot do it: words ({failure.name()}); {expected.advice}"


def test_an_unknown_error_inside_a_transaction_leaves_the_outcome_unknown() -> None:
    assert type(translate(error("_STATE"), "", otherwise=RebuildError)) is RebuildError
    assert type(translate(error("_FENCED", fatal=True), "", otherwise=RebuildError)) is Fenced


def test_the_table_names_codes_that_exist_each_once() -> None:
    names = [name for names in _CODES.values() for name in names]
    assert len(names) == len(set(names))
    for name in names:
        assert error(name).name() == name


def test_every_class_belongs_to_one_of_the_three() -> None:
    assert issubclass(BrokerError, LMergeError)
    for leaf in (Fenced, MissingTopic, RecordsGone, Refused, Undecided, WrongPartitions):
        assert issubclass(leaf, StopError)
    for kind in (RetryError, RebuildError, StopError):
        assert kind.__mro__[1] is BrokerError


class Client:
    """Fails, and says why only when it is polled."""

    def __init__(self, edge: Edge, *reasons: KafkaError, raises: type[Exception] | None = None) -> None:
        self.edge, self.reasons, self.raises = edge, reasons, raises

    def poll(self, _: float) -> None:
        for reason in self.reasons:
            self.edge.note(reason)
        if self.raises is not None:
            raise self.raises

    def call(self, name: str = "_TRANSPORT") -> BrokerError:
        with pytest.raises(BrokerError) as caught, self.edge.calling("cannot call", self.poll):
            raise KafkaException(error(name))
        assert isinstance(caught.value.__cause__, KafkaException)
        return caught.value


def test_servers_that_do_not_answer_are_named_with_the_reason() -> None:
    edge = Edge("one:1,two:2")
    client = Client(edge, error("_RESOLVE", "no such host"), error("_ALL_BROKERS_DOWN", "2/2 down"))
    ours = client.call()
    assert type(ours) is RetryError
    assert str(ours).endswith("(servers one:1,two:2: no such host)")


def test_a_summary_is_better_than_nothing() -> None:
    assert "2/2 down" in str(Client(Edge("one:1"), error("_ALL_BROKERS_DOWN", "2/2 down")).call())
    assert str(Client(Edge("one:1")).call()).endswith("(servers one:1)")


def test_a_failed_login_is_refused_until_a_call_succeeds() -> None:
    edge = Edge("one:1")
    ours = Client(edge, error("_AUTHENTICATION", "wrong password")).call()
    assert type(ours) is Refused
    assert "wrong password" in str(ours)
    with edge.calling("", lambda _: None):
        pass
    assert type(Client(edge).call()) is RetryError


@pytest.mark.parametrize("raises", [KafkaException, SystemError])
def test_a_client_that_fails_while_it_is_polled_does_not_hide_the_failure(raises: type[Exception]) -> None:
    assert type(Client(Edge("one:1"), raises=raises).call("_FENCED")) is Fenced


def test_the_public_names_are_sorted_and_there() -> None:
    assert lmerge.kafka.__all__ == sorted(lmerge.kafka.__all__)
    assert all(hasattr(lmerge.kafka, name) for name in lmerge.kafka.__all__)
