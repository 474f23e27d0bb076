"""How things are measured: the same records to every algorithm, each input decoding its own copy, as in the service.

A `Tape` holds record values in the order in which a merge gets them. Playing it decodes batch after batch and gives it
to a merge; only what is to be measured is timed or kept. A tape has two parts. The first brings the merge to its steady
state and is not measured. It has no stables but each input's last: the baselines walk all half-frozen nodes at each,
and would take minutes to get where the measurement begins.

Time is processor time of this process. Memory is what `tracemalloc` counts for the merge, having collected garbage,
with no input and output left but what the merge itself holds on to; records were made before counting began.
"""

import cProfile
import gc
import tracemalloc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import mean
from time import process_time
from typing import Any, TypeAlias, TypeVar

import msgspec

from benchmarks.baselines import Merger, make
from benchmarks.generator import interleave
from lmerge.codec import decode_batch, encode_batch
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Insert, Stable
from lmerge.facts import Held, Violation

Row: TypeAlias = dict[str, Any]
"""One measured point, as it goes out as JSON."""

Key = TypeVar("Key", bound=Hashable)

BATCH = 100
"""Elements per call of `process`, of one input."""

MEMORY_SAMPLES = 8


class Tape(msgspec.Struct, frozen=True):
    """Batches of records, each of one input."""

    inputs: int
    warm: Sequence[tuple[int, Sequence[bytes]]]
    measured: Sequence[tuple[int, Sequence[bytes]]]


def _without_early_stables(elements: Sequence[Element]) -> Iterator[Element]:
    last = max((place for place, element in enumerate(elements) if isinstance(element, Stable)), default=-1)
    return (element for place, element in enumerate(elements) if place == last or not isinstance(element, Stable))


def record(
    streams: Sequence[Iterator[Element]], *, warm: int, measured: int, lags: Sequence[int] = (), batch: int = BATCH
) -> Tape:
    """Record a tape on which all inputs have `measured` elements in the measured part.

    Args:
        streams: one physical stream per input, long enough.
        warm: how many elements of each input that does not lag come before that.
        measured: how many elements of each input are measured.
        lags: for each input, how many elements it is behind; less than `warm`.
        batch: elements per call.
    """
    lags = lags or [0] * len(streams)
    assert max(lags) < warm
    shared: dict[bytes, bytes] = {}  # inputs have mostly the same records; each decodes its own copy of them

    def encoded(parts: Sequence[Iterable[Element]], lags: Sequence[int]) -> list[tuple[int, list[bytes]]]:
        turns = interleave(parts, batch=batch, lags=lags)
        return [(index, [shared.setdefault(r, r) for r in encode_batch(elements)]) for index, elements in turns]

    heads = [_without_early_stables(list(islice(s, warm - lag))) for s, lag in zip(streams, lags, strict=True)]
    tails = [islice(stream, measured) for stream in streams]
    return Tape(len(streams), encoded(heads, lags), encoded(tails, ()))


def _decode(records: Sequence[bytes]) -> list[Element]:
    elements, error = decode_batch(records)
    assert error is None
    return elements


def _start(name: str, tape: Tape) -> Merger:
    """Make a merge and bring it to its steady state."""
    merge = make(name)
    for index in range(tape.inputs):
        merge.attach(index)
    for index, records in tape.warm:
        merge.process(index, _decode(records))
        _check(merge)
    return merge


def _check(merge: Merger) -> None:
    """Take the facts, as a service does, and be sure that the merge has not stopped at an element."""
    for fact in merge.take_facts():
        assert not isinstance(fact, Violation | Held), fact


def seconds(name: str, tape: Tape) -> list[tuple[float, float]]:
    """Return the processor time that each measured batch takes: in the merge, and in decoding before it."""
    merge = _start(name, tape)
    gc.collect()
    times = []
    for index, records in tape.measured:
        t0 = process_time()
        elements = _decode(records)
        t1 = process_time()
        merge.process(index, elements)
        t2 = process_time()
        times.append((t2 - t1, t1 - t0))
        _check(merge)
    return times


def profiled(name: str, tape: Tape, profiler: cProfile.Profile) -> None:
    """Run the measured part with the profiler on in the merge only."""
    merge = _start(name, tape)
    for index, records in tape.measured:
        elements = _decode(records)
        profiler.runcall(merge.process, index, elements)
        _check(merge)


def elements_in(tape: Tape) -> int:
    """Return the number of elements in the measured part."""
    return sum(len(records) for _, records in tape.measured)


def throughput(names: Sequence[str], tape: Tape, *, repeats: int) -> dict[str, Row]:
    """Return input elements per second by algorithm."""
    return best({name: (name, tape) for name in names}, repeats)


def best(variants: Mapping[Key, tuple[str, Tape]], repeats: int) -> dict[Key, Row]:
    """Return input elements per second by variant, each an algorithm on a tape.

    Variants take turns, so that what else the machine does hits all alike. Each repeat does exactly the same with the
    same batches, so the best time of every batch is taken, and their sum: what disturbs one batch once does not count.
    """
    runs: dict[Key, list[list[tuple[float, float]]]] = {key: [] for key in variants}
    for _ in range(repeats):
        for key, (name, tape) in variants.items():
            runs[key].append(seconds(name, tape))
    rows: dict[Key, Row] = {}
    for key, (_, tape) in variants.items():
        batches = list(zip(*runs[key], strict=True))
        merging = sum(min(time for time, _ in batch) for batch in batches)
        decoding = sum(min(time for _, time in batch) for batch in batches)
        number = elements_in(tape)
        rows[key] = {
            "elements_per_s": round(number / merging),
            "elements_per_s_with_decoding": round(number / (merging + decoding)),
        }
    return rows


def memory(name: str, tape: Tape) -> int:
    """Return the bytes that a merge holds in its steady state, the mean of some samples."""
    _start(name, Tape(tape.inputs, tape.warm[: tape.inputs], ()))  # so that what is made once, whoever asks, is there
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        merge = _start(name, tape)
        samples = []
        every = max(1, len(tape.measured) // MEMORY_SAMPLES)
        for place, (index, records) in enumerate(tape.measured, 1):
            merge.process(index, _decode(records))
            _check(merge)
            if place % every == 0:
                gc.collect()
                samples.append(tracemalloc.get_traced_memory()[0] - before)
        return round(mean(samples))
    finally:
        tracemalloc.stop()


class Latency(msgspec.Struct, frozen=True):
    """How long events wait between their first arrival at any input and their insert at the output, sorted."""

    application_s: Sequence[float]
    """By how much the largest vs that has arrived at any input has grown meanwhile, in seconds."""
    elements: Sequence[int]
    """How many elements of any input came meanwhile."""


def latency(name: str, streams: Sequence[Iterable[Element]], *, events: int) -> Latency:
    """Measure how long the first `events` events wait; streams must be long enough for all to come out."""
    merge = make(name)
    for index in range(len(streams)):
        merge.attach(index)
    arrived: dict[tuple[int, object], tuple[int, int]] = {}
    waits: list[tuple[int, int]] = []
    clock, known = MINUS_INFINITY, 0
    for number, (index, elements) in enumerate(interleave(streams)):
        for event in _inserts(elements):
            clock = max(clock, event.vs)
            if known < events and (event.vs, event.payload) not in arrived:
                arrived[event.vs, event.payload] = clock, number
                known += 1
        for out in _inserts(merge.process(index, elements)):
            at = arrived.get((out.vs, out.payload))
            waits += [(clock - at[0], number - at[1])] if at else []
        _check(merge)
        if len(waits) >= events:
            break
    assert len(waits) == events
    return Latency(sorted(ms / 1000 for ms, _ in waits), sorted(elements for _, elements in waits))


def _inserts(elements: Iterable[Element]) -> Iterator[Insert]:
    return (element for element in elements if isinstance(element, Insert))


def adjusts(name: str, streams: Sequence[Sequence[Element]]) -> tuple[float, int]:
    """Return the number of adjusts of an input, on average, and of the output when all streams have ended."""
    merge = make(name)
    for index in range(len(streams)):
        merge.attach(index)
    ended = [[*stream, Stable(INFINITY)] for stream in streams]
    outputs = (merge.process(index, elements) for index, elements in interleave(ended, batch=BATCH))
    put_out = sum(isinstance(out, Adjust) for output in outputs for out in output)
    return mean(sum(isinstance(element, Adjust) for element in stream) for stream in streams), put_out


def steps(name: str, tape: Tape) -> dict[str, float]:
    """Return the microseconds that each kind of step takes, by processing runs of elements of one kind at a time.

    The first input brings the events (new), the others confirm them (known). What a call of `process` costs with
    nothing in it is taken off.
    """
    merge = _start(name, tape)
    gc.collect()
    spent: dict[str, float] = {}
    count: dict[str, int] = {}
    frozen = 0

    def timed(kind: str, work: Callable[[], object], number: int) -> object:
        t0 = process_time()
        result = work()
        spent[kind] = spent.get(kind, 0.0) + process_time() - t0
        count[kind] = count.get(kind, 0) + number
        return result

    for index, records in tape.measured:
        for kind, run in _runs(_decode(records), first=index == 0):
            timed("call", lambda index=index: merge.process(index, ()), 1)  # type: ignore[misc]
            timed(kind, lambda index=index, run=run: merge.process(index, run), len(run))  # type: ignore[misc]
            count[f"{kind} calls"] = count.get(f"{kind} calls", 0) + 1
            frozen += kind == "insert_new" and len(run)
        _check(merge)
    call = spent.pop("call") / count["call"]
    per_step = {kind: (time - call * count[f"{kind} calls"]) / count[kind] * 1e6 for kind, time in spent.items()}
    if "stable" in per_step and frozen:
        per_step["stable_per_event"] = per_step["stable"] * count["stable"] / frozen
    return {"call": call * 1e6, **per_step}


def _runs(elements: Sequence[Element], *, first: bool) -> Iterator[tuple[str, list[Element]]]:
    """Yield the longest runs of elements of one kind."""
    names: dict[type, str] = {Insert: "insert_new" if first else "insert_known", Adjust: "adjust", Stable: "stable"}
    run: list[Element] = []
    for element in elements:
        if run and type(element) is not type(run[0]):
            yield names[type(run[0])], run
            run = []
        run.append(element)
    if run:
        yield names[type(run[0])], run
