"""Generators that start from a logical stream: first the TDB, then physical streams that present it.

So every example is consistent by construction. A presentation may be disordered, revise ends, insert events and take
them back, and promise stables as far as its own elements allow. A presentation that joins late at J has the events with
``ve >= J`` as they are, and below J lacks some, or has others (recovery-and-sink 5.1).

Everything takes a `random.Random`, so that a seed replays a failure.
"""

import random
from collections.abc import Iterable
from functools import cache
from itertools import islice

import msgspec

from lmerge import INFINITY, MINUS_INFINITY, Adjust, Element, Event, Hello, Insert, Stable
from lmerge.canonical import payload


def events(rng: random.Random, algorithm: str, *, count: int = 12, horizon: int = 40) -> list[Event]:
    """Return the events of a logical stream that `algorithm` can merge, in an order that R1 may rely on."""
    result: list[Event] = []
    for number in range(count):
        vs = rng.randrange(horizon)
        ve = INFINITY if rng.random() < 0.05 else vs + rng.choice([1, 2, 5, rng.randrange(1, horizon)])
        payload = rng.choice("ABCD") if algorithm == "R4" else f"{rng.choice('ABCD')}{number % 3}"
        result.append(Event(payload, vs, ve))
    if algorithm == "R4":
        return result
    unique = {(event.payload, event.vs): event for event in result}
    if algorithm == "R0":
        unique = {("", event.vs): event for event in unique.values()}
    return sorted(unique.values(), key=lambda event: event.vs)


def present(
    algorithm: str, reference: list[Event], rng: random.Random, joins_at: int = MINUS_INFINITY
) -> list[Element]:
    """Return a whole physical stream of the reference, from hello (if it joins late) to Stable(INFINITY)."""
    own = list(reference) if joins_at == MINUS_INFINITY else _late(algorithm, reference, rng, joins_at)
    body = _ordered(algorithm, own, rng) if algorithm in ("R0", "R1", "R2") else _revised(algorithm, own, rng)
    if joins_at == MINUS_INFINITY:
        return body
    return [Hello(replica="late", incarnation=1, joins_at=joins_at), *body]


def _late(algorithm: str, reference: list[Event], rng: random.Random, joins_at: int) -> list[Event]:
    """Return what a stream has that is complete from joins_at on: below it events are lacking, or are others."""
    own = [event for event in reference if event.ve >= joins_at or rng.random() < 0.5]
    taken = {(event.payload, event.vs) for event in reference}
    starts = {event.vs for event in reference}
    for _ in range(rng.randrange(4)):
        vs = joins_at - 2 - rng.randrange(10)
        junk = Event(rng.choice(["A", "B", "junk"]), vs, rng.randrange(vs + 1, joins_at))
        fits = vs not in starts if algorithm == "R0" else (junk.payload, vs) not in taken
        if algorithm == "R4" or fits:
            own.append(junk)
            taken.add((junk.payload, vs))
            starts.add(vs)
    return own if algorithm in ("R3", "R4") else sorted(own, key=lambda event: event.vs)


def _ordered(algorithm: str, own: list[Event], rng: random.Random) -> list[Element]:
    """Insert in the order of vs; R2 shuffles equal vs."""
    if algorithm == "R2":
        shuffled = sorted(own, key=lambda _: rng.random())
        own = sorted(shuffled, key=lambda event: event.vs)
    stream: list[Element] = []
    stable = MINUS_INFINITY
    for event in own:
        if rng.random() < 0.4:
            stable = max(stable, event.vs - rng.choice([0, 0, 1, 5]))
            stream.append(Stable(stable))
        stream.append(Insert(event.payload, event.vs, event.ve))
    return [*stream, Stable(INFINITY)]


class _Script:
    """What a presentation does with one event: the ends that it goes through, the last being the right one."""

    def __init__(self, event: Event, ends: list[int]) -> None:
        self.event = event
        self.ends = ends
        self.now: int | None = None  # the end that it has, None before the insert and after a removal

    def step(self) -> Iterable[Element]:
        payload, vs = self.event.payload, self.event.vs
        end = self.ends.pop(0)
        if self.now is None:
            if end > vs:
                self.now = end
                yield Insert(payload, vs, end)
            return
        if end != self.now:
            yield Adjust(payload, vs, self.now, end)
            self.now = end if end > vs else None

    def settle(self, vc: int) -> Iterable[Element]:
        """Go on until Stable(vc) is legal, leaving out what would not be legal after it."""
        if self.event.vs >= vc:
            return
        final = self.ends[-1] if self.ends else self.now
        if final is not None and final >= vc and self.event.vs < final:
            self.ends = [end for end in self.ends if end >= vc] or self.ends
            while self.ends and (self.now is None or self.now < vc):
                yield from self.step()
        else:
            self.ends = self.ends[-1:]
            while self.ends:
                yield from self.step()


def _revised(algorithm: str, own: list[Event], rng: random.Random) -> list[Element]:
    """Insert in any order, revise ends, insert events that are taken back, and promise what can be promised."""
    scripts = [_Script(event, [*_detours(event, rng), event.ve]) for event in own]
    keys = {(event.payload, event.vs) for event in own}
    for _ in range(rng.randrange(4)):
        ghost = Event(rng.choice("ABCD"), rng.randrange(40), INFINITY)
        if algorithm == "R4" or (ghost.payload, ghost.vs) not in keys:
            keys.add((ghost.payload, ghost.vs))
            scripts.append(_Script(ghost, [*_detours(ghost, rng), ghost.vs + 3, ghost.vs]))
    scripts.sort(key=lambda script: script.event.vs)
    stream: list[Element] = []
    stable = MINUS_INFINITY
    while window := list(islice((script for script in scripts if script.ends), 6)):
        if rng.random() < 0.2:
            stable = max(stable, window[0].event.vs + rng.randrange(-3, 12))
            below = [script for script in scripts if script.event.vs < stable]
            rng.shuffle(below)
            for script in below:
                stream += script.settle(stable)
            stream.append(Stable(stable))
        else:
            stream += rng.choice(window).step()
    return [*stream, Stable(INFINITY)]


def _detours(event: Event, rng: random.Random) -> list[int]:
    count = rng.choice([0, 0, 1, 2])
    return [rng.choice([INFINITY, event.vs + rng.randrange(1, 30), event.vs]) for _ in range(count)]


def on_the_wire(elements: Iterable[Element]) -> list[Element]:
    """Give elements payloads that can be written: the canonical JSON of what they have."""
    return [
        msgspec.structs.replace(element, payload=_canonical(element.payload))
        if isinstance(element, Insert | Adjust)
        else element
        for element in elements
    ]


_canonical = cache(payload)
