"""When an aggregate answers, and how it changes what it has put out."""

import enum
from collections import Counter
from typing import NamedTuple

from lmerge.elements import Adjust, Element, Insert, Payload


class Mode(enum.Enum):
    """When an aggregate answers (seed-001, 3.1.4); all modes end in the same TDB."""

    FINAL = "final"
    """When the input's stable has passed a result for good: no result is ever revised."""
    PERFECT = "perfect"
    """When the input has come to the end of a result: revised only if the input is disordered or revised."""
    ORDERED = "ordered"
    """At once, with an open end; the end is put right when the input has come to it."""
    EAGER = "eager"
    """At once, with the end as it is known now."""


class Out(NamedTuple):
    """What is on the output for one start: payloads, in the order of rank, with one end."""

    payloads: tuple[Payload, ...]
    ve: int


class Changes:
    """Elements of one flush, in order of sync: removals, then other adjusts, then inserts, else as they came.

    The sync of an element is the first instant at which it changes the TDB: vs of an insert, the smaller end of an
    adjust (seed-001, 1.3).
    """

    def __init__(self) -> None:
        self._changes: list[tuple[int, int, Element]] = []

    def insert(self, payload: Payload, vs: int, ve: int) -> None:
        """Add an event."""
        self._changes.append((vs, 2, Insert(payload, vs, ve)))

    def adjust(self, payload: Payload, vs: int, vold: int, ve: int) -> None:
        """Change the end of an event."""
        self._changes.append((min(vold, ve), int(ve > vs), Adjust(payload, vs, vold, ve)))

    def turn(self, vs: int, old: Out | None, new: Out | None) -> None:
        """Make what is out at a start into something else; None: nothing.

        A payload that stays is adjusted, never removed and inserted again: once it is half frozen nothing else is
        legal (seed-001, E9).
        """
        if old is None:
            for payload in new.payloads if new else ():
                self.insert(payload, vs, new.ve if new else vs)
        elif new is None:
            for payload in old.payloads:
                self.adjust(payload, vs, old.ve, vs)
        elif old.payloads == new.payloads:
            if old.ve != new.ve:
                for payload in old.payloads:
                    self.adjust(payload, vs, old.ve, new.ve)
        else:
            self._replace(vs, old, new)

    def _replace(self, vs: int, old: Out, new: Out) -> None:
        staying = Counter(old.payloads) & Counter(new.payloads)
        left = staying.copy()
        for payload in old.payloads:
            if not left[payload]:
                self.adjust(payload, vs, old.ve, vs)
            else:
                left[payload] -= 1
                if old.ve != new.ve:
                    self.adjust(payload, vs, old.ve, new.ve)
        for payload in new.payloads:
            if staying[payload]:
                staying[payload] -= 1
            else:
                self.insert(payload, vs, new.ve)

    def put(self, output: list[Element]) -> None:
        """Append all elements to an output."""
        self._changes.sort(key=lambda change: change[:2])
        output += [element for _, _, element in self._changes]
