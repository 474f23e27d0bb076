"""Looking at the demo from outside: the status over REST, and every record of the topics, as a consumer sees them."""

import time
from typing import Final

from deploy.demo import query
from deploy.demo.observe import Tally, View, leader, longest_gap_since, merged_stable, replica_view
from deploy.demo.rest import MergeApi
from lmerge.kafka import KafkaSettings, MissingTopic, PartitionReader, TopicAdmin
from lmerge.kafka.closing import Closing

LOOK_SECONDS: Final = 0.25


def now_ms() -> int:
    """Tell the time of the wall clock, which is that of the records' timestamps."""
    return time.time_ns() // 1_000_000


class Watch(Closing):
    """Follows the topics and asks the merge service.

    Args:
        settings: the cluster.
        api: the merge service.
        began: when the demo began, by the monotonic clock.
    """

    def __init__(self, settings: KafkaSettings, api: MergeApi, began: float) -> None:
        self._api = api
        self._began = began
        self._admin = TopicAdmin(settings)
        self._reader = PartitionReader(settings)
        self._tallies: dict[str, dict[int, Tally]] = {}
        self.replicas: dict[str, str] = {}
        """The replicas to show, and what to call each while the merge service does not know it."""
        self.halted: dict[str, str] = {}
        """The replicas whose processes are gone or stopped, and what to call that."""
        self.calm_since_ms: int | None = None
        """From when on gaps are counted."""
        self.ended_ms: int | None = None
        """Until when: once the rows have ended there is nothing to commit."""

    def follow(self, topic: str) -> bool:
        """Read a topic too, from its beginning; False if it does not exist yet."""
        if topic in self._tallies:
            return True
        try:
            partitions = self._admin.describe(topic)[topic].partitions
        except MissingTopic:
            return False
        self._tallies[topic] = {partition: Tally() for partition in range(partitions)}
        self._reader.add({(topic, partition): 0 for partition in range(partitions)})
        return True

    def look(self) -> View:
        """Read for a moment, ask, and describe what is there."""
        deadline = time.monotonic() + LOOK_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for record in self._reader.poll(left):
                self._tallies[record.topic][record.partition].add(record.timestamp)
        return self._view()

    def merged_times(self) -> dict[int, list[int]]:
        """Give the times of all commits to the merged topic, by partition."""
        return {partition: tally.times for partition, tally in self._tallies.get(query.MERGED_TOPIC, {}).items()}

    def _close(self) -> None:
        self._reader.close()

    def _view(self) -> View:
        lanes = self._api.lanes()
        now = now_ms()
        merged = self._tallies.get(query.MERGED_TOPIC, {}).values()
        last = [tally.times[-1] for tally in merged if tally.times]
        since, until = self.calm_since_ms, self.ended_ms or now
        return View(
            elapsed=time.monotonic() - self._began,
            now_ms=now,
            replicas=tuple(
                replica_view(
                    name,
                    query.PLANS[name],
                    lanes,
                    absent=absent,
                    halted=self.halted.get(name, ""),
                    per_second=self._per_second(query.replica_topic(name), now),
                )
                for name, absent in self.replicas.items()
            ),
            lanes=tuple(lanes),
            leader=leader(lanes),
            stable=merged_stable(lanes),
            per_second=self._per_second(query.MERGED_TOPIC, now),
            elements=sum(tally.count for tally in merged),
            gap_ms=max(0, now - min(last)) if last else None,
            longest_gap_ms=None if since is None else longest_gap_since(self.merged_times(), since, until),
        )

    def _per_second(self, topic: str, now: int) -> float:
        return sum(tally.per_second(now) for tally in self._tallies.get(topic, {}).values())
