"""Rows that do not count, for people: a sample in the log, and copies in `<feed>.late` if asked."""

from collections.abc import Iterable
from typing import Final

import msgspec

from lmerge.feed import LeftOut
from lmerge.kafka import Headers, Record, TransactionalWriter
from services.log import log

SAMPLE_SECONDS: Final = 10.0
"""How often a row is shown for each topic and reason: thousands may be left out for the same reason."""

_SHOWN_BYTES: Final = 80

_BATCH_BYTES: Final = 1_000_000
"""What the client library puts into one batch at most (`batch.size`), if no single record is larger. The topic's limit
is that of a batch."""

_FRAME_BYTES: Final = 640
"""More than a batch, a record and the headers of a copy take, the longest name of a topic included."""

_HEADER_FRAME_BYTES: Final = 10


class LeftOutRows:
    """Collects the rows of the cut in the making that do not count.

    A copy that the topic would not take must not end the service, which would come to it again. It has no key, no value
    and no headers of the row's own then; if there is no room even for that, there is none.

    Args:
        feed: the feed's name, for the log.
        copy_bytes: the largest record that the topic of the copies takes; 0: no copies are wanted.
    """

    def __init__(self, feed: str, *, copy_bytes: int) -> None:
        self._feed = feed
        self._copy_bytes = copy_bytes
        # Of the cut in the making: the rows to copy, their bytes, and how many copies are not whole.
        self._rows: list[tuple[Record, str]] = []
        self._bytes = 0
        self._not_whole = 0
        # When a row of a topic was shown last for a reason.
        self._shown_at: dict[tuple[str, str], float] = {}

    def note(self, records: Iterable[Record], left_out: Iterable[LeftOut], *, at_seconds: float) -> None:
        """Take what a maker left out of the records that it was given."""
        reasons = {left.row[:3]: left.reason for left in left_out}
        if not reasons:
            return
        for record in records:
            reason = reasons.get((record.topic, record.partition, record.offset))
            if reason is not None:
                self._show(record, reason, at_seconds)
                if self._copy_bytes:
                    self._add(record, reason, at_seconds)

    def write(self, writer: TransactionalWriter, topic: str, *, n: int) -> None:
        """Add the copies to the transaction of heartbeat n."""
        for record, reason in self._rows:
            headers = (*record.headers, *_headers(record, reason, n))
            writer.write(topic, 0, [(record.key, record.value)], last_headers=headers)

    def written(self) -> int:
        """Forget them, as their heartbeat is committed; return how many were not copied as a whole."""
        not_whole = self._not_whole
        self._rows.clear()
        self._bytes = self._not_whole = 0
        return not_whole

    def _add(self, record: Record, reason: str, at_seconds: float) -> None:
        size = _size(record)
        if not self._fits(size):
            self._not_whole += 1
            if self._is_due(record.topic, "too large", at_seconds):
                self._log("a copy does not fit", record, bytes=size, limit=self._copy_bytes)
            omitted = (("lmerge-omitted", b"%d" % size),)
            record = msgspec.structs.replace(record, key=None, value=None, headers=omitted)
            size = _size(record)
            if not self._fits(size):
                return
        self._rows.append((record, reason))
        self._bytes += size

    def _fits(self, size: int) -> bool:
        """Tell whether one more copy fits, be it with all others of its transaction in one batch."""
        batched = 0 if self._copy_bytes >= _BATCH_BYTES + _FRAME_BYTES else self._bytes
        return batched + size <= self._copy_bytes

    def _show(self, record: Record, reason: str, at_seconds: float) -> None:
        if self._is_due(record.topic, reason, at_seconds):
            begins = (record.value or b"")[:_SHOWN_BYTES].decode("utf-8", "replace")
            self._log("a row does not count", record, reason=reason, begins=begins)

    def _is_due(self, topic: str, reason: str, at_seconds: float) -> bool:
        """Tell whether a row of a topic is to be shown for a reason, and take note."""
        if at_seconds - self._shown_at.get((topic, reason), -SAMPLE_SECONDS) < SAMPLE_SECONDS:
            return False
        self._shown_at[topic, reason] = at_seconds
        return True

    def _log(self, event: str, record: Record, **fields: object) -> None:
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log("warning", event, feed=self._feed, **where, **fields)


def _size(record: Record) -> int:
    """Give the bytes of a copy in its topic, rather too many than too few."""
    headers = sum(len(name.encode()) + len(value or b"") + _HEADER_FRAME_BYTES for name, value in record.headers)
    return _FRAME_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _headers(record: Record, reason: str, n: int) -> Headers:
    """Say where a copy is from, why it is there, and which heartbeat has decided so."""
    return (
        ("lmerge-topic", record.topic.encode()),
        ("lmerge-partition", b"%d" % record.partition),
        ("lmerge-offset", b"%d" % record.offset),
        ("lmerge-reason", reason.encode()),
        ("lmerge-heartbeat", b"%d" % n),
    )
