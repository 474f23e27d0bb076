"""The desired state, as `lmerge.control` has it (`control_topic.py`).

The document of a merge holds its definition, its origin and its inputs, so that every change is one record and takes
effect as a whole. A change is decided (`desired.py`), written, and only then seen by anybody.
"""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from services.merge.control_topic import TOPIC, apply, to_record
from services.merge.definitions import Desired


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
                apply(desired, record)
                self._offset = record.offset + 1
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
            with self._writer.transaction():
                self._writer.write(self._topic, 0, [to_record(name, then)])
            self._offset += 2  # the record and its marker; a lower bound is enough for a lane record
            rest = {other: each for other, each in self._desired.items() if other != name}
            self._desired = MappingProxyType(rest if then is None else {**rest, name: then})
            return then

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()
