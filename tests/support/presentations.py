"""Random physical streams that present a given logical one and keep given promises.

A *planned* event is an event with the end that it has when all is said; one that ends where it starts is to be removed
again. `plan` makes a list of them that allows the promises, `present` an element stream out of the list that keeps
them: called twice it makes two streams that present the same TDB, with other disorder, revisions and stables.

    rng = Random(seed)
    planned = plan(rng, properties)
    one, other = present(rng, planned, properties), present(rng, planned, properties)
    assert reconstitute(one) == reconstitute(other) == final(planned)
"""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Element, Event, Insert, Stable
from lmerge.properties import LOG_ORDER, Order, StreamProperties

HORIZON = 16
"""All finite instants lie in ``range(HORIZON)``: few, so that ties and meeting ends are frequent."""


class Planned(NamedTuple):
    """An event as it will be in the end; ``ve == vs``: removed."""

    payload: str
    vs: int
    ve: int


def draw_properties(rng: Random) -> StreamProperties:
    """Return any properties; an order among ties is that of the plan's list."""
    return StreamProperties(
        insert_only=rng.random() < 0.5,
        order=rng.choice(list(Order)),
        tie_order=rng.choice([None, LOG_ORDER]),
        key=rng.random() < 0.5,
    )


def plan(
    rng: Random,
    properties: StreamProperties = StreamProperties(),  # noqa: B008  # it is frozen
    *,
    payloads: Sequence[str] = "abc",
    endless: bool = False,
) -> list[Planned]:
    """Return planned events whose number, starts and payloads allow the properties."""
    planned: list[Planned] = []
    for _ in range(rng.randrange(10)):
        vs = rng.randrange(HORIZON - 1)
        payload = rng.choice(payloads)
        ve = INFINITY if endless and rng.random() < 0.2 else rng.randint(vs + 1, HORIZON - 1)
        if not properties.insert_only and rng.random() < 0.2:
            ve = vs
        used_vs = properties.order is Order.STRICTLY_INCREASING and vs in {event.vs for event in planned}
        used_key = properties.key and (payload, vs) in {event[:2] for event in planned}
        if not used_vs and not used_key:
            planned.append(Planned(payload, vs, ve))
    return planned


def final(planned: Sequence[Planned]) -> TDB:
    """Return the TDB that a plan ends in."""
    return TDB(Event(*event) for event in planned if event.ve > event.vs)


def present(rng: Random, planned: Sequence[Planned], properties: StreamProperties) -> list[Element]:
    """Return a legal stream that presents the plan, keeps the promises and ends in Stable(INFINITY)."""
    keyed: list[tuple[float, Insert | Adjust]] = []
    for position, event in enumerate(_in_order(rng, planned, properties)):
        revisions = 0 if properties.insert_only else rng.choice([0, 0, 1, 2])
        if event.ve == event.vs:
            revisions = max(revisions, 1)
        ends = [rng.choice([rng.randint(event.vs + 1, HORIZON), INFINITY]) for _ in range(revisions)]
        ends.append(event.ve)
        keyed.append((position, Insert(event.payload, event.vs, ends[0])))
        times = sorted(rng.uniform(position, len(planned)) for _ in range(revisions))
        for time, (vold, ve) in zip(times, pairwise(ends), strict=True):
            keyed.append((time, Adjust(event.payload, event.vs, vold, ve)))
    return _with_stables(rng, [element for _, element in sorted(keyed, key=lambda pair: pair[0])])


def _in_order(rng: Random, planned: Sequence[Planned], properties: StreamProperties) -> list[Planned]:
    shuffled = rng.sample(planned, len(planned))
    if properties.tie_order is not None:  # every event takes a place of its vs, in the order of the plan
        by_vs = {event.vs: iter([e for e in planned if e.vs == event.vs]) for event in planned}
        shuffled = [next(by_vs[event.vs]) for event in shuffled]
    return sorted(shuffled, key=lambda event: event.vs) if properties.ordered else shuffled


def _with_stables(rng: Random, elements: Sequence[Insert | Adjust]) -> list[Element]:
    """Put stables in at random, none of which a later element breaks."""
    stream: list[Element] = [Stable(INFINITY)]
    bound = HORIZON + 2
    previous = INFINITY
    for element in reversed(elements):
        if rng.random() < 0.4:
            previous = min(previous, rng.choice([bound, rng.randint(-1, max(bound, -1))]))
            stream.append(Stable(previous))
        stream.append(element)
        bound = min(bound, element.vs if isinstance(element, Insert) else min(element.vold, element.ve))
    return stream[::-1]


def fragment(rng: Random, tdb: TDB) -> list[Planned]:
    """Return events with the same snapshots, cut and joined at random; all ends must be finite (seed-002, 1.4)."""
    pieces = [Planned(str(event.payload), t, t + 1) for event in tdb for t in range(event.vs, event.ve)]
    for _ in range(rng.randrange(2 * len(pieces) + 1)):
        one = rng.choice(pieces)
        neighbours = [piece for piece in pieces if piece.payload == one.payload and piece.vs == one.ve]
        if neighbours:
            other = rng.choice(neighbours)
            pieces.remove(one)
            pieces.remove(other)
            pieces.append(Planned(one.payload, one.vs, other.ve))
    return pieces


def normal_form_of(tdb: TDB, cut_every: int | None) -> TDB:
    """Return the snapshot normal form by its definition: instant by instant (seed-002, 1.5)."""
    instants = range(HORIZON + 2)
    runs: list[Event] = []
    for payload in {event.payload for event in tdb}:
        counts = [tdb.snapshot(t)[payload] for t in instants]
        start = 0
        for t in instants:
            last = t + 1 == len(instants)
            if last or counts[t + 1] != counts[t] or (cut_every is not None and (t + 1) % cut_every == 0):
                if counts[t]:
                    runs.append(Event((payload, counts[t]), start, INFINITY if last else t + 1))
                start = t + 1
    return TDB(runs, stable=MINUS_INFINITY)
