"""How far a replica may skip: what the lanes of its merge have told it (recovery-and-sink.md 8; paper 000, V-D)."""

import logging
from collections.abc import Callable
from typing import Final

from lmerge.errors import UsageError
from lmerge.kafka import BrokerError, Record, RecordsGone, TailReader
from lmerge.signals import Signal

log = logging.getLogger(__name__)

_PARTITION: Final = 0
"""Signals of all lanes stand in one partition."""


class Told:
    """What one input was told by each lane. Pure.

    A row may give results in any lane, so only what no lane needs may be skipped: the minimum over the lanes, and
    nothing until all of them have spoken (F5). A merge that was deleted and made anew under its name is another one,
    and may have committed less: what the former said is forgotten.

    >>> told = Told("r2", lanes=2)
    >>> told.hear(Signal(id="m/0/1", input="r2", partition=0, before=100))
    >>> told.before
    >>> told.hear(Signal(id="m/1/1", input="r2", partition=1, before=70))
    >>> told.before
    70
    """

    def __init__(self, name: str, lanes: int) -> None:
        self._name = name
        self._lanes = range(lanes)
        self._by_lane: dict[int, int] = {}
        self._merge_id = ""

    def hear(self, signal: Signal) -> None:
        """Take a signal; those to others, and to lanes that there are not, say nothing."""
        if signal.input == self._name and signal.partition in self._lanes:
            if signal.merge_id != self._merge_id:
                self._by_lane.clear()
                self._merge_id = signal.merge_id
            self._by_lane[signal.partition] = max(signal.before, self._by_lane.get(signal.partition, signal.before))

    @property
    def before(self) -> int | None:
        """No result with `ve < before` matters; None: all may."""
        return min(self._by_lane.values()) if len(self._by_lane) == len(self._lanes) else None


class Signals:
    """Reads what is new on the feedback topic of a merge.

    It begins where the topic ends when it is first looked at: what was said before was said to another process, and
    what still holds is said again after a while if the replica still lags.

    Args:
        reader: gives the reader to use; it is shared, and not pickled.
        topic: the feedback topic; that it does not exist means that nobody says anything.
        told: who listens.
    """

    def __init__(self, reader: Callable[[], TailReader], topic: str, told: Told) -> None:
        self._reader = reader
        self._topic = topic
        self._told = told
        self._next: int | None = None

    def before(self) -> int | None:
        """Look what is new, and return how far may be skipped. A broker that does not answer says nothing new."""
        try:
            self._listen()
        except BrokerError as error:
            log.debug("signals of %s cannot be read: %s", self._topic, error)
        return self._told.before

    def _listen(self) -> None:
        end = self._reader().watermarks(self._topic, _PARTITION).end
        begin = end if self._next is None else self._next
        if begin < end:
            try:
                for batch in self._reader().read_range(self._topic, _PARTITION, start=begin, end=end):
                    for record in batch:
                        self._hear(record)
            except RecordsGone as error:
                log.warning("signals of %s were not heard: %s", self._topic, error)
        self._next = end  # only now: what could not be read is read the next time

    def _hear(self, record: Record) -> None:
        try:
            self._told.hear(Signal.decode(record.value))
        except UsageError as error:
            log.warning("%s/%d at offset %d: %s", self._topic, _PARTITION, record.offset, error)
