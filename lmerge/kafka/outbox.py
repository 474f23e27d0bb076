"""The local queue of a producer: filling it, and hearing what became of the records in it.

Not here: transactions and their states, which are the writer's.
"""

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import (
    BrokerError,
    RebuildError,
    StopError,
    is_consequence,
    is_masked_fatal,
    is_queue_full,
    translate,
)
from lmerge.kafka.record import Headers

_FULL_QUEUE_WAIT: Final = 0.005
"""Seconds between two attempts at a full queue; a broker takes thousands of records in this time."""


class Deliveries:
    """Remembers the first record of a transaction that was not delivered, and why; the commit only counts them."""

    def __init__(self) -> None:
        self.failure: tuple[KafkaError, str] | None = None

    def note(self, error: KafkaError | None, message: "Message[Any, Any]") -> None:
        """Take a delivery report; this is the producer's `on_delivery`."""
        if error is not None and self.failure is None and not is_consequence(error):
            self.failure = (error, f"{message.topic()}/{message.partition()}")


class Outbox:
    """Puts records into a producer's queue.

    Args:
        producer: a producer in a transaction.
        edge: its edge.
        deliveries: what its delivery reports go to.
        patience_seconds: how long to wait for a full queue.
    """

    def __init__(self, producer: Producer, edge: Edge, deliveries: Deliveries, *, patience_seconds: float) -> None:
        self._producer = producer
        self._edge = edge
        self._deliveries = deliveries
        self._patience_seconds = patience_seconds

    def put(
        self, fact: str, *, topic: str, partition: int, messages: list[dict[str, Any]], last_headers: Headers
    ) -> None:
        """Enqueue messages in order, the last one with headers.

        Raises:
            StopError: a record is too large, the partition does not exist, or the producer is fenced.
            RebuildError: the queue stayed full.
        """
        self._serve(fact, 0.0)
        # produce_batch takes a quarter of the time of produce, and drops headers without a word.
        last = messages.pop() if last_headers else None
        deadline = Deadline(self._patience_seconds)
        while messages:
            taken = self._producer.produce_batch(topic, messages, partition=partition)
            messages = self._not_taken(fact, messages, taken)
            if messages:
                self._wait_for_room(fact, deadline)
        while last is not None:
            try:
                self._producer.produce(topic, **last, partition=partition, headers=list(last_headers))
                last = None
            except BufferError:
                self._wait_for_room(fact, deadline)
            except KafkaException as failure:
                raise self.explain(failure.args[0], fact) from failure

    def explain(self, error: KafkaError, fact: str) -> BrokerError:
        """Make our error of librdkafka's, looking behind the two codes that do not name the cause."""
        if is_masked_fatal(error):
            error = self._fatal_error(error)
        ours = self._edge.translate(error, fact, otherwise=RebuildError)
        if not isinstance(ours, RebuildError) or self._deliveries.failure is None:
            return ours
        reason, where = self._deliveries.failure
        cause = translate(reason, f"{fact}: a record for {where} was not delivered", otherwise=RebuildError)
        # Time-outs of records are what a new writer heals; the commit itself did not happen.
        return cause if isinstance(cause, StopError) else RebuildError(f"{cause}; {ours}")

    def _not_taken(self, fact: str, messages: list[dict[str, Any]], taken: int) -> list[dict[str, Any]]:
        """Give the messages that found the queue full; produce_batch marks what it did not take with `_error`."""
        if taken == len(messages):
            return []
        errors = [message["_error"] for message in messages if "_error" in message]
        for error in errors:
            if not is_queue_full(error):
                raise self.explain(error, fact)
        rest = messages[taken:]
        for message in rest:
            del message["_error"]  # KeyError if what was not taken is no contiguous tail: order would be lost
        return rest

    def _wait_for_room(self, fact: str, deadline: Deadline) -> None:
        if deadline.passed:
            raise RebuildError(f"{fact}: the local queue stayed full for {deadline.seconds:g} s; {RebuildError.advice}")
        self._serve(fact, _FULL_QUEUE_WAIT)

    def _serve(self, fact: str, seconds: float) -> None:
        """Run the callbacks; a fatal error shows here first."""
        try:
            self._producer.poll(seconds)
        except KafkaException as failure:
            raise self.explain(failure.args[0], fact) from failure
        except SystemError as failure:
            # confluent-kafka sets the exception for a fatal error and runs the next callback on top of it.
            masked = KafkaError(KafkaError._FATAL)  # noqa: SLF001 - librdkafka's names for its own codes begin so
            raise self.explain(masked, fact) from failure

    def _fatal_error(self, masked: KafkaError) -> KafkaError:
        """Ask for the error behind `_FATAL`: begin_transaction is local and answers with it."""
        try:
            self._producer.begin_transaction()
        except KafkaException as failure:
            answer = failure.args[0]
            return answer if isinstance(answer, KafkaError) else masked
        return masked
