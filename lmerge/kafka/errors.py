"""What a broker, or the way to it, can answer, sorted by what the caller must do.

    LMergeError
    └── BrokerError           a call to Kafka failed
        ├── RetryError        nothing was decided: make the same call again
        ├── RebuildError      the transaction was aborted, or nobody knows: new writer, fence, read the tail, decide
        └── StopError         no repetition helps
            ├── Fenced        another owner exists, or the transaction outlived its timeout
            ├── MissingTopic  no such topic or partition
            ├── WrongPartitions  the topic exists with another number of partitions
            ├── RecordsGone   the log no longer (or not yet) holds the records that were asked for
            ├── Undecided     records of a transaction that nobody decides
            └── Refused       authorisation, configuration, a record that is too large

`translate` is the one place that looks at librdkafka's codes; the table below it is the whole policy. The three
middle classes are what loops catch, the leaves are for those who can do something about that one case, such as a
merge that sets an input to `gap`.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from lmerge.errors import LMergeError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class BrokerError(LMergeError):
    """A call to Kafka failed; the subclass says what to do."""

    advice: ClassVar[str] = ""
    """Closes the messages that `translate` makes: what the reader of the message can do."""


class RetryError(BrokerError):
    """Nothing was decided; the same call may be made again."""

    advice = "try again; if it lasts, check that the servers run and can be reached"


class RebuildError(BrokerError):
    """The transaction was aborted, or its outcome is unknown: only what the topics hold tells.

    Close the writer, make a new one with the same transactional id, `fence()` (which ends what the old one left),
    then read the tail and decide by its content whether the transaction has to be written again.
    """

    advice = "make a new writer, fence, read the tail and decide by its content"


class StopError(BrokerError):
    """No repetition helps: somebody has to change something first."""

    advice = "stop; this does not heal by itself"


class Fenced(StopError):
    """A newer writer with the same transactional id exists, or the transaction outlived its timeout.

    Kafka does not tell the two apart. Who is still the owner by other evidence (the group's assignment, say) may
    start anew as after a `RebuildError`; everybody else stops. Nothing of the transaction is visible.
    """

    advice = "another owner has taken over, or the transaction outlived its timeout; stop unless you still own it"


class MissingTopic(StopError):
    """A topic or partition does not exist."""

    advice = "create it, or correct its name or the partition"


class WrongPartitions(StopError):
    """A topic exists with another number of partitions than asked for."""


class RecordsGone(StopError):
    """Records that were asked for are not in the log: deleted, expired, or lost with a topic that was made anew."""

    advice = "records were deleted, or the topic was made anew; start from what the log still holds"


class Undecided(StopError):
    """A partition holds records of a transaction that is not decided, though its writer was fenced."""

    advice = (
        "if no living writer has a transaction open there, a broker lost the decision: kafka-transactions.sh "
        "find-hanging shows it; decide it by hand before anything is written"
    )


class Refused(StopError):
    """The broker or the client library will not do this: authorisation, configuration, size."""

    advice = "correct the settings, the permissions or the record"


_CODES: Final[dict[type[BrokerError], tuple[str, ...]]] = {
    Fenced: ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    MissingTopic: ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"),
    RecordsGone: ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"),
    Refused: (
        *("_AUTHENTICATION", "_SSL", "_INVALID_ARG", "_NOT_CONFIGURED", "_UNSUPPORTED_FEATURE"),
        *("SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "SECURITY_DISABLED"),
        *("CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
        *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_TRANSACTION_TIMEOUT", "UNSUPPORTED_VERSION"),
        *("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG_SIZE", "INVALID_TIMESTAMP"),
        *("TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "INVALID_CONFIG"),
        *("INVALID_REQUEST", "POLICY_VIOLATION", "TOPIC_DELETION_DISABLED", "UNSUPPORTED_COMPRESSION_TYPE"),
        *("INVALID_SESSION_TIMEOUT", "INVALID_GROUP_ID", "INCONSISTENT_GROUP_PROTOCOL", "GROUP_MAX_SIZE_REACHED"),
        *("NON_EMPTY_GROUP", "OFFSET_METADATA_TOO_LARGE"),
    ),
    # Outside of transactions librdkafka does not mark these as retriable, though they are.
    RetryError: (
        # What list_offsets says of partitions without a leader, and of those of a topic that does not exist.
        "_NOENT",
        "_DESTROY_BROKER",  # the client library let go of a broker that the cluster did not name for a moment
        *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT"),
        *("_WAIT_COORD", "_IN_PROGRESS", "_PREV_IN_PROGRESS", "_QUEUE_FULL", "_RETRY"),
        *("_MAX_POLL_EXCEEDED", "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"),
        *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE"),
        *("REPLICA_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_CONTROLLER", "NOT_COORDINATOR"),
        *("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
        *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"),
        *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "REBALANCE_IN_PROGRESS", "THROTTLING_QUOTA_EXCEEDED"),
    ),
}
_CLASS_BY_CODE: Final = {code: kind for kind, codes in _CODES.items() for code in codes}


def _classify(error: "KafkaError", otherwise: type[BrokerError]) -> type[BrokerError]:
    kind = _CLASS_BY_CODE.get(error.name())
    if kind is not None and issubclass(kind, StopError):
        return kind  # also where the transaction must be aborted: a new one would fail in the same way
    if error.txn_requires_abort():
        return RebuildError
    if error.fatal():
        return StopError
    if kind is not None or error.retriable():
        return RetryError
    return otherwise


def translate(error: "KafkaError", fact: str, *, otherwise: type[BrokerError] = StopError) -> BrokerError:
    """Make our error of librdkafka's.

    Args:
        error: what librdkafka said.
        fact: what could not be done, naming topic, partition or transactional id; it opens the message.
        otherwise: the class for codes that no rule knows. Inside a transaction it is `RebuildError`, since then the
            outcome is unknown.
    """
    kind = _classify(error, otherwise)
    # librdkafka's texts repeat the origin ("Broker: ..."); its name for the code is what people search for.
    return kind(f"{fact}: {error.str()} ({error.name()}); {kind.advice}")


def is_partition_end(error: "KafkaError") -> bool:
    """Tell whether this "error" of a consumed message only says that the end of the partition was reached."""
    return error.name() == "_PARTITION_EOF"


def is_queue_full(error: "KafkaError") -> bool:
    """Tell whether a record was not taken because the producer's own queue is full."""
    return error.name() == "_QUEUE_FULL"


def is_consequence(error: "KafkaError") -> bool:
    """Tell whether a record failed only because its transaction had failed already: this names no cause."""
    return error.name() in {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


def is_masked_fatal(error: "KafkaError") -> bool:
    """Tell whether librdkafka only says that an earlier error was fatal, not which one."""
    return error.name() == "_FATAL"


def is_existing_topic(error: "KafkaError") -> bool:
    """Tell whether a topic was not created because it exists."""
    return error.name() == "TOPIC_ALREADY_EXISTS"


def is_group_in_use(error: "KafkaError") -> bool:
    """Tell whether offsets cannot be committed because members of the group do so: whoever subscribes with its name."""
    return error.name() in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "NON_EMPTY_GROUP"}


def is_refused_group_setting(error: "KafkaError") -> bool:
    """Tell whether a broker will not set a group's session timeout: too short, not allowed, or it is older than 4.0."""
    codes = {"INVALID_CONFIG", "INVALID_REQUEST", "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "POLICY_VIOLATION"}
    return error.name() in codes | {"GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}


def is_login_failure(error: "KafkaError") -> bool:
    """Tell whether a connection failed because of who we are or how we speak, and not because nobody is there."""
    return error.name() in {"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"}


def is_summary(error: "KafkaError") -> bool:
    """Tell whether this background error only sums up others."""
    return error.name() == "_ALL_BROKERS_DOWN"
