"""The committed lane records of all lanes, whoever owns them: asked of Kafka when somebody looks at REST."""

import threading

from lmerge.kafka import KafkaSettings, MissingTopic, RetryError, TailReader
from services.merge.definitions import Desired
from services.merge.lane_record import LaneRecord, decode


class LaneRecords:
    """Reads lane records; safe to use from any thread, one at a time. About 5 ms for each lane.

    Args:
        settings: the cluster.
        timeout_seconds: how long to wait for the broker; and, before that, for those who wait for it already.
    """

    def __init__(self, settings: KafkaSettings, *, timeout_seconds: float) -> None:
        self._lock = threading.Lock()
        self._timeout_seconds = timeout_seconds
        self._reader = TailReader(settings, timeout_seconds=timeout_seconds)

    def read(self, merge: str, desired: Desired) -> list[LaneRecord | None]:
        """Return the last committed record of each lane; None where nothing is committed yet.

        Raises:
            UnreadableRecord: a process of another version has written it.
            BrokerError: the broker does not answer.
        """
        topic = desired.definition.state(merge)
        return [self._read(topic, partition) for partition in range(desired.definition.partitions)]

    def _read(self, topic: str, partition: int) -> LaneRecord | None:
        if not self._lock.acquire(timeout=self._timeout_seconds):
            raise RetryError(f"cannot read {topic}/{partition}: others wait for the broker; {RetryError.advice}")
        try:
            tail = self._reader.read_tail(topic, partition)
        except MissingTopic:
            return None
        finally:
            self._lock.release()
        return None if tail is None or tail.value is None else decode(tail.value)

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            self._reader.close()
