"""A random world around a merge: inputs that present one logical stream, come, go, lag and come back.

    world = World(random.Random(seed), "R3")
    while world.step():
        ...                 # after each step: world.output grew, or not
    assert world.tdb == TDB(world.reference)

After every output element the incremental checker judges the prefix, a TDB checks that it is legal, and the index
checks its invariants. One joined input is always left, since otherwise events may be lost for good.
"""

import random
from collections.abc import Iterable

from lmerge import (
    INFINITY,
    MINUS_INFINITY,
    TDB,
    CompatibilityChecker,
    Divergence,
    Element,
    Event,
    Hello,
    OutputPolicy,
    Skip,
    Stable,
    Violation,
    create,
)
from lmerge.compatible import Order
from tests.support.logical import events, present

POLICIES = [
    "first,lazy,max",
    "first,eager",
    "leading",
    "leading,eager",
    "half_frozen",
    "half_frozen,eager",
    "fully_frozen",
    "quorum(2)",
    "quorum(0.5),eager",
    "first,lagging(7)",
    "half_frozen,lagging(3)",
]

CASES = [(algorithm, "") for algorithm in ("R0", "R1", "R2", "R4")] + [("R3", policy) for policy in POLICIES]
"""Every algorithm with every policy that it has."""

ORDERS = {"R0": Order.STRICTLY_BY_VS, "R1": Order.BY_VS, "R2": Order.BY_VS, "R3": Order.ANY, "R4": Order.ANY}


class World:
    """One merge, its inputs and everything that watches it."""

    def __init__(self, rng: random.Random, algorithm: str, policy: str = "", *, size: int = 25) -> None:
        self.rng = rng
        self.algorithm = algorithm
        self.reference = events(rng, algorithm, count=size, horizon=60)
        self.origin = rng.choice([MINUS_INFINITY, MINUS_INFINITY, rng.randrange(5, 30)])
        if self.origin > MINUS_INFINITY and algorithm in ("R0", "R1", "R2"):  # lifetimes must be bounded then (RS 5.6)
            self.reference = [Event(e.payload, e.vs, e.vs + 9) if e.ve == INFINITY else e for e in self.reference]
        parsed = OutputPolicy.parse(policy) if policy else None
        self.merge = create(algorithm, policy=parsed, origin=self.origin)
        self.checker = CompatibilityChecker(
            multiset=algorithm in ("R1", "R4"), order=ORDERS[algorithm], origin=self.complete_from
        )
        self.output: list[Element] = []
        self.elements = 0  # how many the merge has taken
        self.tdb = TDB()
        self.streams: dict[str, list[Element]] = {}
        self.position: dict[str, int] = {}
        self._names = iter(range(10**9))
        for _ in range(rng.randrange(1, 4)):
            self.attach(self.origin)

    @property
    def complete_from(self) -> int:
        """From where the output has to be right. R0 to R2 put out nothing that begins before the origin (RS 5.6)."""
        if self.origin == MINUS_INFINITY or self.algorithm in ("R3", "R4"):
            return self.origin
        return self.origin + max((event.ve - event.vs for event in self.reference), default=0) + 1

    @property
    def is_right(self) -> bool:
        """Tell whether the output is the reference, from where it has to be."""

        def shown(events: Iterable[Event]) -> TDB:
            floor = self.complete_from
            begin = floor if self.algorithm in ("R0", "R1", "R2") else MINUS_INFINITY
            return TDB(event for event in events if event.ve >= floor and event.vs >= begin)

        return shown(self.tdb) == shown(self.reference)

    def attach(self, joins_at: int) -> None:
        """Attach an input that presents the reference from its start, under a new name or a used one."""
        free = [name for name in self.streams if name not in self.position]
        name = self.rng.choice(free) if free and self.rng.random() < 0.5 else f"r{next(self._names)}"
        self.streams[name] = present(self.algorithm, self.reference, self.rng, joins_at)
        self.position[name] = 0
        self.merge.attach(name, joins_at=joins_at)  # as its hello will say: who may go now depends on it
        self.checker.attach(name)

    def step(self) -> bool:
        """Do one thing; False when every attached input has been read to its end."""
        draw = self.rng.random()
        if draw < 0.03 and len(self.position) < 5:
            self.attach(self.rng.choice([self.origin, self.rng.randrange(5, 60)]))
        elif draw < 0.05:
            self._detach()
        elif draw < 0.07:
            self._begin_anew()
        elif draw < 0.09:
            self._skip()
        unread = [name for name, position in self.position.items() if position < len(self.streams[name])]
        if not unread:
            return False
        self.feed(self.rng.choice(unread), self.rng.choice([1, 1, 1, 2, 5, 20]))
        return True

    def _can_wait(self, name: str) -> bool:
        return any(other != name and self.merge.is_joined(other) for other in self.position)

    def _begin_anew(self) -> None:
        """Let an input say hello again where it stands, and present the reference from the start."""
        name = self.rng.choice(sorted(self.position))
        late = self._can_wait(name) and self.rng.random() < 0.5
        joins_at = self.rng.randrange(5, 60) if late else self.origin
        body = present(self.algorithm, self.reference, self.rng, joins_at)
        if not isinstance(body[0], Hello):
            body = [Hello(replica=name, incarnation=2), *body]
        self.streams[name] = self.streams[name][: self.position[name]] + body
        self.feed(name, 1)  # at once: who may wait next depends on it

    def _skip(self) -> None:
        """Let an input say that it was fast-forwarded: to a point that the output has passed, or further."""
        name = self.rng.choice(sorted(self.position))
        if self._can_wait(name) and self.rng.random() < 0.3:
            before = self.rng.randrange(5, 70)
        elif MINUS_INFINITY < self.merge.max_stable < INFINITY:
            before = self.rng.randrange(-10, self.merge.max_stable + 1)
        else:
            return
        self.streams[name].insert(self.position[name], Skip(before))
        self.feed(name, 1)

    def _detach(self) -> None:
        name = self.rng.choice(sorted(self.position))
        if self._can_wait(name):
            self.merge.detach(name)
            self.checker.leave(name)
            del self.position[name]

    def feed(self, name: str, count: int) -> list[Element]:
        """Feed elements of one input and judge what comes out."""
        batch = self.streams[name][self.position[name] : self.position[name] + count]
        output = self.merge.process(name, batch)
        taken = self.merge.consumed(name)
        self.position[name] += taken
        problems: list[object] = []
        for element in batch[:taken]:
            problems += self.checker.input(name, element)
        for element in output:
            self.tdb.apply(element)  # raises if it is illegal
            problems += self.checker.output(element)
        if self.origin > MINUS_INFINITY and self.algorithm in ("R0", "R1", "R2"):
            # What begins before the origin is not put out, and the judge, who does not know that these streams never
            # adjust an end, must expect it to live until after `complete_from`. The end of the run decides.
            problems = []
        problems += [fact for fact in self.merge.take_facts() if isinstance(fact, Violation | Divergence)]
        assert not problems, problems
        self.output += output
        self.elements += taken
        if self.rng.random() < 0.2 and (index := getattr(self.merge, "_index", None)):
            index.check_invariants()
        return output

    def inputs_end(self) -> bool:
        """Tell whether the output has come to the end of the stream."""
        return bool(self.output) and self.output[-1] == Stable(INFINITY)
