"""What can go wrong, and whose fault it is.

    LMergeError
    ├── InputError            an input (a stream, a record, a topic) broke its contract
    │   ├── MalformedRecord   bytes that are no element
    │   └── IllegalElement    an element that its own stream does not allow
    └── UsageError            the caller asked for something that cannot be

`lmerge.kafka.errors` adds the branch for what a broker answers. Messages have the form "fact: detail", name the
object, and say what to do where there is something to do.
"""


class LMergeError(Exception):
    """The root of all errors that this project raises on purpose."""


class InputError(LMergeError):
    """An input broke its contract; the caller may quarantine it and go on with the others."""


class MalformedRecord(InputError):
    """Bytes that do not decode to an element.

    Attributes:
        index: position of the record in the batch that was decoded.
        reason: what is wrong and where in the record, in words.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index}: {reason}")
        self.index = index
        self.reason = reason


class IllegalElement(InputError):
    """An element that the stream's own earlier elements rule out, such as an insert below its stable point."""


class UsageError(LMergeError):
    """The caller asked for something that cannot be; nothing was changed."""
