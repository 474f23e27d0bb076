"""A named Kafka cluster on this machine: one directory, one or three brokers.

    .run/<name>/stack.json      the cluster's id, nodes and ports (`layout.py`)
    .run/<name>/<node>/         each broker's own (`broker.py`)
    .run/<name>/owner           locked by the process that holds the stack in a `with` block, if one does

The directory is the truth: any process may start, look at or stop a stack by its name.
"""

import fcntl
import re
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from deploy.local import places, ports
from deploy.local.artifacts import KAFKA, ensure
from deploy.local.broker import Broker, brokers_in, end
from deploy.local.errors import StackError
from deploy.local.java import find_java
from deploy.local.layout import Layout, layouts, plan, read_layout, write_layout
from deploy.local.probe import registered_nodes

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_READY_SECONDS = 90  # 2 s on a quiet machine; a machine busy with several Sparks takes ten times that
_STOP_SECONDS = 15  # 0.3 s for one broker; of three the active controller waits 5 s for a quorum that is gone
_DISCARD_SECONDS = 2  # what is deleted next need not end in good order
_POLL_SECONDS = 0.05
_OWNER = "owner"


class LocalStack:
    """A Kafka cluster on this machine.

    In a `with` block it belongs to this process: it ends with the block, or with the process if that is killed.
    Started by `start` it goes on until somebody stops it.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        brokers: int | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        steady: bool = False,
        run: Path = places.RUN,
    ) -> None:
        """Describe a stack; nothing happens yet.

        Args:
            name: what it is called; a name that nobody has if None.
            brokers: 1 or 3; if None, as many as its kept data has, else 1.
            port: the first broker's, the others' follow; if None, those it had before, else free ones.
            settings: Kafka's own settings, over ours; if None, those it had before, else none.
            steady: compiled as a broker in production is, for measurements of minutes; it needs one to warm up.
            run: the directory of all stacks.

        Raises:
            StackError: the name, the number of brokers or the port cannot be.
        """
        if name is not None and not _NAME.fullmatch(name):
            raise StackError(f"{name!r} is no name for a stack: use lower-case letters, digits, - and _")
        if brokers not in {None, 1, 3}:
            raise StackError(f"a stack has 1 or 3 brokers, not {brokers}")
        if port is not None and not 1024 <= port <= 65_000:
            raise StackError(f"port {port} cannot be used: name one between 1024 and 65000")
        self.name = name or f"temporary-{secrets.token_hex(4)}"
        self.directory = run / self.name
        self._run = run
        self._asked_brokers = brokers
        self._asked_port = port
        self._asked_settings = settings
        self._steady = steady
        self._is_owned = False
        self._owner: IO[str] | None = None  # held open, and thereby locked, while this process owns the stack
        self._brokers: list[Broker] = []  # kept, as each may hold the process to reap

    @property
    def layout(self) -> Layout:
        """Its nodes and ports.

        Raises:
            StackError: there is no such stack.
        """
        layout = read_layout(self.directory)
        if layout is None:
            others = ", ".join(name for name, _ in layouts(self._run)) or "none"
            raise StackError(f"there is no stack called {self.name!r} (there are: {others})")
        return layout

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client needs to know: `host:port`, separated by commas."""
        return self.layout.bootstrap_servers

    @property
    def brokers(self) -> list[Broker]:
        """Its brokers, running or not; the first has node id 1."""
        layout = self.layout
        if [broker.node for broker in self._brokers] != list(layout.nodes):
            self._brokers = brokers_in(self.directory, layout)
        return self._brokers

    @property
    def is_running(self) -> bool:
        """Whether any of its brokers runs."""
        return any(broker.pid is not None for broker in self.brokers)

    def start(self) -> Self:
        """Start the brokers that do not run, on the data that is there, and wait until clients can use all.

        Raises:
            StackError: Java or Kafka is missing, a port is taken, the stack exists in another shape, or it does not
                come up; what was started is ended again, the logs stay.
            OSError: the disk is full or not writable.
        """
        jars, java = ensure(KAFKA), find_java()
        down: list[Broker] = []
        try:
            with places.exclusive(self._run / ".lock"):  # two stacks must not choose the same ports
                _sweep(self._run)
                layout = self._settle()
                down += [broker for broker in self.brokers if broker.pid is None]
                with ThreadPoolExecutor() as pool:
                    list(pool.map(lambda broker: broker.prepare(layout, java=java, jars=jars), down))
                for broker in down:
                    broker.launch(java=java, jars=jars, dies_with_parent=self._is_owned, steady=self._steady)
            self._wait_until_ready()
        except BaseException:
            end(down, signal.SIGKILL)
            raise
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        """End the brokers, running or not, and delete the stack unless its data is to be kept for the next start.

        Raises:
            StackError: there is no such stack, or a process does not end.
        """
        end(self.brokers, signal.SIGTERM, patience_seconds=_STOP_SECONDS if keep_data else _DISCARD_SECONDS)
        if keep_data:
            (self.directory / _OWNER).unlink(missing_ok=True)
        else:
            shutil.rmtree(self.directory)
        self._disown()

    def kill(self, node: int | None = None) -> None:
        """End one broker, or all, as a crash would; `restart` brings them back with their data.

        A commit is acknowledged before its markers are written. If no broker is left to write them, Kafka 4.3.1
        forgets them at the restart (KAFKA-20734: a partition without a leader is taken for a deleted one), and
        `read_committed` stops before that transaction for good. A transaction that a reader has seen is safe.
        """
        end([broker for broker in self.brokers if node in {None, broker.node.id}], signal.SIGKILL)

    def restart(self) -> None:
        """Start what was killed again: same data, same ports."""
        self.start()

    def __enter__(self) -> Self:
        if read_layout(self.directory) is not None and self.is_running:
            raise StackError(f"stack {self.name!r} runs already and is not ours to end: stop it first")
        self._is_owned = True
        try:
            return self.start()
        except BaseException:
            self._discard()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    def _discard(self) -> None:
        if self._owner is not None and read_layout(self.directory) is not None:
            self.stop()
        self._disown()

    def _settle(self) -> Layout:
        """Decide on the layout and write it down, and that it is ours if it is."""
        kept = read_layout(self.directory)
        layout = self._choose_layout(kept)
        if self._asked_settings is not None:
            layout = msgspec.structs.replace(layout, settings=dict(self._asked_settings))
        up = set() if kept is None else {broker.node for broker in self.brokers if broker.pid is not None}
        ports.require_free(port for node in layout.nodes if node not in up for port in node.ports)
        write_layout(self.directory, layout)
        if self._is_owned and self._owner is None:
            self._owner = (self.directory / _OWNER).open("w")
            fcntl.flock(self._owner, fcntl.LOCK_EX)
        return layout

    def _disown(self) -> None:
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def _choose_layout(self, kept: Layout | None) -> Layout:
        """Return the layout to start with: the kept one as far as it is what was asked for."""
        avoid = frozenset[int]().union(*(layout.ports for _, layout in layouts(self._run)))
        if kept is None:
            return plan(brokers=self._asked_brokers or 1, port=self._asked_port, avoid=avoid)
        brokers = len(kept.nodes)
        if self._asked_brokers not in {None, brokers}:
            raise StackError(f"stack {self.name!r} has {brokers} broker(s): stop it first, without keeping its data")
        if self._asked_port in {None, kept.nodes[0].port}:
            return kept
        if self.is_running:
            raise StackError(f"stack {self.name!r} runs at {kept.bootstrap_servers}: stop it first")
        moved = plan(brokers=brokers, port=self._asked_port, avoid=avoid)
        return msgspec.structs.replace(moved, cluster_id=kept.cluster_id, settings=kept.settings)

    def _wait_until_ready(self) -> None:
        everyone = frozenset(broker.node.id for broker in self.brokers)
        deadline = time.monotonic() + _READY_SECONDS
        while not all(registered_nodes(broker.node.port) == everyone for broker in self.brokers):
            for broker in self.brokers:
                if broker.pid is None:
                    raise StackError(f"broker {broker.node.id} ended while starting. {broker.log_tail()}")
            if time.monotonic() > deadline:
                tails = "\n".join(broker.log_tail() for broker in self.brokers)
                raise StackError(f"stack {self.name!r} is not ready after {_READY_SECONDS} s. {tails}")
            time.sleep(_POLL_SECONDS)


def _sweep(run: Path) -> None:
    """Delete the stacks whose owner was killed; where the kernel does not end their brokers, end them here."""
    for name, layout in layouts(run):
        if _is_abandoned(run / name / _OWNER):
            end(brokers_in(run / name, layout), signal.SIGKILL)
            shutil.rmtree(run / name)


def _is_abandoned(owner: Path) -> bool:
    """Whether there was an owner and is none; no file means that there was none, or that it is cleaning up."""
    try:
        with owner.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True
