"""Where batches of rows go: the topics, a file. Each takes a whole batch or fails; batches come in order."""

import random
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

import msgspec

from lmerge.errors import LMergeError, UsageError
from lmerge.kafka import (
    BrokerError,
    KafkaSettings,
    KeyValue,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
    WrongPartitions,
)
from services.workload.nexmark import Parameters, Row

ABORT_PAUSE_SECONDS: Final = 0.05
"""An abort drops what is not sent yet. In this time a broker has taken it, so that readers really meet aborted
records."""

_encoder = msgspec.json.Encoder()

_Records: TypeAlias = dict[tuple[str, int], list[KeyValue]]
"""What goes to each partition of each topic."""


class Sink(Protocol):
    """Takes batches of rows."""

    def write(self, batch: list[Row]) -> None:
        """Take a batch, which is not empty."""


class TopicSink:
    """Writes each batch to the topics in one transaction.

    Args:
        settings: the cluster.
        parameters: those of the rows.
        create: whether to create topics that do not exist.
        abort_share: how many of the batches are written and aborted before they are written for good, from 0 to 1.

    Raises:
        BrokerError: no broker, no topics, or none like these.
    """

    def __init__(self, settings: KafkaSettings, parameters: Parameters, *, create: bool, abort_share: float) -> None:
        self.aborted = 0
        self._abort_share = abort_share
        self._draw = random.Random(f"aborts of {parameters.seed}").random  # noqa: S311 - chance that can be repeated
        with ExitStack() as stack:
            # Two workloads on the same topics would mix their times: the later one shuts the earlier one out.
            self._writer = stack.enter_context(TransactionalWriter(settings, f"{parameters.prefix}workload"))
            _prepare_topics(TopicAdmin(settings), parameters, create=create)
            self._writer.fence()
            self._aborter = _Aborter(settings, f"{parameters.prefix}workload-aborted")
            stack.callback(self._aborter.close)
            self._open = stack.pop_all()

    def write(self, batch: list[Row]) -> None:
        """Commit a batch.

        Raises:
            BrokerError: it is not committed, or nobody knows.
        """
        records: _Records = {}
        for row in batch:
            records.setdefault((row.topic, row.partition), []).append((row.key, _encoder.encode(row.fields)))
        if self._draw() < self._abort_share:
            self._aborter.write(records)
            self.aborted += 1
        with self._writer.transaction():
            _put(self._writer, records)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


class _Aborter:
    """Writes records and aborts them, under a transactional id of its own.

    librdkafka (2.16) drops at an abort what was not sent yet. Then the broker (4.3) may refuse that writer's next
    transaction, as the numbers of the dropped records are missing in it (OUT_OF_ORDER_SEQUENCE_NUMBER), or an abort
    (INVALID_TXN_STATE). So the writer that commits never aborts, and this one is replaced when it breaks.
    """

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        self._settings = settings
        self._transactional_id = transactional_id
        self._writer: TransactionalWriter | None = None  # until it is needed

    def write(self, records: _Records) -> None:
        """Write and abort; nothing of it is ever visible to those who read what is committed.

        Raises:
            BrokerError: no writer can be had.
        """
        writer = self._writer or self._renew()
        try:
            writer.begin()
            _put(writer, records)
            time.sleep(ABORT_PAUSE_SECONDS)
            writer.abort()
        except BrokerError:
            # At once, as the fence ends what was left open: readers must not wait until it times out.
            self._renew()

    def _renew(self) -> TransactionalWriter:
        self.close()
        self._writer = TransactionalWriter(self._settings, self._transactional_id)
        self._writer.fence()
        return self._writer

    def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class FileSink:
    """Writes each row as a line ``{"topic":…,"partition":…,"ts":…,"row":{…}}``; an older file is replaced.

    Raises:
        UsageError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Unbuffered, as batches are large: what could not be written does not come up again when it is closed.
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise UsageError(f"file {path} cannot be written: {error.strerror}") from error

    def write(self, batch: list[Row]) -> None:
        """Add a batch.

        Raises:
            WriteError: the disk is full, say.
        """
        lines = [{"topic": row.topic, "partition": row.partition, "ts": row.ts, "row": row.fields} for row in batch]
        try:
            rest = memoryview(_encoder.encode_lines(lines))
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise WriteError(f"file {self._path} cannot be written on: {error.strerror}; it is not whole") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class WriteError(LMergeError):
    """A file that was open could not be written on."""


def _put(writer: TransactionalWriter, records: _Records) -> None:
    for (topic, partition), values in records.items():
        writer.write(topic, partition, values)


def _prepare_topics(admin: TopicAdmin, parameters: Parameters, *, create: bool) -> None:
    """See that the topics exist with the right number of partitions.

    Raises:
        WrongPartitions: one has another number: rows would be missing in some, or have no partition to go to.
        MissingTopic: one does not exist, and is not to be created.
    """
    names = parameters.topics()
    if create:
        admin.ensure(*(TopicSpec(name, parameters.partitions) for name in names))
        return
    for name, topic in admin.describe(*names).items():
        if topic.partitions != parameters.partitions:
            raise WrongPartitions(
                f"topic {name}: it has {topic.partitions} partitions, {parameters.partitions} are wanted; "
                "ask for as many as it has"
            )
