"""The sink: each batch into the replica's topic, exactly once (recovery-and-sink.md section 7).

It sits in the driver. Batch N is one action (`toArrow`) and one transaction over all lanes, with the tag (incarnation,
batch) in a header on the last record of each lane. What was committed is therefore in the topic itself, and a batch
that comes again, after a crash or an unknown outcome, is written or skipped by what the lanes say:

    (a) fence: ends or aborts every earlier attempt         a successor that reads first and fences
    (b) then see that nothing hangs, and read the tails     then may miss a commit (S3)
    (c) a higher incarnation: stop for good;  this batch or a later one: write nothing;  else
    (d) one transaction: rows, then stable, per lane

From batch to batch the writer is kept and (a), (b) are left out: had somebody come between, the next commit that holds
a record would fail as fenced, and then it starts again at (a).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from lmerge.elements import Hello
from lmerge.errors import UsageError
from lmerge.kafka import (
    Closing,
    Fenced,
    KafkaSettings,
    KeyValue,
    RebuildError,
    RetryError,
    TailReader,
    TransactionalWriter,
)
from replicas.emit import with_element
from replicas.errors import NotWritten, Superseded
from replicas.state import HELLO_BATCH, Tag

HEADER: Final = "lmerge-batch"

_ATTEMPTS: Final = 5
"""How often a batch is tried. Each attempt waits up to 30 s for a broker, so this outlasts a rolling restart; it ends a
quarrel with a twin too."""


def is_done(tag: Tag, committed: Tag | None, topic: str) -> bool:
    """Decide (c): whether the lanes hold this transaction already.

    Raises:
        Superseded: they hold a higher incarnation.
    """
    if committed is None:
        return False
    if committed.incarnation > tag.incarnation:
        raise Superseded(
            f"topic {topic}: incarnation {committed.incarnation} has begun, this is {tag.incarnation}; "
            "another process has taken this replica over, so this one ends"
        )
    return committed >= tag


class Sink(Closing):
    """Writes tagged transactions to the lanes of one replica's topic; for one thread at a time.

    Args:
        settings: the cluster.
        topic: the replica's own topic.
        transactional_id: the topic's name: two processes with the same one fence each other.
        lanes: the partitions of the topic.
    """

    def __init__(self, settings: KafkaSettings, *, topic: str, transactional_id: str, lanes: int) -> None:
        self.topic = topic
        self.lanes = lanes
        self._settings = settings
        self._id = transactional_id
        self._reader = TailReader(settings)
        # None after a failure, and before the first use: then `recover` makes a new one.
        self._writer: TransactionalWriter | None = None
        # The largest tag in the lanes, as far as this process knows; None: they are empty.
        self._committed: Tag | None = None

    def recover(self) -> Tag | None:
        """Do (a) and (b): become the only writer, and return the largest tag that is committed.

        Raises:
            BrokerError: as the calls to Kafka say.
            UsageError: the topic holds records of somebody else.
        """
        self._drop_writer()
        self._writer = TransactionalWriter(self._settings, self._id)
        self._writer.fence()
        for lane in range(self.lanes):
            self._reader.require_decided(self.topic, lane)
        self._committed = max(filter(None, map(self._tail, range(self.lanes))), default=None)
        return self._committed

    def hello(self, hello: Hello) -> None:
        """Open an incarnation in all lanes, in one transaction."""
        self.write(Tag(hello.incarnation, HELLO_BATCH), with_element({}, hello, lanes=self.lanes))

    def write(self, tag: Tag, records: Mapping[int, Sequence[KeyValue]]) -> bool:
        """Do (c) and (d), starting again at (a) as often as it takes; return whether this call wrote.

        Args:
            tag: what the transaction is.
            records: per lane, in order. With none at all there is no transaction.

        Raises:
            Superseded: a higher incarnation is in the lanes.
            NotWritten: tried often enough.
            BrokerError: not to be healed here.
        """
        if not any(records.values()):
            return False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._writer is None:
                    self.recover()
                if is_done(tag, self._committed, self.topic):
                    return False
                self._commit(tag, records)
            except (Fenced, RebuildError, RetryError) as error:
                self._drop_writer()
                if attempt == _ATTEMPTS:
                    raise NotWritten(
                        f"{tag}: not written to {self.topic} in {_ATTEMPTS} attempts: {error}; if a write takes longer "
                        f"than a transaction may, {self._settings.transaction_timeout_ms} ms, raise "
                        "--transaction-timeout-ms"
                    ) from error
            else:
                self._committed = tag
                return True
        raise AssertionError("the loop returns or raises")

    def _close(self) -> None:
        """Drop the connections; what is open is aborted."""
        self._drop_writer()
        self._reader.close()

    def _commit(self, tag: Tag, records: Mapping[int, Sequence[KeyValue]]) -> None:
        assert self._writer is not None
        with self._writer.transaction():
            for lane, rows in sorted(records.items()):
                if rows:
                    self._writer.write(self.topic, lane, rows, last_headers=((HEADER, tag.encode()),))

    def _tail(self, lane: int) -> Tag | None:
        """Read the tag of a lane's last record."""
        last = self._reader.read_tail(self.topic, lane)
        if last is None:
            return None
        value = dict(last.headers).get(HEADER)
        try:
            return Tag.decode(value or b"")
        except ValueError:
            raise UsageError(
                f"topic {self.topic}/{lane}: the record at offset {last.offset} has no readable header {HEADER}; "
                "a replica needs a topic to itself: give it another id, or remove the topic"
            ) from None

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
