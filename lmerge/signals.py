"""A signal: what a merge tells a replica that lags, one record of `<m>.feedback` (paper 000, V-D).

    {"kind":"fast-forward","id":"m/0/7","input":"r2","partition":0,"before":1700000000000,"merge_id":"6f0c1b"}

No event of this partition with `ve < before` matters to the merge any more, whatever dies next (recovery-and-sink 8.1).
"""

import msgspec

from lmerge.errors import UsageError


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="fast-forward"):
    """Skip what ends before `before`, in one partition."""

    id: str
    input: str
    partition: int
    before: int
    merge_id: str = ""
    """Which merge of that name says so: one that is made anew has another. Empty: by an older writer."""

    def encode(self) -> bytes:
        """Return the value of its record."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(value: bytes | None) -> "Signal":
        """Read what `encode` wrote; fields that are not known are for newer readers.

        Raises:
            UsageError: it is no signal.
        """
        try:
            return msgspec.json.decode(value or b"", type=Signal)
        except msgspec.DecodeError as error:
            raise UsageError(f"no signal: {error}") from error
