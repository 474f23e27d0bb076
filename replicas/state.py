"""Which incarnation a replica is in: what it keeps on disk, and how a start decides to go on or to begin anew.

A replica has a directory:

    replica.json     this file: incarnation, plan hash, feed id, where it started, joins_at; written before the hello
    spark/           Spark's checkpoint
    spark.aside-<n>  checkpoints that a new incarnation has moved out of the way; n counts up
    lock             held while a process runs here

A start compares what it would go on from, P = (the file's incarnation, the last batch in Spark's offset log), with what
the lanes hold, Q = the largest (incarnation, batch) on their last records (recovery-and-sink.md 7.9). The offset log
counts, not the commit log: killed between the sink's commit and Spark's, the lanes hold a batch that the commit log
lacks, and that is no restored backup (S11).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import msgspec

from lmerge.errors import UsageError

HELLO_BATCH: Final = -1
"""The batch number of a hello: before batch 0 of its incarnation."""

FILE_VERSION: Final = 1

Offset: TypeAlias = dict[str, Any]
"""A Spark offset of one source: a cut, as `replicas.cuts` defines it."""


class Tag(NamedTuple):
    """What a transaction of the sink was: it is on the last record that the transaction wrote in each lane."""

    incarnation: int
    batch: int

    def encode(self) -> bytes:
        """Return the value of the header `lmerge-batch`."""
        return b"%d:%d" % self

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read what `encode` wrote.

        >>> Tag.decode(Tag(3, -1).encode())
        Tag(incarnation=3, batch=-1)

        Raises:
            ValueError: it is none.
        """
        incarnation, batch = value.split(b":")
        return cls(int(incarnation), int(batch))


class ReplicaFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a replica remembers beside its checkpoint; `start` has the first offset of each source topic."""

    v: int = FILE_VERSION
    incarnation: int
    plan_hash: str
    feed: str
    start: dict[str, Offset]
    t0: int | None = None
    joins_at: int | None = None
    """None: minus infinity."""
    reach_ms: int | None = None
    """How far a row reaches into the results (`replicas.start`); None: not known."""
    given_up: str | None = None
    """Why this incarnation must not be gone on with, though its checkpoint is sound; None: it may be."""


class Resume(msgspec.Struct, frozen=True):
    """Go on from the checkpoint; `say_hello` if the file was written and the hello was not."""

    say_hello: bool


class Begin(msgspec.Struct, frozen=True):
    """Move the checkpoint aside and begin this incarnation; `reason` is for the log."""

    incarnation: int
    reason: str


def decide(
    file: ReplicaFile | None, last_batch: int | None, committed: Tag | None, *, plan_hash: str, feed: str
) -> Resume | Begin:
    """Decide what a start does, after the fence (recovery-and-sink.md 7.9).

    Args:
        file: what lies beside the checkpoint.
        last_batch: the last entry of Spark's offset log, None if it has none.
        committed: the largest tag in the lanes, None if they are empty.
        plan_hash: of the plan that is to run.
        feed: the id of the feed that it reads.
    """
    seen = max(0 if file is None else file.incarnation, 0 if committed is None else committed.incarnation)
    reason = _obstacle(file, last_batch, committed, plan_hash=plan_hash, feed=feed)
    if reason is not None or file is None:
        return Begin(seen + 1, reason or "")
    return Resume(say_hello=committed is None or committed < Tag(file.incarnation, HELLO_BATCH))


def _obstacle(
    file: ReplicaFile | None, last_batch: int | None, committed: Tag | None, *, plan_hash: str, feed: str
) -> str | None:
    """Say why the checkpoint cannot be gone on from, or None."""
    if file is None:
        return "there is no checkpoint" if last_batch is None else "the checkpoint has no replica.json beside it"
    if file.given_up is not None:
        return f"the last one was given up: {file.given_up}"
    if file.plan_hash != plan_hash or file.feed != feed:
        return "the plan has changed" if file.plan_hash != plan_hash else "the feed is another one"
    mine = Tag(file.incarnation, HELLO_BATCH if last_batch is None else last_batch)
    if committed is not None and mine < committed:
        return f"the checkpoint is older than the topic: {mine} against {committed}"
    opened = committed is not None and committed >= Tag(file.incarnation, HELLO_BATCH)
    if last_batch is not None and not opened:  # a hello comes before the first batch, so the topic has lost it
        return f"the topic does not hold incarnation {file.incarnation}, which the checkpoint belongs to"
    return None


class ReplicaDirectory:
    """The directory of one replica."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "spark"
        self._file = path / "replica.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory and keep other processes out of it; a process that dies lets go of it.

        Raises:
            UsageError: another process runs here.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"checkpoint {self.path}: another replica runs on it; stop it first") from None
            yield

    def read(self) -> ReplicaFile | None:
        """Return the replica's file, or None if there is none.

        Raises:
            UsageError: it cannot be read as one.
        """
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            file = msgspec.json.decode(text, type=ReplicaFile)
        except msgspec.DecodeError as error:
            raise UsageError(f"{self._file}: {error}; restore it, or remove {self.path} to begin anew") from error
        if file.v != FILE_VERSION:
            raise UsageError(f"{self._file}: version {file.v}, this program writes {FILE_VERSION}; use the newer one")
        return file

    def write(self, file: ReplicaFile) -> None:
        """Replace the replica's file, durably and as a whole."""
        partial = self._file.with_suffix(".tmp")
        with partial.open("wb") as out:
            out.write(msgspec.json.format(msgspec.json.encode(file)))
            out.flush()
            os.fsync(out.fileno())
        partial.replace(self._file)
        self._sync()

    def move_aside(self) -> Path | None:
        """Move Spark's checkpoint out of the way and return where to, or None if there is none."""
        if not self.checkpoint.exists():
            return None
        number = 1
        while (target := self.path / f"spark.aside-{number}").exists():
            number += 1
        self.checkpoint.rename(target)
        self._sync()
        return target

    def _sync(self) -> None:
        """Make renames durable."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
