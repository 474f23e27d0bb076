"""The events of one partition that can still change, each with the offset of the record that brought it.

A reader that starts again has to read only from the oldest such offset on: what lies before it is about events that are
final, or gone. But it then meets adjusts of those, whose inserts it does not see. They are recognised by the fact that
nothing fits, and taken for inserts: their events become final in the same places again.

For that, *which* of several equal events an adjust means has to be decided alike in both readings. It is the one that
came last. If an event that came at or after offset s fits, then whatever the reader from s on does not know came
earlier and is not meant; if none fits, nothing that it knows is meant.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, assert_never

from sortedcontainers import SortedDict, SortedList

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable, show_time
from lmerge.errors import IllegalElement
from lmerge.tdb import Event

_Key: TypeAlias = tuple[int, int, Payload]
"""ve, vs, payload: in this order events become final."""


def ends_before(ve: int, vc: int) -> bool:
    """Tell whether an event that ends at `ve` is final under ``Stable(vc)``; the last stable ends endless ones too."""
    return ve < vc or vc == INFINITY


class Final(NamedTuple):
    """An event that does not change any more, and the offset of its insert."""

    event: Event
    origin: int


class LiveEvents:
    """What one partition says of its events that are not final; payloads must be comparable, as bytes are.

    An insert or adjust costs O(log n) for n live events, a stable O(log n) for each event that it freezes.

    Args:
        start: the offset at which reading begins.
        whole_from: adjusts before this offset may be about events whose insert lies before `start`.
    """

    def __init__(self, *, start: int = 0, whole_from: int = 0) -> None:
        self.stable = MINUS_INFINITY
        self._start = start
        self._whole_from = whole_from
        # The offsets of the inserts of equal events, ascending.
        self._origins: SortedDict[_Key, list[int]] = SortedDict()
        self._all_origins: SortedList[int] = SortedList()

    @property
    def oldest(self) -> int | None:
        """The smallest offset from which all of these events can be read again; None if there is none."""
        return self._all_origins[0] if self._all_origins else None

    def __len__(self) -> int:
        return len(self._all_origins)

    def __iter__(self) -> Iterator[Event]:
        for (ve, vs, payload), origins in self._origins.items():
            for _ in origins:
                yield Event(payload, vs, ve)

    def apply(self, element: Element, offset: int) -> list[Final]:
        """Take the element at an offset; return the events that it makes final, ordered by ve, vs, payload.

        Raises:
            IllegalElement: the partition's own earlier elements rule it out. Nothing is changed.
        """
        match element:
            case Insert(payload, vs, ve):
                self._require(element, vs >= self.stable)
                self._add((ve, vs, payload), offset)
            case Adjust(payload, vs, vold, ve):
                self._require(element, vold >= self.stable and ve >= self.stable)
                if vold != ve:
                    origin = self._take(element, offset, (vold, vs, payload))
                    if ve > vs:  # an adjust to ve == vs removes the event
                        self._add((ve, vs, payload), origin)
            case Stable(vc):
                self._require(element, vc >= self.stable)
                self.stable = vc
                return self._freeze(vc)
            case Hello():  # a new incarnation: what came before it is void
                self._origins.clear()
                self._all_origins.clear()
                self.stable = MINUS_INFINITY
            case Skip():
                pass  # it says what the stream lacks and changes nothing that it has
            case _:
                assert_never(element)
        return []

    def _require(self, element: Element, legal: bool) -> None:
        if not legal:
            raise IllegalElement(f"{element} comes after Stable({show_time(self.stable)})")

    def _add(self, key: _Key, origin: int) -> None:
        origins = self._origins.setdefault(key, [])
        origins.append(origin)
        origins.sort()  # nearly always it is one, or came last
        self._all_origins.add(origin)

    def _take(self, element: Adjust, offset: int, key: _Key) -> int:
        origins = self._origins.get(key)
        if origins is None:
            if offset >= self._whole_from:
                raise IllegalElement(f"{element} adjusts an event that does not exist")
            return self._start
        origin = origins.pop()
        if not origins:
            del self._origins[key]
        self._all_origins.remove(origin)
        return origin

    def _freeze(self, vc: int) -> list[Final]:
        finals: list[Final] = []
        while self._origins and ends_before(self._origins.peekitem(0)[0][0], vc):
            (ve, vs, payload), origins = self._origins.popitem(0)
            finals += [Final(Event(payload, vs, ve), origin) for origin in origins]
            for origin in origins:
                self._all_origins.remove(origin)
        return finals
