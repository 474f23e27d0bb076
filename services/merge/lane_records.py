"""The committed lane records of all lanes, whoever owns them: asked of Kafka when somebody looks at REST."""

import threading

from lmerge.kafka import KafkaSettings, MissingTopic, TailReader
from services.merge.definitions import Desired
from services.merge.lane_record import LaneRecord, decode


class LaneRecords:
    """Reads lane records; safe to use from any thread, one at a time. About 5 ms for each lane.

    Args:
        settings: the cluster.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._lock = threading.Lock()
        self._reader = TailReader(settings)

    def read(self, merge: str, desired: Desired) -> list[LaneRecord | None]:
        """Return the last committed record of each lane; None where nothing is committed yet.

        Raises:
            UnreadableRecord: a process of another version has written it.
            BrokerError: the broker does not answer.
        """
        topic = desired.definition.state(merge)
        return [self._read(topic, partition) for partition in range(desired.definition.partitions)]

    def _read(self, topic: str, partition: int) -> LaneRecord | None:
        with self._lock:
            try:
                tail = self._reader.read_tail(topic, partition)
            except MissingTopic:
                return None
        return None if tail is None or tail.value is None else decode(tail.value)

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            self._reader.close()
