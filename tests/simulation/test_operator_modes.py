"""What modes promise about the form of their output, replicas of several modes merged, and fast-forward."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random

import pytest

from lmerge import (
    INFINITY,
    MINUS_INFINITY,
    TDB,
    Adjust,
    CompatibilityChecker,
    Divergence,
    Element,
    Insert,
    Merge,
    Skip,
    Stable,
    Violation,
    create,
    reconstitute,
)
from lmerge.properties import Order, StreamProperties
from replicas.operators import Mode
from tests.support.operator_runs import (
    CASES,
    Batch,
    Case,
    Run,
    batches,
    draw_aggregate,
    draw_grouped,
    draw_join,
    draw_plan,
    draw_window_aggregate,
)
from tests.support.presentations import HORIZON, final, plan, present
from tests.support.seeds import play_seeds

RUNS = 200
MIXED = 2_000
"""Merges of replicas in different modes; ten times as many in `test-long`."""

SHARDS = 4
ANYTHING = StreamProperties()
PERFECT = StreamProperties(insert_only=True, order=Order.NON_DECREASING)


def sync(element: Insert | Adjust) -> int:
    """Return the first instant at which an element changes the TDB."""
    return element.vs if isinstance(element, Insert) else min(element.vold, element.ve)


def is_ordered(elements: Iterable[Element]) -> bool:
    """Tell whether no insert or adjust has a smaller sync than the one before."""
    changes = [sync(element) for element in elements if isinstance(element, Insert | Adjust)]
    return all(one <= other for one, other in pairwise(changes))


def ordered_stream(rng: Random) -> list[Element]:
    """Return a stream in order of sync, with adjusts: each event has at most one (seed-001, Lemma 1)."""
    keyed: list[tuple[int, float, list[Element]]] = []
    for payload, vs, ve in draw_plan(rng):
        tie = rng.random()
        first = ve + rng.randint(1, 9) if ve <= HORIZON and rng.random() < 0.5 else max(ve, vs + 1)
        changes: list[Element] = [Insert(payload, vs, first)]
        if ve == vs:
            changes.append(Adjust(payload, vs, first, vs))
        elif first != ve:
            keyed.append((ve, tie, [Adjust(payload, vs, first, ve)]))
        keyed.append((vs, tie, changes))
    keyed.sort(key=lambda entry: entry[:2])
    stream: list[Element] = []
    for at, _, elements in keyed:
        if rng.random() < 0.3:
            stream.append(Stable(at))
        stream += elements
    return [*stream, Stable(INFINITY)]


def run_plain(rng: Random, mode: Mode, stream: list[Element]) -> list[Element]:
    """Return what a plain aggregate makes of a stream."""
    operator = draw_aggregate(rng).make[mode]()
    return [out for batch in batches(rng, [stream]) for out in operator.process(batch.elements)]


def is_insert_only(elements: Iterable[Element]) -> bool:
    """Tell whether nothing is adjusted."""
    return not any(isinstance(element, Adjust) for element in elements)


def test_final_output_is_perfect_whatever_the_input_is() -> None:
    for seed in range(RUNS):
        rng = Random(seed)
        output = run_plain(rng, Mode.FINAL, present(rng, draw_plan(rng), ANYTHING))
        assert is_ordered(output)
        assert is_insert_only(output)


def test_perfect_mode_keeps_perfect_input_perfect() -> None:
    for seed in range(RUNS):
        rng = Random(seed)
        planned = plan(rng, PERFECT, payloads=("a1", "a2", "b3"), endless=True)
        output = run_plain(rng, Mode.PERFECT, present(rng, planned, PERFECT))
        assert is_ordered(output)
        assert is_insert_only(output)


def test_ordered_mode_keeps_ordered_input_ordered() -> None:
    for seed in range(RUNS):
        rng = Random(seed)
        stream = ordered_stream(rng)
        assert is_ordered(stream)
        assert is_ordered(run_plain(rng, Mode.ORDERED, stream))


@pytest.mark.parametrize("mode", [Mode.ORDERED, Mode.EAGER])
def test_larger_batches_mean_the_same_in_fewer_elements(mode: Mode) -> None:
    one_by_one = together = 0
    for seed in range(RUNS):
        rng = Random(seed)
        case = draw_aggregate(rng)
        stream = present(rng, draw_plan(rng), ANYTHING)
        runs = [Run(case, mode), Run(case, mode)]
        for element in stream:
            runs[0].take(Batch(0, [element]))
        runs[1].take(Batch(0, stream))
        assert runs[0].output == runs[1].output
        one_by_one += len(runs[0].elements)
        together += len(runs[1].elements)
    assert together < 0.9 * one_by_one


# -- merged


def merge_modes(rng: Random, case: Case) -> int:
    """Merge four presentations of one logical stream, in four modes, by R3; the judge sees every element."""
    planned = draw_plan(rng)
    replicas = [case.make[mode]() for mode in Mode]
    merge, checker, output = create("R3"), CompatibilityChecker(), TDB()
    for source in range(len(replicas)):
        merge.attach(str(source))
    for batch in batches(rng, [present(rng, planned, ANYTHING) for _ in replicas]):
        elements = replicas[batch.source].process(batch.elements)
        for element in elements:
            assert not checker.input(str(batch.source), element)
        for out in merge.process(str(batch.source), elements):
            assert not checker.output(out)
            output.apply(out)
    assert not [fact for fact in merge.take_facts() if isinstance(fact, Divergence | Violation)]
    assert output == case.answer([final(planned)])
    return 1


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("draw", [draw_aggregate, draw_grouped, draw_window_aggregate])
def test_replicas_in_four_modes_merge_to_the_oracle(draw: Callable[[Random], Case], shard: int, long: bool) -> None:
    streams = MIXED / 3 / SHARDS * (10 if long else 1)
    play_seeds(lambda rng: merge_modes(rng, draw(rng)), "mixed", until=streams, first=shard * 1_000_000)


def test_replicas_of_a_join_merge_by_r4() -> None:
    """Their inputs are presented and interleaved differently, and pairs may be there several times."""
    for seed in range(RUNS):
        rng = Random(seed)
        case = draw_join(rng)
        planned = [draw_plan(rng), draw_plan(rng)]
        outputs = []
        for _ in range(2):
            join = case.make[None]()
            streams = [present(rng, events, ANYTHING) for events in planned]
            outputs.append(
                [out for batch in batches(rng, streams) for out in join.process(batch.elements, batch.source)]
            )
        merge, output = create("R4"), TDB()
        merge.attach("0")
        merge.attach("1")
        for batch in batches(rng, outputs):
            for out in merge.process(str(batch.source), batch.elements):
                output.apply(out)
        assert not [fact for fact in merge.take_facts() if isinstance(fact, Divergence | Violation)]
        assert output == case.answer([final(events) for events in planned])


# -- fast-forward


def ending_from(tdb: TDB, before: int) -> TDB:
    """Return the events that a fast-forward leaves."""
    return TDB(event for event in tdb if event.ve >= before)


@pytest.mark.parametrize("case", CASES)
def test_after_a_fast_forward_all_that_ends_later_is_right_and_the_output_stays_legal(case: str, long: bool) -> None:
    def one(rng: Random) -> int:
        drawn = CASES[case](rng)
        streams = [present(rng, draw_plan(rng), ANYTHING) for _ in range(drawn.inputs)]
        cut = list(batches(rng, streams))
        at, before = rng.randrange(len(cut)), rng.randint(0, HORIZON + 4)
        inputs = [TDB() for _ in streams]
        for batch in cut:
            for element in batch.elements:
                inputs[batch.source].apply(element)
        for mode in drawn.make:
            run = Run(drawn, mode)
            for number, batch in enumerate(cut):
                if number == at:
                    run.put(run.operator.fast_forward(before))
                    run.reload()
                    assert run.operator.fast_forward(before) == []
                run.take(batch)
            assert run.output.stable == INFINITY
            assert ending_from(run.output, before) == ending_from(drawn.answer(inputs), before)
        return 1

    play_seeds(one, case, until=RUNS * (20 if long else 1))


@pytest.mark.parametrize("draw", [draw_aggregate, draw_grouped, draw_window_aggregate])
def test_a_fast_forward_takes_back_what_is_not_wanted_and_not_promised(draw: Callable[[Random], Case]) -> None:
    taken_back = 0
    for seed in range(RUNS):
        rng = Random(seed)
        case = draw(rng)
        cut = list(batches(rng, [present(rng, draw_plan(rng), ANYTHING)]))
        before = rng.randint(0, HORIZON + 4)
        for mode in case.make:
            run = Run(case, mode)
            for batch in cut[: rng.randrange(len(cut))]:
                run.take(batch)
            closing = run.operator.fast_forward(before)
            run.put(closing)
            taken_back += len(closing)
            # What a stable of the input passed may have to stay: a promise may come to rest on it.
            assert all(event.vs < run.stable for event in run.output if event.ve < before)
    assert taken_back


@pytest.mark.parametrize("draw", [draw_aggregate, draw_grouped, draw_window_aggregate])
def test_a_laggard_that_skips_to_the_merged_stable_can_carry_the_merge_on_alone(draw: Callable[[Random], Case]) -> None:
    """The leader dies; the laggard was told `before`, took back what it must and said so (recovery-and-sink 8, F2)."""
    played = 0
    for seed in range(2 * RUNS):
        rng = Random(seed)
        case, planned = draw(rng), draw_plan(rng)
        leader, laggard = (case.make[rng.choice(list(Mode))]() for _ in range(2))
        ahead, behind = ([batch.elements for batch in batches(rng, [present(rng, planned, ANYTHING)])] for _ in "ab")
        merge, output = create("R3"), TDB()

        def put(stream: str, elements: Iterable[Element], merge: Merge = merge, output: TDB = output) -> None:
            for out in merge.process(stream, list(elements)):
                output.apply(out)

        merge.attach("leader")
        merge.attach("laggard")
        for batch in ahead[: rng.randrange(len(ahead))]:
            put("leader", leader.process(batch))
        at = rng.randrange(len(behind))
        for batch in behind[:at]:
            put("laggard", laggard.process(batch))
        before = merge.max_stable
        if before == MINUS_INFINITY:
            continue
        put("laggard", [*laggard.fast_forward(before), Skip(before)])
        merge.detach("leader")
        for batch in behind[at:]:
            wanted = [e for e in batch if not case.reach or isinstance(e, Stable) or e.vs >= before - case.reach]  # type: ignore[union-attr]
            put("laggard", laggard.process(wanted))
        assert not [fact for fact in merge.take_facts() if isinstance(fact, Divergence | Violation)]
        assert output == case.answer([final(planned)])
        played += 1
    assert played > RUNS / 4


def test_rows_that_reach_no_wanted_window_may_be_left_out_after_a_fast_forward() -> None:
    for seed in range(RUNS):
        rng = Random(seed)
        case = draw_window_aggregate(rng)
        stream = present(rng, draw_plan(rng), ANYTHING)
        at, before = rng.randrange(len(stream)), rng.randint(0, HORIZON + 4)
        answer = case.answer([reconstitute(stream)])
        for mode in Mode:
            run = Run(case, mode)
            run.take(Batch(0, stream[:at]))
            run.put(run.operator.fast_forward(before))
            wanted = [e for e in stream[at:] if isinstance(e, Stable) or e.vs >= before - case.reach]  # type: ignore[union-attr]
            run.take(Batch(0, wanted))
            assert ending_from(run.output, before) == ending_from(answer, before)
