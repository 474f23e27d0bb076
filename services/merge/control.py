"""`lmerge.control`: the desired state, one compacted record per merge, key ``merge/<name>``.

The document of a merge holds its definition, its origin and its inputs, so that every change is one record and takes
effect as a whole. A change is decided (`desired.py`), written, and only then seen by anybody.
"""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from lmerge.errors import LMergeError
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from services.merge.definitions import Desired

TOPIC: Final = "lmerge.control"
_KEY_PREFIX: Final = b"merge/"


class UnreadableControl(LMergeError):
    """The control topic holds something that this service cannot read."""


class Control:
    """The desired state of all merges; safe to use from the loop and from REST at once.

    Args:
        settings: the cluster.
        topic: the control topic.
    """

    def __init__(self, settings: KafkaSettings, *, topic: str = TOPIC) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._desired: Mapping[str, Desired] = MappingProxyType({})
        self._offset = 0
        TopicAdmin(settings).ensure(TopicSpec(topic, partitions=1, config={"cleanup.policy": "compact"}))
        self._writer = TransactionalWriter(settings, topic)
        self._writer.fence()
        with TailReader(settings) as reader:
            reader.require_decided(topic, 0)
            self._load(reader)

    def _load(self, reader: TailReader) -> None:
        desired: dict[str, Desired] = {}
        for batch in reader.read_range(self._topic, 0, start=reader.watermarks(self._topic, 0).low):
            for record in batch:
                name = (record.key or b"").removeprefix(_KEY_PREFIX).decode()
                self._offset = record.offset + 1
                if record.value is None:
                    desired.pop(name, None)
                    continue
                try:
                    desired[name] = Desired.model_validate_json(record.value)
                except ValidationError as error:
                    where = f"{self._topic}/0 at offset {record.offset}"
                    raise UnreadableControl(f"{where}: no definition of a merge: {error}") from error
        self._desired = MappingProxyType(desired)

    @property
    def desired(self) -> Mapping[str, Desired]:
        """What is wanted now; another object after every change."""
        return self._desired

    @property
    def offset(self) -> int:
        """How much of the control topic is applied."""
        return self._offset

    def change(self, name: str, decide: Callable[[Desired | None], Desired | None]) -> Desired | None:
        """Decide on a merge and make the decision durable; None removes it.

        Raises:
            LMergeError: what `decide` raises; nothing is changed then.
            BrokerError: it could not be written.
        """
        with self._lock:
            now = self._desired.get(name)
            then = decide(now)
            if then == now:
                return now
            value = None if then is None else then.model_dump_json().encode()
            with self._writer.transaction():
                self._writer.write(self._topic, 0, [(_KEY_PREFIX + name.encode(), value)])
            self._offset += 2  # the record and its marker; a lower bound is enough for a lane record
            rest = {other: each for other, each in self._desired.items() if other != name}
            self._desired = MappingProxyType(rest if then is None else {**rest, name: then})
            return then

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()
