"""Final events against the definition, and readers that stop and start again against one that never does."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lmerge import INFINITY, MINUS_INFINITY, Element, Event, Hello, Insert, Stable, reconstitute
from lmerge.final_events import FinalEvents, Position
from lmerge.live_events import LiveEvents, ends_before
from lmerge.properties import StreamProperties
from lmerge.table import Table
from tests.support.presentations import HORIZON, plan, present
from tests.support.seeds import play_seeds
from tests.support.streams import hello

seeds = st.integers(0, 2**32 - 1)


def stream(rng: Random) -> list[Element]:
    """Return a stream with equal events, adjusts, removals and endless ones."""
    return present(rng, plan(rng, payloads="ab", endless=True), StreamProperties())


def with_hellos(rng: Random) -> list[Element]:
    """Return a stream that begins anew now and then, before it is closed."""
    parts: list[Element] = [hello()]
    for incarnation in range(2, rng.randrange(2, 5)):
        body = stream(rng)[:-1]
        parts += [*body[: rng.randrange(len(body) + 1)], hello(incarnation, joins_at=rng.randrange(HORIZON))]
    return parts + stream(rng)


def offsets(rng: Random, count: int) -> list[int]:
    """Return ascending offsets with holes, as transaction markers and aborted records leave them."""
    return sorted(rng.sample(range(3 * count), count))


def read_all(elements: list[Element], places: list[int]) -> list[Event]:
    """Return what a reader hands out that never stops."""
    events = FinalEvents()
    for element, offset in zip(elements, places, strict=True):
        events.take(element, offset)
    return [events.hand_out() for _ in iter(lambda: events.next, None)]


@given(seed=seeds)
def test_at_every_moment_the_final_events_are_those_of_the_tdb_and_the_rest_is_live(seed: int) -> None:
    rng = Random(seed)
    elements = stream(rng)
    events, live, handed_out = FinalEvents(), LiveEvents(), Counter[Event]()
    for offset, element in enumerate(elements):
        events.take(element, offset)
        live.apply(element, offset)
        while events.next is not None and rng.random() < 0.9:
            assert events.complete == min(events.stable, events.next.ve, INFINITY - 1)
            handed_out[events.hand_out()] += 1
        tdb = reconstitute(elements[: offset + 1])
        final = Counter(event for event in tdb if event.ve < tdb.stable or tdb.stable == INFINITY)
        assert events.stable == tdb.stable
        assert Counter(live) == Counter(tdb) - final
        assert len(live) == len(tdb) - final.total()
        assert handed_out <= final
        complete = events.complete
        assert Counter(event for event in final.elements() if ends_before(event.ve, complete)) <= handed_out
    rest = Counter(events.hand_out() for _ in iter(lambda: events.next, None))
    assert handed_out + rest == Counter(reconstitute(elements))
    assert events.position.offset <= len(elements)


@given(seed=seeds)
def test_the_order_does_not_depend_on_the_stream(seed: int) -> None:
    rng = Random(seed)
    planned = plan(rng, payloads="ab", endless=True)
    first, second = (present(rng, planned, StreamProperties()) for _ in range(2))
    handed_out = read_all(first, list(range(len(first))))
    assert handed_out == read_all(second, list(range(len(second))))
    assert handed_out == sorted(handed_out, key=lambda event: (event.ve, event.vs, event.payload))


def stop_and_go(rng: Random) -> int:
    """Read a stream by readers that stop anywhere; return the number of readers."""
    elements = with_hellos(rng)
    places = offsets(rng, len(elements))
    expected = read_all(elements, places)
    handed_out: list[Event] = []
    events, complete, readers, last = FinalEvents(), MINUS_INFINITY, 0, False
    while not last:
        position = events.position
        events = FinalEvents(position)
        assert events.complete >= complete, "what was complete is so no more"
        complete = events.complete
        last = rng.random() < 0.2
        readers += 1
        log = [(e, o) for e, o in zip(elements, places, strict=True) if o >= position.offset]
        patience = rng.random()
        for element, offset in log if last else log[: rng.randrange(len(log) + 1)]:
            events.take(element, offset)
            while events.next is not None and (last or rng.random() < patience):
                handed_out.append(events.hand_out())
                assert all(event in handed_out for event in expected if event.ve < events.complete)
    assert handed_out == expected
    assert len(events.position.note) < 300
    return readers


def test_readers_that_stop_anywhere_hand_out_together_what_one_does(long: bool) -> None:
    play_seeds(stop_and_go, "stop and go", until=300_000 if long else 12_000)


@given(seed=seeds)
def test_a_reader_needs_only_what_is_open_and_what_ends_where_it_is(seed: int) -> None:
    rng = Random(seed)
    body = present(rng, plan(rng, payloads="ab"), StreamProperties())[:-1]
    elements = [*body, Stable(100), Insert("z", 100, 101), Stable(200)]
    events = FinalEvents()
    for offset, element in enumerate(elements):
        events.take(element, offset)
        while events.next is not None:
            events.hand_out()
    assert events.position.offset == len(elements) - 2
    assert FinalEvents(events.position).complete == 200


@given(seed=seeds)
def test_a_hello_repeats_nothing_that_was_complete_and_says_what_may_be_missing(seed: int) -> None:
    rng = Random(seed)
    elements = with_hellos(rng)
    events, handed_out, closed = FinalEvents(), list[Event](), MINUS_INFINITY
    for offset, element in enumerate(elements):
        events.take(element, offset)
        if isinstance(element, Hello) and offset > 0:
            assert not events.gaps or events.gaps[-1].offset <= offset
            closed = events.stable
        for event in [events.hand_out() for _ in iter(lambda: events.next, None)]:
            assert event.ve >= closed
            handed_out.append(event)
    assert handed_out == sorted(handed_out, key=lambda event: event.ve)


@given(seed=seeds)
def test_a_table_is_what_its_partitions_reconstitute_to(seed: int) -> None:
    rng = Random(seed)
    logs = [with_hellos(rng), stream(rng)]
    log = [(partition, offset) for partition in (0, 1) for offset in range(len(logs[partition]))]
    rng.shuffle(log)
    table = Table([0, 1])
    done = [0, 0]
    for partition, _ in log[: rng.randrange(len(log) + 1)]:
        table.apply(partition, logs[partition][done[partition]], done[partition])
        done[partition] += 1
    tdbs = [reconstitute(elements[:count]) for elements, count in zip(logs, done, strict=True)]
    whole = Counter(tdbs[0]) + Counter(tdbs[1])
    assert Counter(table) == whole
    assert len(table) == whole.total()
    assert table.stable == min(tdb.stable for tdb in tdbs)
    t = rng.randrange(HORIZON)
    assert table.at(t) == tdbs[0].snapshot(t) + tdbs[1].snapshot(t)
    table.forget(t + 1)
    assert table.at(t) == tdbs[0].snapshot(t) + tdbs[1].snapshot(t)


@given(seed=seeds)
def test_a_reader_that_begins_in_the_middle_misses_only_events_that_began_before(seed: int) -> None:
    rng = Random(seed)
    elements = stream(rng)
    start = rng.randrange(len(elements))
    events = FinalEvents(Position(start), whole=False)
    for offset, element in enumerate(elements[start:], start):
        events.take(element, offset)
    handed_out = Counter(events.hand_out() for _ in iter(lambda: events.next, None))
    whole, before = Counter(reconstitute(elements)), Counter(reconstitute(elements[:start]))
    assert handed_out <= whole
    assert (whole - handed_out) <= before  # what is missing was there, and was never touched again
