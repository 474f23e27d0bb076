"""The writer's states, and its local queue, as far as they need no broker."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from lmerge.errors import UsageError
from lmerge.kafka import Fenced, KafkaSettings, MissingTopic, RebuildError, RetryError, State, TransactionalWriter
from lmerge.kafka.edge import Edge
from lmerge.kafka.outbox import Deliveries, Outbox

NOBODY = KafkaSettings("127.0.0.1:1")


@pytest.mark.parametrize(
    "call",
    [
        lambda writer: writer.begin(),
        lambda writer: writer.write("topic", 0, [(None, b"")]),
        lambda writer: writer.commit(),
        lambda writer: writer.abort(),
        lambda writer: writer.transaction().__enter__(),
    ],
    ids=["begin", "write", "commit", "abort", "transaction"],
)
def test_a_writer_that_has_not_fenced_does_nothing(call: Callable[[TransactionalWriter], None]) -> None:
    with TransactionalWriter(NOBODY, "m/0") as writer, pytest.raises(UsageError, match=r"'m/0'.*call fence\(\) first"):
        call(writer)


def test_a_closed_writer_says_so() -> None:
    writer = TransactionalWriter(NOBODY, "m/0")
    writer.close()
    writer.close()
    assert repr(writer) == "TransactionalWriter('m/0', CLOSED)"
    with pytest.raises(UsageError, match="'m/0' cannot fence: it is closed"):
        writer.fence()


def test_a_writer_needs_an_id() -> None:
    with pytest.raises(UsageError, match="empty transactional id"):
        TransactionalWriter(NOBODY, "")


def test_fencing_can_be_tried_again_when_nobody_answers() -> None:
    with TransactionalWriter(NOBODY, "m/0") as writer:
        for _ in range(2):
            with pytest.raises(RetryError, match=r"'m/0' cannot fence.*127\.0\.0\.1:1"):
                writer.fence(timeout_seconds=0.1)
        assert writer.state is State.NEW


def error(name: str, **facts: bool) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), "words", **facts)


class Producer:
    """A producer whose queue takes a few records per poll, and that fails on demand."""

    def __init__(self, room: int, fails: Exception | None = None, fatal: KafkaError | None = None) -> None:
        self.size, self.room, self.fails, self.fatal = room, room, fails, fatal
        self.sent: list[tuple[bytes, Any]] = []

    def produce_batch(self, _topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        assert partition == 3
        taken, rest = messages[: self.room], messages[self.room :]
        for message in taken:
            assert set(message) == {"key", "value"}
        for message in rest:
            message["_error"] = error("_QUEUE_FULL")
        self.sent += [(message["value"], None) for message in taken]
        self.room -= len(taken)
        return len(taken)

    def produce(self, _topic: str, *, key: bytes, value: bytes, partition: int, headers: Any) -> None:
        assert (key, partition) == (b"k", 3)
        if not self.room:
            raise BufferError
        self.room -= 1
        self.sent.append((value, headers))

    def poll(self, _: float) -> None:
        if self.fails is not None:
            raise self.fails
        self.room = self.size

    def begin_transaction(self) -> None:
        if self.fatal is not None:
            raise KafkaException(self.fatal)


def put(producer: Producer, count: int, *, headers: bool = False, patience: float = 10) -> None:
    outbox = Outbox(producer, Edge("one:1"), Deliveries(), patience_seconds=patience)  # type: ignore[arg-type]
    messages = [{"key": b"k", "value": b"%d" % number} for number in range(count)]
    last = (("h", b"x"),) if headers else ()
    outbox.put("cannot write", topic="t", partition=3, messages=messages, last_headers=last)


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 20])
def test_a_full_queue_delays_and_loses_nothing(count: int, headers: bool) -> None:
    producer = Producer(room=3)
    put(producer, count, headers=headers and count > 0)
    assert [value for value, _ in producer.sent] == [b"%d" % number for number in range(count)]
    assert [value for value, with_headers in producer.sent if with_headers] == (
        [b"%d" % (count - 1)] if headers and count else []
    )


@pytest.mark.parametrize("headers", [False, True])
def test_a_queue_that_stays_full_is_given_up(headers: bool) -> None:
    with pytest.raises(RebuildError, match=r"queue stayed full for 0\.01 s"):
        put(Producer(room=0), 1, headers=headers, patience=0.01)


@pytest.mark.parametrize("fails", [KafkaException(error("_FATAL")), SystemError()], ids=["exception", "system error"])
def test_behind_a_fatal_error_is_its_reason(fails: Exception) -> None:
    with pytest.raises(Fenced, match=r"cannot write: words \(_FENCED\)"):
        put(Producer(room=3, fails=fails, fatal=error("_FENCED", fatal=True)), 1)


def test_a_fatal_error_without_a_reason_leaves_the_outcome_unknown() -> None:
    with pytest.raises(RebuildError):
        put(Producer(room=3, fails=SystemError()), 1)


def test_the_first_record_that_was_not_delivered_explains_the_failure() -> None:
    deliveries = Deliveries()
    outbox = Outbox(Producer(room=1), Edge("one:1"), deliveries, patience_seconds=1)  # type: ignore[arg-type]
    counted = error("_INCONSISTENT", txn_requires_abort=True)
    assert str(outbox.explain(counted, "cannot commit")).startswith("cannot commit: words (_INCONSISTENT)")
    deliveries.note(None, Message(topic="a", partition=0))
    deliveries.note(error("_PURGE_QUEUE"), Message(topic="b", partition=0))
    deliveries.note(error("_MSG_TIMED_OUT"), Message(topic="t", partition=7))
    deliveries.note(error("UNKNOWN_TOPIC_OR_PART"), Message(topic="late", partition=0))
    ours = outbox.explain(counted, "cannot commit")
    assert type(ours) is RebuildError
    assert "t/7 was not delivered" in str(ours)
    deliveries.failure = (error("UNKNOWN_TOPIC_OR_PART"), "nonesuch/0")
    assert type(outbox.explain(counted, "cannot commit")) is MissingTopic
    assert type(outbox.explain(error("_FENCED", fatal=True), "cannot commit")) is Fenced
