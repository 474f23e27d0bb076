"""Transfer functions are sound: what they infer, brute-force operators on random streams with the premises keep.

The reference operators are written for obviousness: those with state recompute all results after every element and put
out the difference to what they have put out before. Nothing here knows what the transfer functions infer.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Element, Event, Insert, Payload, Stable
from lmerge import properties as p
from lmerge.cleanse import Cleanse
from lmerge.normal_form import NormalForm
from lmerge.properties import Order, Results, StreamProperties, Window
from tests.support.presentations import draw_properties, plan, present

Stream: TypeAlias = list[Element]
Reference: TypeAlias = Callable[[Stream, StreamProperties, Random], Stream]
Transfer: TypeAlias = Callable[[StreamProperties], StreamProperties]

seeds = st.integers(0, 2**32 - 1)
WIDTH = 5


def broken(properties: StreamProperties, streams: Sequence[Stream]) -> list[str]:
    """Return the promises that streams which present the same TDB do not keep."""
    found: list[str] = []
    for stream in streams:
        inserts = [element for element in stream if isinstance(element, Insert)]
        starts = [element.vs for element in inserts]
        if properties.insert_only and any(isinstance(element, Adjust) for element in stream):
            found.append("insert_only")
        if properties.ordered and starts != sorted(starts):
            found.append("order")
        if properties.order is Order.STRICTLY_INCREASING and len(set(starts)) < len(starts):
            found.append("strict order")
        if properties.key and not _has_key(stream):
            found.append("key")
    if properties.ties_ordered and any(_ties(stream) != _ties(streams[0]) for stream in streams):
        found.append("tie order")
    return found


def _has_key(stream: Stream) -> bool:
    live: Counter[tuple[Payload, int]] = Counter()
    for element in stream:
        if isinstance(element, Insert):
            live[element.payload, element.vs] += 1
            if live[element.payload, element.vs] > 1:
                return False
        elif isinstance(element, Adjust) and element.ve == element.vs:
            live[element.payload, element.vs] -= 1
    return True


def _ties(stream: Stream) -> dict[int, list[Payload]]:
    ties: dict[int, list[Payload]] = defaultdict(list)
    for element in stream:
        if isinstance(element, Insert):
            ties[element.vs].append(element.payload)
    return ties


# Stateless operators


def _filter(stream: Stream, _: StreamProperties, __: Random) -> Stream:
    return [element for element in stream if isinstance(element, Insert | Adjust) and element.payload != "b"]


def _map(f: Callable[[Payload], Payload]) -> Reference:
    def run(stream: Stream, _: StreamProperties, __: Random) -> Stream:
        out: Stream = []
        for element in stream:
            match element:
                case Insert(payload, vs, ve):
                    out.append(Insert(f(payload), vs, ve))
                case Adjust(payload, vs, vold, ve):
                    out.append(Adjust(f(payload), vs, vold, ve))
                case _:
                    pass
        return out

    return run


def _starts(vs: int, window: Window) -> list[int]:
    match window:
        case Window.RANGE:
            return [vs]
        case Window.TUMBLING:
            return [vs // WIDTH * WIDTH]
        case Window.SLIDING:
            return [s for s in range(vs - WIDTH, vs + 1) if s % 2 == 0 and s <= vs < s + WIDTH]


def _window(window: Window) -> Reference:
    def run(stream: Stream, _: StreamProperties, __: Random) -> Stream:
        out: Stream = []
        for element in stream:
            match element:
                case Insert(payload, vs, _):
                    out += [Insert(payload, s, s + WIDTH) for s in _starts(vs, window)]
                case Adjust(payload, vs, _, ve) if ve == vs:
                    out += [Adjust(payload, s, s + WIDTH, s) for s in _starts(vs, window)]
                case _:
                    pass
        return out

    return run


# Operators with state


def _recomputed(results_of: Callable[[TDB], list[Event]], results: Results, *, rng_ties: bool) -> Reference:
    """Return an operator that puts out `results_of` the input, in this order but for ties if those are random."""

    def run(stream: Stream, properties: StreamProperties, rng: Random) -> Stream:
        tdb, out, published = TDB(), [], Counter[Event]()
        newest = MINUS_INFINITY
        for element in stream:
            tdb.apply(element)
            newest = max(newest, element.vs) if isinstance(element, Insert) else newest
            settled = properties.insert_only and properties.ordered
            passed = {
                Results.EARLY: INFINITY,
                Results.ON_TIME: max(newest, tdb.stable),
                Results.FINAL: max(newest, tdb.stable) if settled else tdb.stable,
            }[results]
            wanted = [event for event in results_of(tdb) if event.ve < passed]
            if rng_ties:
                rng.shuffle(wanted)
                wanted.sort(key=lambda event: event.vs)
            out += _difference(published, wanted)
            published = Counter(wanted)
        return out

    return run


def _difference(published: Counter[Event], wanted: Iterable[Event]) -> Stream:
    gone = published - Counter(wanted)
    out: Stream = [Adjust(event.payload, event.vs, event.ve, event.vs) for event in gone.elements()]
    rest = Counter(published)
    for event in wanted:
        if rest[event]:
            rest[event] -= 1
        else:
            out.append(Insert(event.payload, event.vs, event.ve))
    return out


def _windows(tdb: TDB, window: Window) -> list[tuple[int, list[Payload]]]:
    """Return the windows that hold rows, by start, with the sorted payloads of their rows."""
    content: dict[int, list[Payload]] = defaultdict(list)
    for event in tdb:
        for start in _starts(event.vs, window):
            content[start].append(event.payload)
    return [(start, sorted(content[start], key=repr)) for start in sorted(content)]


def _count_windows(window: Window) -> Callable[[TDB], list[Event]]:
    return lambda tdb: [Event(len(rows), start, start + WIDTH) for start, rows in _windows(tdb, window)]


def _count_groups(tdb: TDB) -> list[Event]:
    windows = _windows(tdb, Window.SLIDING)
    return [Event((row, n), start, start + WIDTH) for start, rows in windows for row, n in Counter(rows).items()]


def _top_two(*, with_rank: bool) -> Callable[[TDB], list[Event]]:
    return lambda tdb: [
        Event((rank, row) if with_rank else row, start, start + WIDTH)
        for start, rows in _windows(tdb, Window.SLIDING)
        for rank, row in enumerate(rows[:2])
    ]


def _count_snapshots(tdb: TDB) -> list[Event]:
    bounds = sorted({bound for event in tdb for bound in (event.vs, event.ve)})
    return [Event(n, vs, ve) for vs, ve in pairwise(bounds) if (n := tdb.snapshot(vs).total())]


def _count_snapshots_of_groups(tdb: TDB) -> list[Event]:
    """Return segments with the bounds of each group alone, in the order in which they are finished."""
    found = [
        Event((group, segment.payload), segment.vs, segment.ve)
        for group in sorted({event.payload for event in tdb}, key=repr)
        for segment in _count_snapshots(TDB(event for event in tdb if event.payload == group))
    ]
    return sorted(found, key=lambda event: event.ve)


def _operator(make: Callable[[], Cleanse | NormalForm]) -> Reference:
    def run(stream: Stream, _: StreamProperties, __: Random) -> Stream:
        operator = make()
        return [out for element in stream for out in operator.process(element)]

    return run


def _stateless() -> list[tuple[str, Transfer, Reference]]:
    return [
        ("nothing at all", lambda q: q, _map(lambda payload: payload)),
        ("filter", p.after_filter, _filter),
        ("map", partial(p.after_map, keeps_tie_order=True), _map(lambda _: "x")),
        ("injective map", partial(p.after_map, injective=True, keeps_tie_order=True), _map(lambda x: (x,))),
        ("cleanse", p.after_cleanse, _operator(Cleanse)),
        ("normal form", p.after_normal_form, _operator(NormalForm)),
        ("normal form with cuts", p.after_normal_form, _operator(lambda: NormalForm(4))),
        *[(f"{w.value} window", partial(p.after_window, window=w, keeps_tie_order=True), _window(w)) for w in Window],
    ]


def _with_state(r: Results) -> list[tuple[str, Transfer, Reference]]:
    aggregate = partial(p.after_aggregate, results=r)
    common = partial(p.after_grouped_aggregate, results=r, common_bounds=True)
    uncommon = partial(p.after_grouped_aggregate, results=r, common_bounds=False)
    ranked = partial(p.after_top_k, results=r, rank_in_payload=True)
    return [
        ("tumbling count", aggregate, _recomputed(_count_windows(Window.TUMBLING), r, rng_ties=True)),
        ("sliding count", aggregate, _recomputed(_count_windows(Window.SLIDING), r, rng_ties=True)),
        ("snapshot count", aggregate, _recomputed(_count_snapshots, r, rng_ties=True)),
        ("count per group", common, _recomputed(_count_groups, r, rng_ties=True)),
        ("snapshot count per group", uncommon, _recomputed(_count_snapshots_of_groups, r, rng_ties=False)),
        ("top-k", partial(p.after_top_k, results=r), _recomputed(_top_two(with_rank=False), r, rng_ties=False)),
        ("top-k with rank", ranked, _recomputed(_top_two(with_rank=True), r, rng_ties=False)),
    ]


UNARY = _stateless() + [
    (f"{name}, {r.value}", transfer, run) for r in Results for name, transfer, run in _with_state(r)
]
few = settings(max_examples=settings().max_examples // 8)


@pytest.mark.parametrize(("transfer", "reference"), [row[1:] for row in UNARY], ids=[name for name, *_ in UNARY])
@few
@given(seed=seeds)
def test_what_is_inferred_for_an_operator_holds(transfer: Transfer, reference: Reference, seed: int) -> None:
    rng = Random(seed)
    properties = draw_properties(rng)
    planned = plan(rng, properties)
    streams = [present(rng, planned, properties) for _ in range(2)]
    assert not broken(properties, streams), "the generator broke its own promises"
    assert not broken(transfer(properties), [reference(stream, properties, rng) for stream in streams])


# Operators with two inputs


def _interleaved(rng: Random, left: Stream, right: Stream, *, merged: bool) -> list[tuple[int, Element]]:
    """Return the elements with the number of their input, as they come or, for inserts, the smaller vs first."""
    queues = [left[::-1], right[::-1]]
    out: list[tuple[int, Element]] = []
    while any(queues):
        heads = {side: queue[-1] for side, queue in enumerate(queues) if queue}
        waiting = {side: head.vs for side, head in heads.items() if isinstance(head, Insert)}
        ready = list(heads)
        if merged and len(waiting) == len(heads):
            ready = [side for side, vs in waiting.items() if vs == min(waiting.values())]
        elif merged:
            ready = [side for side in heads if side not in waiting]
        side = rng.choice(ready)
        out.append((side, queues[side].pop()))
    return out


def _union(elements: Iterable[tuple[int, Element]]) -> Stream:
    return [element for _, element in elements if not isinstance(element, Stable)]


def _join(elements: Iterable[tuple[int, Element]]) -> Stream:
    sides = (TDB(), TDB())
    out, published = [], Counter[Event]()
    for side, element in elements:
        sides[side].apply(element)
        pairs = [
            Event((one.payload, other.payload), max(one.vs, other.vs), min(one.ve, other.ve))
            for one in sides[0]
            for other in sides[1]
            if max(one.vs, other.vs) < min(one.ve, other.ve)
        ]
        out += _difference(published, pairs)
        published = Counter(pairs)
    return out


def _two_inputs(rng: Random, *, payloads: tuple[str, str]) -> tuple[list[StreamProperties], list[list[Stream]]]:
    """Return the properties of two inputs and two presentations of both."""
    declared = [draw_properties(rng), draw_properties(rng)]
    plans = [plan(rng, q, payloads=own) for q, own in zip(declared, payloads, strict=True)]
    streams = [[present(rng, planned, q) for planned, q in zip(plans, declared, strict=True)] for _ in range(2)]
    return declared, streams


@few
@given(seed=seeds, merged=st.booleans(), disjoint=st.booleans())
def test_what_is_inferred_for_a_union_holds(seed: int, merged: bool, disjoint: bool) -> None:
    rng = Random(seed)
    declared, streams = _two_inputs(rng, payloads=("abc", "def" if disjoint else "abc"))
    inferred = p.after_union(*declared, merged=merged, disjoint=disjoint)
    assert not broken(inferred, [_union(_interleaved(rng, *pair, merged=merged)) for pair in streams])


@few
@given(seed=seeds, merged=st.booleans())
def test_what_is_inferred_for_a_join_holds(seed: int, merged: bool) -> None:
    rng = Random(seed)
    declared, streams = _two_inputs(rng, payloads=("abc", "abc"))
    inferred = p.after_join(*declared, merged=merged)
    assert not broken(inferred, [_join(_interleaved(rng, *pair, merged=merged)) for pair in streams])


@few
@given(seed=seeds, merged=st.booleans())
def test_a_join_of_payloads_that_are_valid_once_at_a_time_has_a_key(seed: int, merged: bool) -> None:
    rng = Random(seed)
    declared, _ = _two_inputs(rng, payloads=("a", "a"))
    plans = [
        [event._replace(payload=f"{event.payload}{number}") for number, event in enumerate(plan(rng, q))]
        for q in declared
    ]
    pair = [present(rng, planned, q) for planned, q in zip(plans, declared, strict=True)]
    inferred = p.after_join(*declared, merged=merged, one_at_a_time=True)
    assert inferred.key
    assert not broken(inferred, [_join(_interleaved(rng, *pair, merged=merged))])


@given(seed=seeds)
def test_a_meet_promises_what_each_stream_promises_and_no_more(seed: int) -> None:
    rng = Random(seed)
    one, other, third = (draw_properties(rng) for _ in range(3))
    assert p.meet(one, other) == p.meet(other, one)
    assert p.meet(one, one) == one
    assert p.meet(p.meet(one, other), third) == p.meet(one, p.meet(other, third)) == p.meet(one, other, third)
    assert p.meet(one, StreamProperties()) == StreamProperties()
    assert p.meet(one, StreamProperties.r0()) == one


@given(seed=seeds)
def test_properties_survive_the_way_through_json(seed: int) -> None:
    properties = draw_properties(Random(seed))
    plain = msgspec.json.decode(msgspec.json.encode(properties.to_dict()))
    assert StreamProperties.from_dict(plain) == properties
