"""The snapshot normal form against its definition, instant by instant (seed-002, 1.5 and 5.7)."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lmerge import TDB, Element, Hello, Skip, Stable, reconstitute
from lmerge.normal_form import NormalForm
from lmerge.properties import StreamProperties
from tests.support.presentations import HORIZON, final, fragment, normal_form_of, plan, present

seeds = st.integers(0, 2**32 - 1)
cuts = st.none() | st.integers(1, HORIZON)
NOTHING = StreamProperties()


def _run(elements: list[Element], cut_every: int | None) -> list[Element]:
    operator = NormalForm(cut_every)
    return [out for element in elements for out in operator.process(element)]


@given(seed=seeds, cut_every=cuts)
def test_the_output_is_legal_at_every_prefix_and_ends_in_the_normal_form(seed: int, cut_every: int | None) -> None:
    rng = Random(seed)
    planned = plan(rng, endless=cut_every is None)
    output = reconstitute(_run(present(rng, planned, NOTHING), cut_every))
    assert output == normal_form_of(final(planned), cut_every)


@given(seed=seeds, cut_every=cuts)
def test_at_every_stable_all_snapshots_below_it_are_published(seed: int, cut_every: int | None) -> None:
    rng = Random(seed)
    stream = present(rng, plan(rng, endless=cut_every is None), NOTHING)
    operator, input_tdb, output_tdb = NormalForm(cut_every), TDB(), TDB()
    for element in stream:
        input_tdb.apply(element)
        for out in operator.process(element):
            output_tdb.apply(out)
        if not isinstance(element, Stable):
            continue
        assert output_tdb.stable == element.vc
        assert all(event.vs < element.vc for event in output_tdb)
        for t in range(min(element.vc, HORIZON + 1)):
            assert output_tdb.snapshot(t) == Counter(input_tdb.snapshot(t).items())


@given(seed=seeds, cut_every=cuts)
def test_presentations_and_fragmentations_of_equal_snapshots_give_equal_tdbs(seed: int, cut_every: int | None) -> None:
    rng = Random(seed)
    planned = plan(rng)
    streams = [planned, planned, fragment(rng, final(planned)), fragment(rng, final(planned))]
    outputs = [reconstitute(_run(present(rng, stream, NOTHING), cut_every)) for stream in streams]
    assert all(output == outputs[0] for output in outputs)


@given(seed=seeds, cut_every=cuts)
def test_the_state_is_bounded_by_what_is_not_fully_frozen(seed: int, cut_every: int | None) -> None:
    rng = Random(seed)
    operator, tdb = NormalForm(cut_every), TDB()
    for element in present(rng, plan(rng), NOTHING):
        tdb.apply(element)
        operator.process(element)
        live = [event for event in tdb if event.ve >= tdb.stable]
        assert len(operator) == len(live)
        assert set(operator._tracks) <= {event.payload for event in live}
        assert sum(len(track.changes) for track in operator._tracks.values()) <= 2 * len(live)
        assert sum(map(len, operator._due.values())) <= len(operator._tracks)
        assert set(operator._touched) <= set(operator._tracks)


@given(seed=seeds, cut_every=st.integers(1, HORIZON), joins_at=st.integers(-3, HORIZON))
def test_from_the_announced_instant_on_a_late_joiner_has_exactly_the_right_runs(
    seed: int, cut_every: int, joins_at: int
) -> None:
    rng = Random(seed)
    reference = final(plan(rng))
    junk = [event for event in plan(rng) if event.vs < event.ve < joins_at]
    own = [event for event in fragment(rng, reference) if event.ve >= joins_at] + junk
    # Fragments that end at joins_at or later are all there, so snapshots are those of the reference from there on.
    hello = Hello(replica="r", incarnation=1, joins_at=joins_at)
    first, *rest = _run([hello, *present(rng, own, NOTHING)], cut_every)
    skipped = _run([Skip(joins_at)], cut_every)
    assert isinstance(first, Hello)
    assert skipped == [Skip(first.joins_at)]
    assert joins_at <= first.joins_at < joins_at + cut_every + 1
    assert _ending_from(reconstitute(rest), first.joins_at) == _ending_from(
        normal_form_of(reference, cut_every), first.joins_at
    )


def _ending_from(tdb: TDB, instant: int) -> TDB:
    return TDB(event for event in tdb if event.ve >= instant)


@given(seed=seeds)
def test_without_cuts_runs_are_as_long_as_can_be(seed: int) -> None:
    rng = Random(seed)
    output = reconstitute(_run(present(rng, plan(rng), NOTHING), None))
    for event in output:
        assert not any(other.payload == event.payload and other.vs == event.ve for other in output)
