"""The desired state of all merges, as `lmerge.control` has it (`control_topic.py`), shared by all processes.

The document of a merge holds its definition, its origin and its inputs, so that every change is one record and takes
effect as a whole. Any process may change it: whoever wants to, fences, reads to the end, decides and writes. As long as
nobody else has done so it need not fence again; if somebody has, its commit is refused and it begins anew. So changes
are in one order, and each was decided on all before it.

Beside each change goes, in the same transaction, a record to `lmerge.audit`: who, when, what and why.
"""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from lmerge.kafka import BrokerError, Fenced, KafkaSettings, RebuildError, TailReader, TopicAdmin
from lmerge.kafka import TransactionalWriter as Writer
from services.clock import now_ms
from services.merge.control_topic import apply, to_record
from services.merge.definitions import Changed, Desired
from services.merge.topics import AUDIT, CONTROL

_ATTEMPTS: Final = 10
"""How often a change is begun anew because another process came between."""

Decide = Callable[[Desired | None], Desired | None]


class Control:
    """The desired state of all merges; safe to use from any thread.

    Args:
        settings: the cluster.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = CONTROL.name
        self._lock = threading.Lock()
        self._desired: Mapping[str, Desired] = MappingProxyType({})
        self._offset = 0
        self._writer: Writer | None = None
        TopicAdmin(settings).ensure(CONTROL, AUDIT)
        self._reader = TailReader(settings)
        self._offset = self._reader.watermarks(self._topic, 0).low
        self.follow()

    @property
    def desired(self) -> Mapping[str, Desired]:
        """What is wanted now; another object after every change."""
        return self._desired

    @property
    def offset(self) -> int:
        """How much of the control topic is applied."""
        return self._offset

    def follow(self) -> None:
        """Apply what was written meanwhile, by whichever process.

        Raises:
            UnreadableControl: by one of a newer version.
            BrokerError: the topic cannot be read.
        """
        with self._lock:
            self._catch_up()

    def change(self, name: str, decide: Decide, *, by: str, what: str, why: str = "") -> Desired | None:
        """Decide on a merge and make the decision durable; None removes it.

        Raises:
            LMergeError: what `decide` raises; nothing is changed then.
            BrokerError: it could not be written.
        """
        changed = Changed(by=by, at_ms=now_ms(), why=why, what=what)
        with self._lock:
            for _ in range(_ATTEMPTS):
                try:
                    return self._change(name, decide, changed)
                except (Fenced, RebuildError) as error:
                    self._drop_writer()
                    last: BrokerError = error
                except BrokerError:  # a new writer is made for the next change: this one may be broken
                    self._drop_writer()
                    raise
            raise last

    def close(self) -> None:
        """Drop the connections."""
        with self._lock:
            self._drop_writer()
            self._reader.close()

    def _change(self, name: str, decide: Decide, changed: Changed) -> Desired | None:
        writer = self._fenced_writer()
        now = self._desired.get(name)
        then = decide(now)
        if then == now:
            return now
        if then is not None:
            then = then.model_copy(update={"changed": changed})
        entry = {"merge": name, **changed.model_dump(), "wanted": None if then is None else then.model_dump()}
        with writer.transaction():
            writer.write(self._topic, 0, [to_record(name, then)])
            writer.write(AUDIT.name, 0, [(name.encode(), msgspec.json.encode(entry))])
        self._reader.require_decided(self._topic, 0)  # visible some milliseconds after the commit
        self._catch_up()
        return then

    def _fenced_writer(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self._settings, self._topic)
            self._writer.fence()
            self._reader.require_decided(self._topic, 0)
        self._catch_up()
        return self._writer

    def _catch_up(self) -> None:
        end = self._reader.watermarks(self._topic, 0).end
        if end <= self._offset:
            return
        desired = dict(self._desired)
        for batch in self._reader.read_range(self._topic, 0, start=self._offset, end=end):
            for record in batch:
                apply(desired, record)
        if desired != self._desired:
            self._desired = MappingProxyType(desired)
        self._offset = end  # last: who sees it may rely on what is wanted

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
