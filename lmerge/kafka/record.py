"""A record as it is read from a partition."""

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

if TYPE_CHECKING:
    from confluent_kafka import Message

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Names and values in the order of the record; a name may occur more than once."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One committed record; `timestamp` is Kafka's, in milliseconds.

    `gc=False`: it holds no containers that could refer back to it, and is made by the million.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


def to_record(message: "Message[Any, Any]") -> Record:
    """Make a record of a message that carries no error."""
    headers = message.headers()
    return Record(
        # The hints allow None for these, as they also describe messages that carry an error.
        cast("str", message.topic()),
        cast("int", message.partition()),
        cast("int", message.offset()),
        message.key(),
        message.value(),
        cast("Headers", tuple(headers)) if headers else (),
        message.timestamp()[1],
    )
