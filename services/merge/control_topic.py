"""What the records of `lmerge.control` mean. Pure: for the service, and for whoever only reads the topic.

One compacted record per merge, key ``merge/<name>``, value the JSON of its `Desired`; a tombstone removes the merge.
Records with other keys are somebody else's and say nothing about merges.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from pydantic import ValidationError

from lmerge.errors import LMergeError
from lmerge.kafka import KeyValue, Record
from services.merge.definitions import VERSION, Desired

TOPIC: Final = "lmerge.control"
_KEY_PREFIX: Final = b"merge/"


class _Version(msgspec.Struct):
    v: int = VERSION


_version: Final = msgspec.json.Decoder(_Version)


class UnreadableControl(LMergeError):
    """The control topic holds something that this version cannot read."""


def to_record(name: str, desired: Desired | None) -> KeyValue:
    """Return the record that says what is wanted of a merge; None: nothing any more."""
    return _KEY_PREFIX + name.encode(), None if desired is None else desired.model_dump_json().encode()


def apply(desired: dict[str, Desired], record: Record) -> None:
    """Let the next record change what is wanted.

    Raises:
        UnreadableControl: it is no definition of a merge.
    """
    key = record.key or b""
    if not key.startswith(_KEY_PREFIX):
        return
    name = key.removeprefix(_KEY_PREFIX).decode()
    if record.value is None:
        desired.pop(name, None)
        return
    where = f"{record.topic}/{record.partition} at offset {record.offset}"
    try:
        version = _version.decode(record.value).v
        if version != VERSION:
            raise UnreadableControl(
                f"{where}: the definition of merge {name} has version {version}, and this process knows {VERSION}: "
                "upgrade every process before a new kind of definition is used"
            )
        # A newer process may have written more: what matters to those who do not know it comes with a higher version.
        desired[name] = Desired.model_validate_json(record.value, extra="ignore")
    except (ValidationError, msgspec.DecodeError) as error:
        raise UnreadableControl(f"{where}: no definition of a merge: {error}") from error


def desired_from(records: Iterable[Record]) -> dict[str, Desired]:
    """Return what is wanted after these records, by merge.

    Raises:
        UnreadableControl: one of them is no definition of a merge.
    """
    desired: dict[str, Desired] = {}
    for record in records:
        apply(desired, record)
    return desired
