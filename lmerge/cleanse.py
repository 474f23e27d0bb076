"""Cleanse: put a disordered, revised stream in order (paper 000, VI-D).

It takes any legal stream and puts out its fully frozen events as inserts in the order of (vs, ve, payload), so that R1
can merge the result (R0 if every vs comes once). The price is latency, which grows with the longest lifetime; R3 on the
raw stream is the better merge (VI-D, summary). It is here for consumers and operators that need order.

**State.** Events that have not been put out, sorted by (vs, ve, key of the payload); the input's stable and the
output's.

**Stable(vc)** releases the longest prefix of that order whose events are all fully frozen (``ve < vc``), then promises

    min(vc, vs of the first event still held).

*Right order.* What is held behind the prefix starts with an event that is not fully frozen: its vs is at least that of
all released, and at equal vs its end, now or after any later adjust, is at least ``vc`` and so beyond theirs. A later
insert has ``vs >= vc``, beyond the end of everything released. So at any time the output is a prefix of the final TDB
in that order, whatever the elements and stables which presented it: this is what R1 needs. Ordering ties by ve before
the payload is what lets an event go without waiting for longer ones with the same vs.

*Right stable.* Nothing can be put out later below the first event held, nor below vc; and any larger promise would be
broken by that event. At ``Stable(INFINITY)`` nothing can change any more, so all is released, events without end too.

**Cost.** O(log held) for an insert or adjust, O(released) for a stable. An event without end holds back all that start
after it until the stream closes: such a stream cannot be cleansed in bounded state.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, assert_never

from sortedcontainers import SortedKeyList

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable, show_time
from lmerge.errors import IllegalElement
from lmerge.properties import BY_END_AND_PAYLOAD, after_cleanse, declare


def by_bytes(payload: Payload) -> bytes:
    """Return the default key of a payload among ties: bytes are their own, of other values it is the repr.

    A value whose repr depends on the process (an object's address, the order of a set) needs a key of its own.
    """
    return payload if isinstance(payload, bytes) else repr(payload).encode()


class Cleanse:
    """The operator, for one stream.

    Args:
        key: gives payloads their order among events with equal vs and ve. It must give different payloads different
            keys, alike in all replicas: two payloads with one key come in the order of arrival.
        tie_order: the name of the order that `key` makes; see `lmerge.properties`.

    >>> cleanse = Cleanse()
    >>> for element in [Insert("B", 8, 20), Insert("A", 6, 20), Adjust("A", 6, 20, 7), Stable(10), Stable(21)]:
    ...     print(cleanse.process(element))
    []
    []
    []
    [Insert('A', 6, 7), Stable(8)]
    [Insert('B', 8, 20), Stable(21)]
    """

    def __init__(self, *, key: Callable[[Any], Any] = by_bytes, tie_order: str = BY_END_AND_PAYLOAD) -> None:
        self._tie_order = tie_order
        # Every event of the input's TDB that has not been put out, as the insert that will be.
        self._held: SortedKeyList[Insert, Any] = SortedKeyList(key=lambda e: (e.vs, e.ve, key(e.payload)))
        self._stable = MINUS_INFINITY  # the input's
        self._promised = MINUS_INFINITY  # the output's

    def __len__(self) -> int:
        """Return the number of events held."""
        return len(self._held)

    def process(self, element: Element) -> list[Element]:
        """Take one element of the input and return what it releases.

        `Hello` starts anew and declares what the output promises. `Skip` passes: events that the input lacks the
        output lacks too, and it may be said before what is held comes out.

        Raises:
            IllegalElement: the stream's earlier elements rule it out. Nothing has changed.
        """
        match element:
            case Insert(_, vs, _):
                self._require(element, vs >= self._stable)
                self._held.add(element)
                return []
            case Adjust():
                self._adjust(element)
                return []
            case Stable(vc):
                self._require(element, vc >= self._stable)
                self._stable = vc
                return self._release()
            case Hello():
                hello = declare(element, lambda properties: after_cleanse(properties, tie_order=self._tie_order))
                self._held.clear()
                self._stable = self._promised = MINUS_INFINITY
                return [hello]
            case Skip():
                return [element]
            case _:
                assert_never(element)

    def _require(self, element: Element, legal: bool) -> None:
        if not legal:
            raise IllegalElement(f"{element} comes after Stable({show_time(self._stable)})")

    def _adjust(self, element: Adjust) -> None:
        self._require(element, element.vold >= self._stable and element.ve >= self._stable)
        # An event with ve >= stable is not fully frozen, so it has not been released: if it exists it is held.
        try:
            self._held.remove(Insert(element.payload, element.vs, element.vold))
        except ValueError:
            raise IllegalElement(f"{element} adjusts an event that does not exist") from None
        if element.ve > element.vs:
            self._held.add(Insert(element.payload, element.vs, element.ve))

    def _release(self) -> list[Element]:
        released = list(takewhile(self._is_settled, self._held))
        del self._held[: len(released)]
        promise = min(self._stable, self._held[0].vs) if self._held else self._stable
        if promise <= self._promised:
            return [*released]
        self._promised = promise
        return [*released, Stable(promise)]

    def _is_settled(self, event: Insert) -> bool:
        """Tell whether an event is fully frozen, or the stream has ended."""
        return event.ve < self._stable or self._stable == INFINITY


def cleanse(elements: Iterable[Element], *, key: Callable[[Any], Any] = by_bytes) -> Iterator[Element]:
    """Apply `Cleanse` to a whole stream.

    >>> list(cleanse([Insert("B", 8, 10), Insert("A", 6, 12), Stable(20)], key=repr))
    [Insert('A', 6, 12), Insert('B', 8, 10), Stable(20)]
    """
    operator = Cleanse(key=key)
    for element in elements:
        yield from operator.process(element)
