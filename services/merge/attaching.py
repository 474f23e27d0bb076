"""Looking at the topics of inputs, beside the loop: one that does not answer holds no lane.

For inputs that are to be attached, and for those whose records are gone. There is one look at a time for each
attachment, by one connection, for all lanes that want it. What it has found is collected in a later step. Who did not
answer is looked at again after a pause, and so is a topic that is missing: one broker of several may not have heard of
it yet.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from typing import Final, NamedTuple, TypeAlias

from lmerge.kafka import BrokerError, KafkaSettings, MissingTopic, RetryError, TailReader, TopicAdmin
from services.merge.definitions import Attachment

AGAIN_SECONDS: Final = 1.0
"""Pause before a topic that did not answer is looked at again."""

MISSES: Final = 5
"""So many looks in a row must miss a topic before that is believed: brokers learn of a new one in a second or two."""

LOOK_SECONDS: Final = 5.0
"""How long one partition may take to answer: those that are looked at after it wait."""


class Extent(NamedTuple):
    """One partition of an input: where its records begin, and the offset after the last one."""

    topic_id: str
    low: int
    until: int


Found: TypeAlias = Mapping[int, Extent | BrokerError]
"""By partition, what was found, or why nothing can be."""

Look: TypeAlias = Callable[[str, Collection[int]], Found]
"""Looks at partitions of a topic."""


class Looks:
    """Looks at the topics of inputs; for one thread, which is never held.

    Args:
        pool: where to look; not the one that commits.
        look: how.
    """

    def __init__(self, pool: Executor, look: Look) -> None:
        self._pool = pool
        self._look = look
        self._pending: dict[str, Future[Found]] = {}
        self._not_before: dict[str, float] = {}
        # How many looks in a row have missed something of an attachment's topic; gone when that was told.
        self._misses: dict[str, int] = {}

    def at(self, wanted: Attachment, partitions: Collection[int]) -> Found:
        """Return what was found of an input in the meantime, in some of these partitions or in others.

        What is missing will be there at a later call.
        """
        key = wanted.attachment
        pending = self._pending.get(key)
        if pending is None:
            if time.monotonic() >= self._not_before.get(key, 0.0):
                self._pending[key] = self._pool.submit(self._look, wanted.definition.topic, [*partitions])
            return {}
        if not pending.done():
            return {}
        del self._pending[key]
        found = pending.result()
        again = (RetryError,) if self._is_missing(key, found) else (RetryError, MissingTopic)
        answered = {where: each for where, each in found.items() if not isinstance(each, again)}
        if len(answered) < len(found):
            self._not_before[key] = time.monotonic() + AGAIN_SECONDS
        return answered

    def _is_missing(self, key: str, found: Found) -> bool:
        """Count the looks that missed something; tell whether it is to be believed by now. No answer tells nothing."""
        if all(isinstance(each, RetryError) for each in found.values()):
            return False
        misses = self._misses.pop(key, 0) + 1
        if not any(isinstance(each, MissingTopic) for each in found.values()):
            return False
        if misses < MISSES:
            self._misses[key] = misses
        return misses >= MISSES

    def keep(self, wanted: Collection[Attachment]) -> None:
        """Forget all attachments but these."""
        keys = {each.attachment for each in wanted}
        self._pending = {key: each for key, each in self._pending.items() if key in keys}
        self._not_before = {key: each for key, each in self._not_before.items() if key in keys}
        self._misses = {key: each for key, each in self._misses.items() if key in keys}


def look(settings: KafkaSettings, admin: TopicAdmin, topic: str, partitions: Collection[int]) -> Found:
    """Look at partitions of a topic; it may take as long as the broker does."""
    try:
        topic_id = admin.describe(topic)[topic].topic_id
    except BrokerError as error:
        return dict.fromkeys(partitions, error)
    found: dict[int, Extent | BrokerError] = {}
    with TailReader(settings, timeout_seconds=LOOK_SECONDS) as reader:
        for partition in partitions:
            try:
                found[partition] = Extent(topic_id, *extent(reader, topic, partition))
            except BrokerError as error:
                found[partition] = error
    return found


def extent(reader: TailReader, topic: str, partition: int) -> tuple[int, int]:
    """Return where the records of a partition begin, and the offset after the last one.

    Raises:
        BrokerError: it cannot be read.
    """
    low = reader.watermarks(topic, partition).low
    tail = reader.read_tail(topic, partition)
    return low, low if tail is None else tail.offset + 1
