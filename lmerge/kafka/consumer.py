"""Reading a merged topic: its elements, its final events, or the table that it holds now.

    with MergedReader(KafkaSettings("localhost:9092"), "hot.merged", group="billing") as reader:
        for event in reader.events():          # rows that do not change any more, each once
            book(event.payload, event.vs, event.ve)
            reader.commit()                    # what was handed out so far is done

`elements()` hands out what is in the topic, `events()` what is final, `table()` what is valid; one reader does one of
them. Only committed records are read. Nothing runs in the background and nothing is committed by itself: `commit()`
says that all that was handed out is done, and a later reader of the same group goes on after it. Who crashes before
that gets it again. Who must not, stores `positions` together with the results, in one transaction of its database, and
gives them back as `start`.

By default a reader reads all partitions, and so sees the whole table. Several processes share a topic by reading
different `partitions`; then "complete" is about those.
"""

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from lmerge.codec import decode_batch
from lmerge.elements import MINUS_INFINITY, Element, Hello, Stable
from lmerge.errors import IllegalElement, InputError, UsageError
from lmerge.final_events import FinalEvents, Gap, Position
from lmerge.kafka.closing import Closing
from lmerge.kafka.errors import RecordsGone
from lmerge.kafka.offsets import GroupOffsets
from lmerge.kafka.reader import PartitionReader
from lmerge.kafka.settings import KafkaSettings
from lmerge.kafka.tail import TailReader
from lmerge.kafka.topics import TopicAdmin
from lmerge.live_events import ends_before
from lmerge.table import Table
from lmerge.tdb import Event

_POLL_SECONDS: Final = 1.0
_TO_THE_END_SECONDS: Final = 0.02
"""How long a poll may wait where the end is looked for: what is there comes at once."""


class _Way(enum.Enum):
    ELEMENTS = "elements"
    EVENTS = "events"
    TABLE = "table"


class MergedElement(NamedTuple):
    """An element of the merged stream and where it is."""

    topic: str
    partition: int
    offset: int
    element: Element


class MergedReader(Closing):
    """Reads a merged topic in one of three ways; for one thread.

    Args:
        settings: the cluster.
        topic: the merged topic.
        group: under which name `commit()` stores positions, and where to look for earlier ones; none: nowhere.
        partitions: which partitions to read; none named: all.
        start: positions to begin at, by partition, as `positions` gave them; they win over committed ones.
        follow: whether to wait for more, for ever; if not, reading ends with what is committed now.
        accept_gap: begin in mid-stream where the beginning is gone, though events that began before will be missing.

    Raises:
        MissingTopic: there is no such topic.
        RetryError: nobody answered in time.
        UsageError: there is no such partition.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        group: str | None = None,
        partitions: Collection[int] | None = None,
        start: Mapping[int, Position] | None = None,
        follow: bool = True,
        accept_gap: bool = False,
    ) -> None:
        self.topic = topic
        self._settings = settings
        existing = range(TopicAdmin(settings).describe(topic)[topic].partitions)
        self.partitions = tuple(existing) if partitions is None else tuple(sorted(set(partitions)))
        self._start = {} if start is None else dict(start)
        if not self.partitions or not set(self.partitions) <= set(existing):
            raise UsageError(f"topic {topic} has partitions 0 to {len(existing) - 1}, not {self.partitions}")
        if not set(self._start) <= set(self.partitions):
            raise UsageError(f"start {self._start}: only {self.partitions} of topic {topic} are read")
        self._follow = follow
        self._accept_gap = accept_gap
        self._offsets = None if group is None else GroupOffsets(settings, group)
        self._reader = PartitionReader(settings)
        self._way: _Way | None = None
        # By partition, where what is committed ended when reading began: it is read at least up to there.
        self._ends: dict[int, int] = {}
        # By partition: of elements() the offsets and stables handed out, of events() what is final.
        self._next: dict[int, int] = {}
        self._stables = dict.fromkeys(self.partitions, MINUS_INFINITY)
        self._lanes: dict[int, FinalEvents] = {}
        self._table = Table(self.partitions, whole=not accept_gap)

    def elements(self) -> Iterator[MergedElement]:
        """Iterate over the elements of the merged stream, those of each partition in order.

        Raises:
            InputError: a record is no element. All before it in its partition were handed out.
            RecordsGone: the position is not in the log any more.
        """
        self._next = {partition: position.offset for partition, position in self._begin(_Way.ELEMENTS).items()}
        return self._elements()

    def events(self, *, in_order: bool = False) -> Iterator[Event]:
        """Iterate over the events that are final (``ve < stable`` of their own partition), each once.

        Those of each partition come in the order of (ve, vs, payload), however the stream was cut into stables.

        Args:
            in_order: keep this order over all partitions too, so that two readers get the same sequence. Then an event
                waits until all partitions are complete up to its end.

        Raises:
            InputError: a record is no element, or not one that may follow the others.
            RecordsGone: the records that are needed to begin are not in the log any more.
            UsageError: the group's positions are not those of a reader of events.
        """
        for partition, position in self._begin(_Way.EVENTS).items():
            self._require_whole(partition, position)
            self._lanes[partition] = FinalEvents(position, whole=not self._accept_gap)
        return self._events(in_order=in_order)

    def table(self) -> Table:
        """Read the whole topic, up to what is committed now, and return its table; `refresh` keeps it current.

        It grows with the topic: `Table.forget` what you do not ask for.

        Raises:
            InputError: a record is no element, or not one that may follow the others.
            RecordsGone: the log does not begin with its first record any more.
        """
        for partition, position in self._begin(_Way.TABLE).items():
            self._require_whole(partition, position)
        while not self._is_ended():
            self.refresh(_TO_THE_END_SECONDS)
        return self._table

    def refresh(self, timeout_seconds: float = 0.0) -> bool:
        """Take into the table what came since; wait for it up to so long, and tell whether anything came.

        Raises:
            InputError: a record is no element, or not one that may follow the others.
        """
        if self._way is not _Way.TABLE:
            raise UsageError(f"reader of {self.topic} has no table to refresh: call table() first")
        taken = False
        for item in self._poll(timeout_seconds):
            try:
                self._table.apply(item.partition, item.element, item.offset)
            except IllegalElement as error:
                raise _illegal(item, error) from error
            taken = True
        return taken

    @property
    def stable(self) -> int:
        """What ends before this was handed out (or is in the table) and is final: the minimum over the partitions."""
        if self._way is _Way.TABLE:
            return self._table.stable
        if self._way is _Way.EVENTS:
            return min(lane.complete for lane in self._lanes.values())
        return min(self._stables.values())

    @property
    def gaps(self) -> dict[int, list[Gap]]:
        """Where, in events(), a partition began anew and events may be missing for good."""
        return {partition: lane.gaps for partition, lane in self._lanes.items() if lane.gaps}

    @property
    def positions(self) -> dict[int, Position]:
        """Where a later reader has to begin, by partition, so that it goes on after what was handed out."""
        if self._way is _Way.EVENTS:
            return {partition: lane.position for partition, lane in self._lanes.items()}
        if self._way is _Way.ELEMENTS:
            return {partition: Position(offset) for partition, offset in self._next.items()}
        raise UsageError(f"reader of {self.topic} has no positions: a table is read from the beginning")

    def commit(self) -> None:
        """Store that all that was handed out is done. It takes some milliseconds: not after each of a million.

        Raises:
            RetryError: nobody answered in time; call it again.
            Refused: the broker does not allow it, or somebody subscribes with the group's name.
            UsageError: the reader has no group.
        """
        self._require_open()
        if self._offsets is None:
            raise UsageError(f"reader of {self.topic} cannot commit: give it a group")
        self._offsets.commit({(self.topic, partition): position for partition, position in self.positions.items()})

    def _close(self) -> None:
        self._reader.close()

    def _begin(self, way: _Way) -> dict[int, Position]:
        """Begin to read in one way, and return where."""
        self._require_open()
        if self._way is not None:
            raise UsageError(f"reader of {self.topic} reads {self._way.value}() already: make another one")
        found = {} if way is _Way.TABLE else {**self._committed(), **self._start}
        with TailReader(self._settings) as tail:
            for partition in self.partitions:
                low, self._ends[partition] = tail.watermarks(self.topic, partition)
                found.setdefault(partition, Position(low))
        for partition, position in found.items():
            if way is _Way.ELEMENTS and position.note:
                raise UsageError(
                    f"{self.topic}/{partition}: position {position} is one of events(), which lies further back; "
                    "use another group for elements()"
                )
        self._reader.add({(self.topic, partition): position.offset for partition, position in found.items()})
        self._way = way
        return found

    def _committed(self) -> dict[int, Position]:
        if self._offsets is None:
            return {}
        committed = self._offsets.committed((self.topic, partition) for partition in self.partitions)
        return {partition: position for (_, partition), position in committed.items()}

    def _require_whole(self, partition: int, position: Position) -> None:
        if position.offset > 0 and not position.note and not self._accept_gap:
            raise RecordsGone(
                f"{self.topic}/{partition} cannot be read from offset {position.offset} on without missing events: "
                "the log begins there, or it is a position of elements(); begin with a position of events(), or "
                "accept_gap=True"
            )

    def _elements(self) -> Iterator[MergedElement]:
        for item in self._items():
            self._next[item.partition] = item.offset + 1
            if isinstance(item.element, Stable):
                self._stables[item.partition] = item.element.vc
            elif isinstance(item.element, Hello):
                self._stables[item.partition] = MINUS_INFINITY
            yield item

    def _events(self, *, in_order: bool) -> Iterator[Event]:
        for item in self._items():
            try:
                self._lanes[item.partition].take(item.element, item.offset)
            except IllegalElement as error:
                raise _illegal(item, error) from error
            if isinstance(item.element, Stable):  # nothing else makes an event final
                while (lane := self._due(in_order=in_order)) is not None:
                    yield lane.hand_out()

    def _due(self, *, in_order: bool) -> FinalEvents | None:
        """Return the partition whose next event may be handed out, if one has any."""
        ready = [(lane.next, lane) for lane in self._lanes.values() if lane.next is not None]
        if not ready:
            return None
        if not in_order:
            return ready[0][1]
        event, lane = min(ready, key=lambda pair: (pair[0].ve, pair[0].vs, pair[0].payload))
        return lane if ends_before(event.ve, min(lane.stable for lane in self._lanes.values())) else None

    def _items(self) -> Iterator[MergedElement]:
        """Read on and on, or up to what is committed now."""
        while self._follow or not self._is_ended():
            yield from self._poll(_POLL_SECONDS if self._follow else _TO_THE_END_SECONDS)

    def _is_ended(self) -> bool:
        """Tell whether all was read that was committed when reading began: an end may be told too early (ADR 9)."""
        ended = self._reader.ended
        return all(ended.get((self.topic, partition), -1) >= end for partition, end in self._ends.items())

    def _poll(self, timeout_seconds: float) -> Iterator[MergedElement]:
        records = self._reader.poll(timeout_seconds)
        elements, error = decode_batch([record.value for record in records])
        for record, element in zip(records, elements, strict=False):
            yield MergedElement(record.topic, record.partition, record.offset, element)
        if error is not None:
            bad = records[error.index]
            raise InputError(f"{bad.topic}/{bad.partition} at offset {bad.offset} is no element: {error.reason}")


def _illegal(item: MergedElement, error: IllegalElement) -> IllegalElement:
    return IllegalElement(f"{item.topic}/{item.partition} at offset {item.offset}: {error}")
