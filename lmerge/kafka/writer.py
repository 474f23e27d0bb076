"""A writer whose transactions are visible to read-committed readers as a whole or not at all.

    NEW ──fence──► READY ──begin──► OPEN ──commit──► READY
                                     │ ──abort───► READY
             a write failed, or a ──►│
             commit that must abort  ▼
                                   FAILED ──abort──► READY
    a commit or abort of unknown end, or fatal ──► BROKEN         (only close)

Fencing is by the transactional id alone: `fence()` ends whatever earlier writers with this id left open, makes all
they do later fail, and when it returns readers see past what was aborted. So a takeover fences *first* and reads
*then*; the other way round the old owner may commit in between.

Three things that Kafka does not do for its callers:

- An *empty* commit of a fenced writer succeeds, since no broker is asked. Put a record into every transaction whose
  success is to prove that this writer is still the owner.
- `begin` and `write` only fill a local queue. That the writer is fenced, a topic missing or a record too large shows
  in a later `write` or, at the latest, in `commit`.
- A broker that is set up to create topics creates a mistyped one when it is written to. Make topics by `TopicAdmin`,
  which never does that, and look at them before the first write.
"""

import enum
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeAlias

from confluent_kafka import KafkaException, Producer

from lmerge.errors import UsageError
from lmerge.kafka.closing import Closing
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import BrokerError, RebuildError, RetryError
from lmerge.kafka.outbox import Deliveries, Outbox
from lmerge.kafka.record import Headers
from lmerge.kafka.settings import KafkaSettings

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value of a record to be written."""

FENCE_SECONDS: Final = 30.0
"""A broker that has just started is loading its coordinator for seconds; `init_transactions` goes on trying."""

_CONNECT_SECONDS: Final = 0.05
"""Before its connection is up, librdkafka's first attempt to fence fails and the second comes 500 ms later. Waiting
this long first makes nine of ten fences take 60 ms."""

COMMIT_SHARE: Final = 0.8
"""How much of the transaction's timeout a commit or abort may take. After all of it the broker has decided itself."""


class State(enum.Enum):
    """Where a writer is in its life; the picture is at the top of this file."""

    NEW = "not fenced yet: call fence() first"
    READY = "outside of a transaction"
    OPEN = "in a transaction"
    FAILED = "in a transaction that failed: abort it"
    BROKEN = "broken: close it and make a new one"
    CLOSED = "closed"


class TransactionalWriter(Closing):
    """Writes records in transactions, one after the other, under one transactional id; for one thread.

    Make it a moment before it is needed, as it connects in the background, and keep it: a transaction by a kept writer
    takes 4 to 5 ms, a new writer 60 to 570 ms more.

    Args:
        settings: the cluster.
        transactional_id: the name under which there is one writer at a time.
    """

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        if not transactional_id:
            raise UsageError("empty transactional id: a writer needs a name to be fenced by")
        self.transactional_id = transactional_id
        self._commit_seconds = COMMIT_SHARE * settings.transaction_timeout_ms / 1000
        self._state = State.NEW
        self._edge = Edge(settings.bootstrap_servers)
        self._deliveries = Deliveries()
        callbacks = {"error_cb": self._edge.note, "on_delivery": self._deliveries.note}
        with self._edge.calling(self._cannot("be made"), lambda _: None):
            producer = Producer({**settings.producer(transactional_id), **callbacks})
        self._connecting = Deadline(_CONNECT_SECONDS)
        # Both None once closed.
        self._producer: Producer | None = producer
        timeout = settings.transaction_timeout_ms / 1000
        self._outbox: Outbox | None = Outbox(producer, self._edge, self._deliveries, patience_seconds=timeout)

    def __repr__(self) -> str:
        return f"TransactionalWriter({self.transactional_id!r}, {self._state.name})"

    @property
    def state(self) -> State:
        """Where this writer is in its life."""
        return self._state

    def fence(self, timeout_seconds: float = FENCE_SECONDS) -> None:
        """Become the only writer under this id: end what earlier ones left open, and shut them out.

        Raises:
            RetryError: not done in time; call it again, it goes on where it was.
            StopError: not allowed, or a still newer writer came in between.
            UsageError: done before; a writer fences once.
        """
        producer, _ = self._require("fence", State.NEW)
        deadline = Deadline(timeout_seconds)
        while True:
            try:
                with self._edge.calling(self._cannot("fence"), producer.poll):
                    producer.poll(self._connecting.left)
                    producer.init_transactions(deadline.slice())
            except RetryError:
                if deadline.passed:
                    raise
            else:
                self._state = State.READY
                return

    def begin(self) -> None:
        """Open a transaction; its timeout runs from the first record on.

        Raises:
            StopError: fenced (seldom noticed here).
            UsageError: not fenced yet, or already in a transaction.
        """
        producer, _ = self._require("begin", State.READY)
        self._deliveries.failure = None
        self._state = State.BROKEN
        with self._edge.calling(self._cannot("begin a transaction"), producer.poll):
            producer.begin_transaction()
        self._state = State.OPEN

    def write(self, topic: str, partition: int, records: Iterable[KeyValue], *, last_headers: Headers = ()) -> None:
        """Add records to the transaction, in this order.

        Waits while the local queue is full. When it raises, the transaction can only be aborted, as part of the
        records may be in it.

        Args:
            topic: where to.
            partition: which of its partitions; there is no partitioner here.
            records: key and value of each.
            last_headers: headers of the last record; on every one they would double the cost.

        Raises:
            StopError: a record too large, no such partition, or fenced.
            RebuildError: the queue did not empty within the transaction's timeout.
            UsageError: outside of a transaction, or headers without a record to carry them.
        """
        messages: list[dict[str, Any]] = [
            {"value": value} if key is None else {"key": key, "value": value} for key, value in records
        ]
        if last_headers and not messages:
            raise UsageError(f"headers without a record: nothing to write to {topic}/{partition}")
        self._put(topic, partition, messages, last_headers)

    def write_values(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        """Write records without keys, as `write` does, at less cost for each.

        Raises:
            StopError: as `write`.
            RebuildError: as `write`.
            UsageError: outside of a transaction.
        """
        self._put(topic, partition, [{"value": value} for value in values])

    def _put(self, topic: str, partition: int, messages: list[dict[str, Any]], last_headers: Headers = ()) -> None:
        _, outbox = self._require("write", State.OPEN)
        if partition < 0:
            raise UsageError(f"partition {partition} of topic {topic}: partitions are counted from 0")
        self._state = State.FAILED  # until all are taken: half of a batch must not be committed
        fact = self._cannot(f"write to {topic}/{partition}")
        outbox.put(fact, topic=topic, partition=partition, messages=messages, last_headers=last_headers)
        self._state = State.OPEN

    def commit(self) -> None:
        """Decide that the transaction becomes visible, durably.

        When it returns, the decision is stored; readers see the records some milliseconds later, when it has reached
        the partitions. (What `fence()` ended is visible or gone when that returns.) A broker that is away for a moment
        is waited for, up to 0.8 of the transaction's timeout.

        Raises:
            RebuildError: aborted, or the outcome is unknown.
            StopError: fenced, or records were refused; nothing of the transaction is visible.
            UsageError: there is no open transaction, or a write in it failed.
        """
        producer, outbox = self._require("commit", State.OPEN)
        self._finish("commit", producer.commit_transaction, outbox)

    def abort(self) -> None:
        """Give the transaction up; nothing of it becomes visible, and the writer can begin another one.

        Only if not all of it could be sent (the broker was away, or refused a record) it is broken: make a new one.

        Raises:
            RebuildError: the outcome is unknown (that the next `fence()` ends it is sure).
            StopError: fenced.
            UsageError: there is no open transaction.
        """
        producer, outbox = self._require("abort", State.OPEN, State.FAILED)
        # What is not sent yet is sent first. Records that librdkafka purges leave a gap in its sequence numbers, and
        # the next transaction of this producer then fails, with OUT_OF_ORDER_SEQUENCE_NUMBER or worse (tried).
        unsent = 1
        with suppress(KafkaException, SystemError):
            unsent = producer.flush(self._commit_seconds)
        self._finish("abort", producer.abort_transaction, outbox)
        if unsent or self._deliveries.failure is not None:
            self._state = State.BROKEN

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Open a transaction for a `with` block: commit at its end, abort if it raises, then raise the same.

        The errors are those of `begin` and `commit`.
        """
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            self._abort_if_open()
            raise

    def _close(self) -> None:
        """Abort what is open and drop the connection."""
        self._abort_if_open()
        self._state = State.CLOSED
        # Not Producer.close(): after a fatal error that warns, and where warnings are errors it is a SystemError.
        # Without references the producer ends at once, in every state (tried).
        self._producer = self._outbox = None

    def _cannot(self, what: str) -> str:
        return f"writer {self.transactional_id!r} cannot {what}"

    def _require(self, call: str, *allowed: State) -> tuple[Producer, Outbox]:
        if self._state not in allowed or self._producer is None or self._outbox is None:
            raise UsageError(f"{self._cannot(call)}: it is {self._state.value}")
        return self._producer, self._outbox

    def _finish(self, call: str, attempt: Callable[[float], None], outbox: Outbox) -> None:
        """Commit or abort: the same call again while nothing is decided, then say what became of it."""
        self._state = State.BROKEN  # until the outcome is known, even if a signal handler raises in here
        deadline = Deadline(self._commit_seconds)
        while True:
            try:
                attempt(deadline.slice())
            except KafkaException as failure:
                ours = outbox.explain(failure.args[0], self._cannot(call))
                if isinstance(ours, RetryError) and not deadline.passed:
                    continue
                if isinstance(ours, RetryError):
                    ours = RebuildError(f"{ours}; not done in {deadline.seconds:g} s: {RebuildError.advice}")
                if failure.args[0].txn_requires_abort():
                    self._state = State.FAILED
                raise ours from failure
            self._state = State.READY
            return

    def _abort_if_open(self) -> None:
        if self._state in {State.OPEN, State.FAILED}:
            with suppress(BrokerError):
                self.abort()
