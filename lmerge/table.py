"""The table that a topic stands for, over all partitions: what is valid at an instant, and how far that is final."""

from collections import Counter
from collections.abc import Iterable, Iterator

from lmerge.elements import MINUS_INFINITY, Element, Hello, Payload
from lmerge.errors import UsageError
from lmerge.live_events import LiveEvents
from lmerge.tdb import Event


class Table:
    """The events of several partitions; it grows with every event until it is told to forget.

    >>> from lmerge import Insert, Stable
    >>> table = Table([0, 1])
    >>> for offset, element in enumerate([Insert(b'"A"', 6, 12), Stable(20)]):
    ...     table.apply(0, element, offset)
    >>> table.apply(1, Insert(b'"B"', 8, 10), 0)
    >>> table.apply(1, Stable(9), 1)
    >>> table.at(9), table.stable
    (Counter({b'"A"': 1, b'"B"': 1}), 9)

    Args:
        partitions: which partitions.
        whole: that they are read from their beginning. If not, events whose inserts are not read are missing, unless
            they are adjusted later.
    """

    def __init__(self, partitions: Iterable[int], *, whole: bool = True) -> None:
        whole_from = 0 if whole else _ALWAYS
        self._live = {partition: LiveEvents(whole_from=whole_from) for partition in partitions}
        self._final: dict[int, Counter[Event]] = {partition: Counter() for partition in self._live}
        self._forgotten = MINUS_INFINITY

    @property
    def stable(self) -> int:
        """What is before this does not change any more: the smallest stable of all partitions."""
        return min(live.stable for live in self._live.values())

    def apply(self, partition: int, element: Element, offset: int) -> None:
        """Take the element at an offset of a partition; a hello voids what its partition said before.

        Raises:
            IllegalElement: the partition's own earlier elements rule it out.
        """
        finals = self._live[partition].apply(element, offset)
        self._final[partition].update(final.event for final in finals)
        if isinstance(element, Hello):
            self._final[partition].clear()

    def at(self, t: int) -> Counter[Payload]:
        """Return the payloads that are valid at the instant `t`, and how often each; final if ``t < stable``.

        It looks at all events.

        Raises:
            UsageError: events that were valid then are forgotten.
        """
        if t + 1 < self._forgotten:
            raise UsageError(f"table at {t}: what ended before {self._forgotten} is forgotten")
        return Counter(event.payload for event in self if event.vs <= t < event.ve)

    def forget(self, before: int) -> None:
        """Drop the final events with ``ve < before``, so that the table stays small."""
        self._forgotten = max(self._forgotten, before)
        for partition, final in self._final.items():
            kept = {event: count for event, count in final.items() if event.ve >= before}
            self._final[partition] = Counter(kept)

    def __iter__(self) -> Iterator[Event]:
        for final in self._final.values():
            yield from final.elements()
        for live in self._live.values():
            yield from live

    def __len__(self) -> int:
        return sum(map(Counter.total, self._final.values())) + sum(map(len, self._live.values()))


_ALWAYS = 2**63
"""Later than every offset."""
