"""The measurements: figures 2 to 7 of paper 000, the latency of VI-D.3, and what a stable costs with many live events.

Each function yields rows, one per measured point: they go out as JSON lines, into the plots and to the bars.
Where the paper leaves a parameter open, the function says what was taken.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from benchmarks import measure
from benchmarks.generator import Workload, count_lifetimes, presentation, until_next
from benchmarks.measure import Row
from lmerge.elements import Element

X = TypeVar("X", int, float)
"""What is varied in a figure."""

SEED = 20_120_401
ENDLESS = 10**9
INDEXED = ("R3", "R4", "R3-", "R3 paper", "C+R1")
ALL = ("R0", "R1", "R2", *INDEXED)


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured; the defaults are those of `make bench-core`."""

    name: str = "full"
    active: int = 5000
    """Active events where inputs or stables are varied: half the paper's default, since ten inputs keep ten copies."""
    typical: int = 10_000
    """Active events where algorithms are compared: the paper's default."""
    measured: int = 3000
    """Elements of each input in the measured part of a tape."""
    repeats: int = 3
    inputs: Sequence[int] = (2, 6, 10)
    disorders: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    revised: int = 20_000
    """Events of each input in figure 4."""
    lags: Sequence[int] = (0, 200, 500, 1000, 2000, 5000)
    lagging: int = 10_000
    """Elements of each input in the measured part of figure 5: several stables, at a frequency of 0.1 %."""
    stable_freqs: Sequence[float] = (0.0001, 0.001, 0.003, 0.01)
    live: Sequence[int] = (100, 1000, 10_000, 100_000)
    lifetimes: Sequence[int] = (100, 1000, 10_000)
    """Latency: lifetimes, as numbers of active events."""
    waiting: int = 2000
    """Latency: events that are watched."""
    payload_bytes: int = 1000


FULL = Sizes()
QUICK = Sizes(
    name="quick",
    active=1000,
    typical=1000,
    measured=1000,
    repeats=2,
    inputs=(2, 10),
    revised=6000,
    lags=(0, 2000),
    lagging=4000,
    stable_freqs=(0.001, 0.01),
    live=(100, 5000),
    lifetimes=(100, 1000),
    waiting=500,
)


def _streams(workload: Workload, inputs: int, sub_query: str = "none") -> list[Iterator[Element]]:
    streams: Iterable[Iterator[Element]] = (presentation(workload, seed=SEED, index=index) for index in range(inputs))
    if sub_query == "count_lifetimes":
        streams = (count_lifetimes(stream, workload) for stream in streams)
    elif sub_query == "until_next":
        streams = map(until_next, streams)
    return list(streams)


def _ordered(sizes: Sizes) -> Workload:
    """Return the workload that every algorithm can merge: strictly increasing vs (VI-C.1)."""
    workload = Workload(events=ENDLESS, min_gap=1, disorder=0, payload_bytes=sizes.payload_bytes)
    return workload.with_active(sizes.active)


def _sweep(names: Sequence[str], tapes: Mapping[X, measure.Tape], *, repeats: int) -> Iterator[tuple[str, X, Row]]:
    """Yield the throughput and memory of every algorithm on every tape."""
    variants = {(name, x): (name, tape) for x, tape in tapes.items() for name in names}
    for (name, x), row in measure.best(variants, repeats).items():
        yield name, x, {"bytes": measure.memory(name, tapes[x]), **row}


def ordered_streams(sizes: Sizes) -> Iterator[Row]:
    """Figures 2 and 3: memory and throughput over in-order streams, by the number of inputs."""
    workload = _ordered(sizes)
    tapes = {
        inputs: measure.record(_streams(workload, inputs), warm=_warm(sizes.active), measured=sizes.measured)
        for inputs in sizes.inputs
    }
    for name, inputs, row in _sweep(("R0", "R1", "R2", "R3", "R4", "R3-"), tapes, repeats=sizes.repeats - 1):
        yield {"figure": 2, "algorithm": name, "inputs": inputs, "bytes": row.pop("bytes")}
        yield {"figure": 3, "algorithm": name, "inputs": inputs, **row}


def _warm(active: int) -> int:
    """Return how many events it takes until as many die as are born, and a stable has told."""
    return active + active // 5 + 500


def output_size(sizes: Sizes) -> Iterator[Row]:
    """Figure 4: adjusts at the output against adjusts of one input, by disorder.

    Three inputs, the count sub-query, StableFreq 1 %.
    """
    for disorder in sizes.disorders:
        workload = Workload(events=sizes.revised, disorder=disorder, payload_bytes=40).with_active(sizes.active)
        streams = [list(stream) for stream in _streams(workload, 3, "count_lifetimes")]
        for name in ("R3", "R4"):
            of_input, of_output = measure.adjusts(name, streams)
            yield {
                "figure": 4,
                "algorithm": name,
                "disorder": disorder,
                "elements_of_input": len(streams[0]),
                "adjusts_of_input": round(of_input),
                "adjusts_of_output": of_output,
            }


def stream_lag(sizes: Sizes) -> Iterator[Row]:
    """Figure 5: throughput by the lag of one or two of three inputs.

    20 % disorder, StableFreq 0.1 %, lifetimes of 40 s, as in VI-C.3. The lag is given in elements, since the paper's
    seconds depend on a rate that it does not state; what matters is how many stables the leader is ahead.
    """
    workload = Workload(events=ENDLESS, event_duration=40_000, stable_freq=0.001, payload_bytes=sizes.payload_bytes)
    warm = max(sizes.lags) + 2 * measure.BATCH
    variants = {
        lags: ("R3", measure.record(_streams(workload, 3), warm=warm, measured=sizes.lagging, lags=lags))
        for lag in sizes.lags
        for lags in ((0, 0, lag), (0, lag, lag))
    }
    speeds = measure.best(variants, sizes.repeats + 2)
    for lag in sizes.lags:
        for lagging, lags in ((1, (0, 0, lag)), (2, (0, lag, lag))):
            yield {"figure": 5, "algorithm": "R3", "lag_elements": lag, "lagging_inputs": lagging, **speeds[lags]}


def stable_frequency(sizes: Sizes) -> Iterator[Row]:
    """Figure 6: memory and throughput by StableFreq, two in-order inputs.

    The paper begins at 0.001 %, one stable in 100,000 elements; we begin where some stables fall into a run of seconds.
    """
    tapes = {}
    for frequency in sizes.stable_freqs:
        workload = msgspec.structs.replace(_ordered(sizes), stable_freq=frequency)
        period = round(1 / frequency)
        warm, measured = _warm(sizes.active) + 2 * period, max(sizes.measured, 4 * period)
        tapes[frequency] = measure.record(_streams(workload, 2), warm=warm, measured=measured)
    for name, frequency, row in _sweep(("R0", "R1", "R2", "R3", "R4", "R3 paper"), tapes, repeats=sizes.repeats - 1):
        yield {"figure": 6, "algorithm": name, "stable_freq": frequency, **row}


def enforcing_order(sizes: Sizes) -> Iterator[Row]:
    """Figure 7: memory and throughput by the number of inputs, R3 on the raw streams against Cleanse and R1.

    The stream of VI-D: 50 % disorder, a count, 36 % adjusts, StableFreq 0.1 %.
    """
    workload = Workload(events=ENDLESS, disorder=0.5, stable_freq=0.001, payload_bytes=sizes.payload_bytes)
    workload = workload.with_active(sizes.active)
    warm = 5 * _warm(sizes.active) // 3  # three elements of five are results
    tapes = {
        inputs: measure.record(_streams(workload, inputs, "count_lifetimes"), warm=warm, measured=sizes.measured)
        for inputs in sizes.inputs
    }
    for name, inputs, row in _sweep(("R3", "R3-", "C+R1"), tapes, repeats=sizes.repeats - 1):
        yield {"figure": 7, "algorithm": name, "inputs": inputs, **row}


def live_events(sizes: Sizes) -> Iterator[Row]:
    """Measure throughput by the number of live events at StableFreq 1 %: our stable step against the paper's loop."""
    variants: dict[tuple[str, int], tuple[str, measure.Tape]] = {}
    for live in sizes.live:
        workload = Workload(events=ENDLESS, payload_bytes=sizes.payload_bytes).with_active(live)
        tape = measure.record(_streams(workload, 3), warm=_warm(live), measured=sizes.measured)
        variants |= {(name, live): (name, tape) for name in ("R3", "R4", "R3 paper")}
    for (name, live), row in measure.best(variants, sizes.repeats).items():
        yield {"figure": "live", "algorithm": name, "live": live, **row}


def waiting(sizes: Sizes) -> Iterator[Row]:
    """VI-D.3: how long events wait in the merge, by their lifetime; three inputs, 20 % disorder, StableFreq 1 %.

    In application time and in elements that came meanwhile, not in seconds: those depend on the rate.
    """
    for active in sizes.lifetimes:
        workload = Workload(events=ENDLESS, payload_bytes=8).with_active(active)
        for name in ("R3", "C+R1"):
            waits = measure.latency(name, _streams(workload, 3), events=sizes.waiting)
            row: Row = {"figure": "latency", "algorithm": name, "lifetime_s": workload.event_duration / 1000}
            for field, values in (("application_s", waits.application_s), ("elements", waits.elements)):
                row[f"median_{field}"] = values[len(values) // 2]
                row[f"p99_{field}"] = values[len(values) * 99 // 100]
            yield row


STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "ordered": ("none", {"min_gap": 1, "disorder": 0.0}),
    "disordered": ("none", {}),
    "counted": ("count_lifetimes", {"disorder": 0.5, "stable_freq": 0.001}),
    "until next": ("until_next", {"min_gap": 1}),
}
"""The streams over which all algorithms that can merge them are compared, three inputs each: sub-query, parameters."""


def stream(name: str, sizes: Sizes, *, payload_bytes: int) -> measure.Tape:
    """Record one of STREAMS."""
    sub_query, parameters = STREAMS[name]
    workload = Workload(events=ENDLESS, payload_bytes=payload_bytes, **parameters).with_active(sizes.typical)
    warm = _warm(sizes.typical) * (1 if sub_query == "none" else 2)
    return measure.record(_streams(workload, 3, sub_query), warm=warm, measured=sizes.measured)


def algorithms(sizes: Sizes) -> Iterator[Row]:
    """Measure the throughput of every algorithm over every stream that it can merge, and the steps of R3 and R4."""
    for name in STREAMS:
        for payload_bytes in (40, sizes.payload_bytes):
            tape = stream(name, sizes, payload_bytes=payload_bytes)
            names = ALL if name == "ordered" else INDEXED
            about: Row = {"figure": "algorithms", "stream": name, "payload_bytes": payload_bytes}
            for algorithm, row in measure.throughput(names, tape, repeats=sizes.repeats - 1).items():
                yield {**about, "algorithm": algorithm, **row}
            for algorithm in ("R3", "R4"):
                us = {step: round(value, 2) for step, value in measure.steps(algorithm, tape).items()}
                yield {**about, "figure": "steps", "algorithm": algorithm, "us": us}


FIGURES = (
    ordered_streams,
    output_size,
    stream_lag,
    stable_frequency,
    enforcing_order,
    live_events,
    waiting,
    algorithms,
)
"""All measurements, in the order of the paper."""
