"""The logical side of a stream: the temporal database (TDB) that a prefix of it reconstitutes to (paper 000, III-A).

A TDB is a multiset of events; two prefixes are *equivalent* when their TDBs are equal. A `Stable(vc)` freezes parts of
it (III-C, after R4). With the last stable point vc, an event ``<payload, [vs, ve)>`` is

    UNFROZEN       vs >= vc          it may still change or go
    HALF_FROZEN    vs < vc <= ve     an event with this payload and vs will be there for ever; its end may change
    FULLY_FROZEN   ve < vc           (strict) it will be there for ever as it is

This module is the reference for what elements mean: plain, checked, and slower than the algorithms need to be.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from lmerge.elements import MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable, show_time
from lmerge.errors import IllegalElement


class Event(msgspec.Struct, frozen=True, order=False):
    """A logical row: `payload`, valid in ``[vs, ve)``."""

    payload: Payload
    vs: int
    ve: int

    def __repr__(self) -> str:
        return f"Event({self.payload!r}, {show_time(self.vs)}, {show_time(self.ve)})"


class Freeze(enum.Enum):
    """How much of an event can still change (paper 000, III-C)."""

    UNFROZEN = "unfrozen"
    HALF_FROZEN = "half frozen"
    FULLY_FROZEN = "fully frozen"


def freeze(vs: int, ve: int, vc: int) -> Freeze:
    """Return the freeze level of an event ``[vs, ve)`` under the stable point `vc`.

    >>> freeze(6, 12, 6).value, freeze(6, 12, 12).value, freeze(6, 12, 13).value
    ('unfrozen', 'half frozen', 'fully frozen')
    """
    if vs >= vc:
        return Freeze.UNFROZEN
    return Freeze.FULLY_FROZEN if ve < vc else Freeze.HALF_FROZEN


class TDB:
    """A multiset of events, with the stable point that has been reached.

    Two TDBs are equal when they hold the same events; the stable point, which says how far they are final, is not
    compared.

    >>> tdb = reconstitute([Insert("A", 6, 20), Adjust("A", 6, 20, 12), Insert("B", 8, 10), Stable(11)])
    >>> tdb == TDB([Event("B", 8, 10), Event("A", 6, 12)])
    True
    >>> tdb.freeze(Event("B", 8, 10)).value, tdb.freeze(Event("A", 6, 12)).value
    ('fully frozen', 'half frozen')
    """

    def __init__(self, events: Iterable[Event] = (), *, stable: int = MINUS_INFINITY) -> None:
        self._events = Counter(events)
        self._stable = stable

    @property
    def stable(self) -> int:
        """The largest stable point so far; MINUS_INFINITY before the first."""
        return self._stable

    def apply(self, element: Element) -> None:
        """Take one more element of the stream.

        Raises:
            IllegalElement: the stream's own stable point, or the lack of the adjusted event, rules the element out.
                The TDB is unchanged.
        """
        match element:
            case Insert(payload, vs, ve):
                self._require(element, vs >= self._stable)
                self._events[Event(payload, vs, ve)] += 1
            case Adjust(payload, vs, vold, ve):
                self._require(element, vold >= self._stable and ve >= self._stable)
                self._replace(element, Event(payload, vs, vold), Event(payload, vs, ve))
            case Stable(vc):
                self._require(element, vc >= self._stable)
                self._stable = vc
            case Hello():  # a new incarnation: what came before it in the topic is void (design section 3)
                self._events.clear()
                self._stable = MINUS_INFINITY
            case Skip():
                pass  # it says what the stream lacks and changes nothing that it has
            case _:
                assert_never(element)

    def _require(self, element: Element, legal: bool) -> None:
        if not legal:
            raise IllegalElement(f"{element} comes after Stable({show_time(self._stable)})")

    def _replace(self, element: Adjust, old: Event, new: Event) -> None:
        if not self._events[old]:
            raise IllegalElement(f"{element} adjusts an event that does not exist")
        self._events[old] -= 1
        if not self._events[old]:
            del self._events[old]
        if new.ve > new.vs:  # an adjust to ve == vs removes the event
            self._events[new] += 1

    def freeze(self, event: Event) -> Freeze:
        """Return the freeze level of an event under this TDB's stable point."""
        return freeze(event.vs, event.ve, self._stable)

    def snapshot(self, t: int) -> Counter[Payload]:
        """Return the multiset of payloads that are valid at the instant `t`."""
        valid: Counter[Payload] = Counter()
        for event, count in self._events.items():
            if event.vs <= t < event.ve:
                valid[event.payload] += count
        return valid

    def frozen(self, before: int) -> "TDB":
        """Return the events with ``ve < before``: all that ``Stable(before)`` would freeze for good."""
        return TDB(event for event in self if event.ve < before)

    def count(self, event: Event) -> int:
        """Return how many times the event is there."""
        return self._events.get(event, 0)

    def __contains__(self, event: object) -> bool:
        return event in self._events

    def __iter__(self) -> Iterator[Event]:
        return self._events.elements()

    def __len__(self) -> int:
        return self._events.total()

    def __eq__(self, other: object) -> bool:
        return self._events == other._events if isinstance(other, TDB) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes with every element

    def __repr__(self) -> str:
        events = sorted(self, key=lambda event: (event.vs, event.ve, repr(event.payload)))
        return f"TDB({events}, stable={show_time(self._stable)})"


def reconstitute(elements: Iterable[Element]) -> TDB:
    """Return the TDB of a stream prefix: the paper's tdb(S, i).

    Raises:
        IllegalElement: an element breaks the stream's own promises.
    """
    tdb = TDB()
    for element in elements:
        tdb.apply(element)
    return tdb
