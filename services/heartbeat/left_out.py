"""Rows that do not count, for people: a sample in the log, and copies in `<feed>.late` if asked."""

from collections.abc import Iterable
from typing import Final

from lmerge.feed import LeftOut
from lmerge.kafka import Headers, Record, TransactionalWriter
from services.log import log

SAMPLE_SECONDS: Final = 10.0
"""How often a row is shown for each topic and reason: thousands may be left out for the same reason."""

_SHOWN_BYTES: Final = 80


class LeftOutRows:
    """Collects the rows of the cut in the making that do not count.

    Args:
        feed: the feed's name, for the log.
        copies: whether copies are wanted.
    """

    def __init__(self, feed: str, *, copies: bool) -> None:
        self._feed = feed
        self._copies = copies
        # Of the cut in the making.
        self._rows: list[tuple[Record, str]] = []
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
                if self._copies:
                    self._rows.append((record, reason))

    def write(self, writer: TransactionalWriter, topic: str, *, n: int) -> None:
        """Add the copies to the transaction of heartbeat n."""
        for record, reason in self._rows:
            headers = (*record.headers, *_headers(record, reason, n))
            writer.write(topic, 0, [(record.key, record.value)], last_headers=headers)

    def written(self) -> None:
        """Forget them: their heartbeat is committed."""
        self._rows.clear()

    def _show(self, record: Record, reason: str, at_seconds: float) -> None:
        key = (record.topic, reason)
        if at_seconds - self._shown_at.get(key, -SAMPLE_SECONDS) < SAMPLE_SECONDS:
            return
        self._shown_at[key] = at_seconds
        log(
            "warning",
            "a row does not count",
            feed=self._feed,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            reason=reason,
            begins=(record.value or b"")[:_SHOWN_BYTES].decode("utf-8", "replace"),
        )


def _headers(record: Record, reason: str, n: int) -> Headers:
    """Say where a copy is from, why it is there, and which heartbeat has decided so."""
    return (
        ("lmerge-topic", record.topic.encode()),
        ("lmerge-partition", b"%d" % record.partition),
        ("lmerge-offset", b"%d" % record.offset),
        ("lmerge-reason", reason.encode()),
        ("lmerge-heartbeat", b"%d" % n),
    )
