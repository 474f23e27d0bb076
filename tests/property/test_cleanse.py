"""Cleanse against its definition: the fully frozen events, sorted (paper 000, VI-D)."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Event, Insert, Stable, reconstitute
from lmerge.cleanse import Cleanse, by_bytes
from lmerge.properties import StreamProperties
from tests.support.presentations import Planned, draw_properties, final, plan, present

seeds = st.integers(0, 2**32 - 1)


def _sorted_inserts(tdb: TDB) -> list[Insert]:
    events = sorted(tdb, key=lambda event: (event.vs, event.ve, by_bytes(event.payload)))
    return [Insert(event.payload, event.vs, event.ve) for event in events]


@given(seed=seeds)
def test_two_presentations_give_the_same_inserts_in_the_same_order(seed: int) -> None:
    rng = Random(seed)
    planned = plan(rng, endless=True)
    outputs = []
    for _ in range(2):
        cleanse = Cleanse()
        released = [out for element in present(rng, planned, StreamProperties()) for out in cleanse.process(element)]
        outputs.append([out for out in released if isinstance(out, Insert)])
    assert outputs[0] == outputs[1] == _sorted_inserts(final(planned))


@given(seed=seeds)
def test_at_every_stable_as_much_is_released_and_promised_as_can_be(seed: int) -> None:
    rng = Random(seed)
    properties = draw_properties(rng)
    stream = present(rng, plan(rng, properties, endless=True), properties)
    cleanse, input_tdb, output_tdb = Cleanse(), TDB(), TDB()
    for element in stream:
        input_tdb.apply(element)
        for out in cleanse.process(element):
            assert not isinstance(out, Adjust)
            output_tdb.apply(out)  # raises if the output is not legal
        if isinstance(element, Stable):
            vc = element.vc
            open_starts = [event.vs for event in input_tdb if event.ve >= vc and vc != INFINITY]
            first_open = min(open_starts, default=INFINITY)
            assert output_tdb == TDB(e for e in input_tdb if (e.ve < vc or vc == INFINITY) and e.vs <= first_open)
            assert output_tdb.stable == min([vc, first_open])
            assert len(cleanse) + len(output_tdb) == len(input_tdb)


@given(seed=seeds)
def test_what_was_released_is_always_a_prefix_of_what_will_be(seed: int) -> None:
    rng = Random(seed)
    planned = plan(rng)
    everything = _sorted_inserts(final(planned))
    cleanse = Cleanse()
    released: list[Insert] = []
    for element in present(rng, planned, StreamProperties()):
        released += [out for out in cleanse.process(element) if isinstance(out, Insert)]
        assert released == everything[: len(released)]
    assert len(cleanse) == 0


@given(seed=seeds)
def test_the_plans_of_the_generator_are_presented_faithfully(seed: int) -> None:
    rng = Random(seed)
    properties = draw_properties(rng)
    planned = plan(rng, properties)
    assert reconstitute(present(rng, planned, properties)) == final(planned)
    assert all(MINUS_INFINITY < event.vs <= event.ve for event in planned)
    assert final([Planned("a", 1, 1), Planned("b", 1, 2)]) == TDB([Event("b", 1, 2)])
