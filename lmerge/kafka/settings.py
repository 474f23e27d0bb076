"""Settings of the Kafka clients: what the user gives, what we choose, and what nobody may change.

librdkafka takes one flat dictionary per client. It is made of three layers, later ones winning: our defaults, which
the user may tune; the user's own `client` settings (TLS, SASL, sockets); and the settings that exactly-once rests on,
which the user may not set at all. The numbers were measured on a real broker.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lmerge.errors import UsageError

_COMMON: Final[dict[str, Any]] = {
    # What is worth saying comes as an exception; below "critical" librdkafka would write to standard error.
    "log_level": 2,
}

_PRODUCER: Final[dict[str, Any]] = {
    # The topic decides what is too large. With the default of 1,000,000 what one topic took might not go into another
    # with the same settings. Batches stay below 1 MB, by `batch.size`.
    "message.max.bytes": 16_777_216,
    # How long a topic may be unknown before its records fail: the default of 30 s outlives the transaction, which
    # then reports a time-out instead of the missing topic.
    "topic.metadata.propagation.max.ms": 2_000,
}

_TAIL: Final[dict[str, Any]] = {
    # The end of a partition is reported only after this wait: 500 ms by default, and twice that for a second look.
    "fetch.wait.max.ms": 1,
    # Bounds of the queue; the back-off is how long fetching pauses when it is full, by default a whole second.
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 5,
}

_CONSUMER: Final[dict[str, Any]] = {
    # Partitions are fetched in turns of this size: with the default of 1 MB one that has a backlog would hold the
    # others up by 10,000 records each time. Throughput is the same.
    "fetch.message.max.bytes": 262_144,
    # Data, or a commit, ends a long poll at once, so it costs no latency; but a new assignment waits behind it.
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 5,
}

_EXACTLY_ONCE_READ: Final[dict[str, Any]] = {
    "isolation.level": "read_committed",
    # A silent jump over missing records would make an incomplete input look complete.
    "auto.offset.reset": "error",
    # Offsets of the end are markers: only this event tells that everything committed was read.
    "enable.partition.eof": True,
    # Positions are ours; they live in transactions.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
}

_EXACTLY_ONCE_WRITE: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    # Successes are counted by the commit; reporting each of them would cost as much as sending it.
    "delivery.report.only.error": True,
}

_RESERVED: Final[dict[str, str]] = {
    "bootstrap.servers": "give it as bootstrap_servers",
    "metadata.broker.list": "give it as bootstrap_servers",
    "transaction.timeout.ms": "give it as transaction_timeout_ms",
    "transactional.id": "each writer is given its own",
    "group.id": "each consumer is given its own",
    **dict.fromkeys(
        ["group.protocol", "partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"],
        "members of a group choose it by what the broker allows",
    ),
    **dict.fromkeys(
        [*_EXACTLY_ONCE_READ, *_EXACTLY_ONCE_WRITE, "request.required.acks", "enable.gapless.guarantee"],
        "exactly-once rests on it",
    ),
    **dict.fromkeys(
        ["message.timeout.ms", "delivery.timeout.ms", "message.send.max.retries", "retries", "default.topic.config"],
        "it follows from the transaction's timeout",
    ),
    **dict.fromkeys(
        ["error_cb", "on_delivery", "dr_cb", "dr_msg_cb", "logger", "on_commit", "stats_cb", "throttle_cb"],
        "callbacks are ours",
    ),
    "test.mock.num.brokers": "the mock broker ignores aborts",
}


class KafkaSettings(msgspec.Struct, frozen=True):
    """How to reach a Kafka cluster; picklable (if `client` is), so that Spark can send it to its workers.

    Args:
        bootstrap_servers: `host:port`, several joined by commas.
        client: further librdkafka settings for every client, such as `security.protocol`, `sasl.password` or
            `ssl.ca.location`. Only their names are ever shown.
        transaction_timeout_ms: how long a transaction may stay open. When its owner dies without a successor, readers
            wait this long; when a transaction outlives it, the writer is fenced.

    Raises:
        UsageError: a setting that is not the user's to choose.
    """

    bootstrap_servers: str
    client: Mapping[str, Any] = {}
    transaction_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise UsageError("no bootstrap servers: give host:port, several joined by commas")
        if not 1_000 <= self.transaction_timeout_ms <= 900_000:
            raise UsageError(
                f"transaction_timeout_ms {self.transaction_timeout_ms}: must be between 1,000 and 900,000 "
                "(the largest that brokers allow by default)"
            )
        for name in self.client:
            if name in _RESERVED:
                raise UsageError(f"Kafka client setting {name!r} cannot be set: {_RESERVED[name]}; leave it out")

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.client))
        return f"KafkaSettings({self.bootstrap_servers!r}, client=<{names}>)"

    def admin(self) -> dict[str, Any]:
        """Give the settings of a client that manages topics."""
        return {**_COMMON, **self.client, "bootstrap.servers": self.bootstrap_servers}

    def producer(self, transactional_id: str) -> dict[str, Any]:
        """Give the settings of the one producer that writes under this transactional id."""
        return {
            **_PRODUCER,
            **self.admin(),
            **_EXACTLY_ONCE_WRITE,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
        }

    @property
    def max_message_bytes(self) -> int:
        """The largest record that a producer takes, whatever its topic would."""
        return int({**_PRODUCER, **self.client}["message.max.bytes"])

    def tail(self) -> dict[str, Any]:
        """Give the settings of a consumer that looks at the end of partitions now and then.

        It polls the broker every millisecond while it is assigned: unassign it after use.
        """
        # The client library wants a group id; a consumer that only assigns never joins the group.
        return {**_TAIL, **self.admin(), **_EXACTLY_ONCE_READ, "group.id": "lmerge-tail"}

    def member(self, group_id: str) -> dict[str, Any]:
        """Give the settings of a member of a group that reads nothing, and so has no position that could be wrong."""
        return {**self.consumer(group_id), "auto.offset.reset": "latest"}

    def consumer(self, group_id: str) -> dict[str, Any]:
        """Give the settings of a consumer that reads on and on."""
        return {**_CONSUMER, **self.admin(), **_EXACTLY_ONCE_READ, "group.id": group_id}
