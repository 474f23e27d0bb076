"""Random runs of operators, judged after every batch.

    case = CASES["aggregate"]
    play(case, Random(seed))             one random stream through every variant (mode) of the operator

A *case* draws an operator with random parameters: how to make it in each mode, its oracle, how far theory lets it
promise and how much it may keep. `play` draws a logical stream, presents it, cuts it into batches, and checks

    legal      every element of the output, by `lmerge.tdb`
    promise    it is the largest that the output supports, and all that is final is out
    state      after each stable bounded by what is open
    save       an operator that is loaded from a random moment on goes on alike
    answers    eager: always right; ordered and perfect: right up to where the input has come; final: never revised
    end        the oracle's TDB
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Element, Stable
from lmerge.properties import StreamProperties
from replicas.operators import (
    Aggregate,
    Chain,
    Filter,
    Function,
    Grid,
    Join,
    Map,
    Mode,
    Operator,
    Window,
    WindowAggregate,
    average,
    count,
    maximum,
    minimum,
    top,
    total,
)
from tests.support import operator_oracle as oracle
from tests.support.operator_oracle import ANSWERS, PAYLOADS, Oracle, cents_of, group_of, open_events, value_of
from tests.support.presentations import HORIZON, Planned, plan, present

FUNCTIONS: dict[str, Function] = {
    "count": count(),
    "sum": total(),
    "sum of cents": total(2),
    "min": minimum(),
    "max": maximum(),
    "average": average(2),
    "top 2": top(2),
}


class Case(NamedTuple):
    """An operator with parameters."""

    make: dict[Mode | None, Callable[[], Operator]]
    """By mode, or None where there are none."""
    answer: Oracle
    limit: Callable[[Sequence[int]], int]
    """How far the inputs' stables allow to promise."""
    room: Callable[[Sequence[TDB], Sequence[int]], int]
    """How much may be kept after a stable."""
    points: bool = False
    """Whether `ordered` and `perfect` can be judged instant by instant: a plain aggregate of snapshots."""
    inputs: int = 1
    reach: int = 0
    """How far behind `before` a row may matter: the width of windows on a grid."""


def _first(stables: Sequence[int]) -> int:
    return stables[0]


def _nothing(_inputs: Sequence[TDB], _stables: Sequence[int]) -> int:
    return 0


def draw_filter(rng: Random) -> Case:
    """Draw a filter."""
    kept = set(rng.sample(PAYLOADS, 3))
    return Case(
        {None: lambda: Filter(lambda payload: payload in kept)},
        lambda inputs: TDB(event for event in inputs[0] if event.payload in kept),
        _first,
        _nothing,
    )


def draw_map(_rng: Random) -> Case:
    """Draw a map, which makes some payloads equal."""
    return Case(
        {None: lambda: Map(group_of)},
        lambda inputs: TDB(type(event)(group_of(event.payload), event.vs, event.ve) for event in inputs[0]),
        _first,
        _nothing,
    )


def _draw_grid(rng: Random) -> tuple[int, int, int]:
    slide = rng.randint(1, oracle.LONGEST_SLIDE)
    return slide + rng.choice([0, 0, 1, slide, 2 * slide]), slide, rng.randrange(slide)


def draw_window(rng: Random) -> Case:
    """Draw a window of any kind."""
    width, slide, offset = _draw_grid(rng)
    kinds: dict[str, tuple[Callable[[], Operator], Callable[[int], list[int]]]] = {
        "range": (lambda: Window.range(width), lambda vs: [vs]),
        "tumbling": (
            lambda: Window.tumbling(width, offset),
            lambda vs: oracle.windows_of(vs, width, width, offset),
        ),
        "sliding": (
            lambda: Window.sliding(width, slide, offset),
            lambda vs: oracle.windows_of(vs, width, slide, offset),
        ),
        "hopping": (
            lambda: Window.hopping(width, slide, offset),
            lambda vs: oracle.windows_of(vs, slide, slide, offset),
        ),
    }
    make, starts = kinds[rng.choice(list(kinds))]
    return Case({None: make}, oracle.lifetimes(starts, width), oracle.first_start(starts), _nothing)


def _per_mode(make: Callable[[Mode], Operator]) -> dict[Mode | None, Callable[[], Operator]]:
    return {mode: (lambda mode=mode: make(mode)) for mode in Mode}  # type: ignore[misc]


def _value(name: str) -> Callable[[object], object]:
    return cents_of if name == "sum of cents" else value_of


def draw_aggregate(rng: Random, *, grouped: bool = False) -> Case:
    """Draw an aggregate over snapshots."""
    name = rng.choice(list(FUNCTIONS))
    key = group_of if grouped else None
    return Case(
        _per_mode(lambda mode: Aggregate(FUNCTIONS[name], mode, key=key, value=_value(name))),
        oracle.snapshots(ANSWERS[name], grouped=grouped),
        _first,
        # A start and an end of each open event, and the point where the open snapshot of a group began.
        lambda inputs, stables: 3 * open_events(inputs[0], stables[0]),
        points=not grouped,
    )


def draw_grouped(rng: Random) -> Case:
    """Draw an aggregate over snapshots of groups."""
    return draw_aggregate(rng, grouped=True)


def draw_window_aggregate(rng: Random) -> Case:
    """Draw an aggregate over windows on a grid, with groups or without."""
    width, slide, offset = _draw_grid(rng)
    name = rng.choice(list(FUNCTIONS))
    grouped = rng.random() < 0.5
    key = group_of if grouped else None
    grid = Grid(width, slide, offset)

    def room(inputs: Sequence[TDB], stables: Sequence[int]) -> int:
        return len(
            {
                (group_of(event.payload) if grouped else None, start)
                for event in inputs[0]
                for start in oracle.windows_of(event.vs, width, slide, offset)
                if start + width > stables[0]
            }
        )

    return Case(
        _per_mode(lambda mode: WindowAggregate(grid, FUNCTIONS[name], mode, key=key, value=_value(name))),
        oracle.window_answers(ANSWERS[name], width, slide, offset, grouped=grouped),
        oracle.first_start(lambda vs: oracle.windows_of(vs, width, slide, offset)),
        room,
        reach=width,
    )


def draw_join(_rng: Random) -> Case:
    """Draw a join."""

    def room(inputs: Sequence[TDB], stables: Sequence[int]) -> int:
        mine = sum(event.ve > stables[1] for event in inputs[0])
        return mine + sum(event.ve > stables[0] for event in inputs[1])

    make: Callable[[], Operator] = lambda: Join(group_of, group_of, lambda one, other: one + other)  # noqa: E731
    return Case({None: make}, oracle.pairs, min, room, inputs=2)


def draw_chain(rng: Random) -> Case:
    """Draw filter, window and grouped aggregate as one operator."""
    width, slide, offset = _draw_grid(rng)
    filtered, aggregated = draw_filter(rng), draw_grouped(rng)
    windows = oracle.lifetimes(lambda vs: oracle.windows_of(vs, width, slide, offset), width)
    limit = oracle.first_start(lambda vs: oracle.windows_of(vs, width, slide, offset))

    def windowed(inputs: Sequence[TDB]) -> list[TDB]:
        return [windows([filtered.answer(inputs)])]

    return Case(
        {
            mode: lambda make=make: Chain(filtered.make[None](), Window.sliding(width, slide, offset), make())  # type: ignore[misc]
            for mode, make in aggregated.make.items()
        },
        lambda inputs: aggregated.answer(windowed(inputs)),
        limit,
        lambda inputs, stables: aggregated.room(windowed(inputs), [limit(stables)]),
    )


CASES: dict[str, Callable[[Random], Case]] = {
    "filter": draw_filter,
    "map": draw_map,
    "window": draw_window,
    "aggregate": draw_aggregate,
    "grouped aggregate": draw_grouped,
    "window aggregate": draw_window_aggregate,
    "join": draw_join,
    "chain": draw_chain,
}


class Batch(NamedTuple):
    """Some elements of one input."""

    source: int
    elements: list[Element]


def draw_plan(rng: Random) -> list[Planned]:
    """Draw a logical stream, with infinite lifetimes and events that will be taken back."""
    return [event for _ in range(rng.choice([1, 1, 1, 2, 3])) for event in plan(rng, payloads=PAYLOADS, endless=True)]


def batches(rng: Random, streams: Sequence[Sequence[Element]]) -> Iterator[Batch]:
    """Cut streams into batches and interleave them."""
    longest = rng.choice([1, 3, 8])
    left = [list(stream) for stream in streams]
    while any(left):
        source = rng.choice([source for source, stream in enumerate(left) if stream])
        size = rng.randint(1, longest)
        yield Batch(source, left[source][:size])
        del left[source][:size]


class Run:
    """One operator in one mode, with what it has put out so far."""

    def __init__(self, case: Case, mode: Mode | None, operator: Operator | None = None) -> None:
        self.case = case
        self.mode = mode
        self.operator = operator or case.make[mode]()
        self.twin: Operator | None = None  # loaded from the state of a moment ago
        self.output = TDB()
        self.elements: list[Element] = []
        self.stable = MINUS_INFINITY  # the last of the first input

    def reload(self) -> None:
        """Let an operator go on from the present state as well."""
        state = self.operator.save()
        self.twin = self.case.make[self.mode]()
        self.twin.load(state)
        assert self.twin.save() == state

    def take(self, batch: Batch) -> None:
        """Feed a batch; every element that comes out must be legal."""
        out = self.operator.process(batch.elements, batch.source)
        self.stable = max([self.stable, *(element.vc for element in batch.elements if isinstance(element, Stable))])
        self.put(out)
        if self.twin is not None:
            assert self.twin.process(batch.elements, batch.source) == out

    def put(self, out: Sequence[Element]) -> None:
        """Note elements of the output."""
        self.elements += out
        assert self.mode is not Mode.FINAL or not any(isinstance(element, Adjust) for element in out)
        for element in out:
            self.output.apply(element)

    def judge(self, inputs: Sequence[TDB], answer: TDB) -> None:
        """Check the answers that the mode gives at any time."""
        if self.mode in (None, Mode.EAGER):
            assert self.output == answer
        if self.case.points and self.mode in (Mode.PERFECT, Mode.ORDERED):
            come_to = max((event.vs for event in inputs[0]), default=0)
            assert oracle.agree(self.output, answer, come_to + (self.mode is Mode.ORDERED))

    def judge_promise(self, answer: TDB, limit: int) -> None:
        """Check promise and progress, given how far the inputs' stables allow to promise."""
        assert self.output.stable == self.operator.promised == oracle.supported(self.output, answer, limit)
        if self.mode in (None, Mode.ORDERED, Mode.EAGER):
            assert self.output.stable == limit
        assert all(self.output.count(event) == answer.count(event) for event in answer if event.ve < limit)


def play(case: Case, rng: Random, *, runs: Sequence[Run] | None = None) -> int:
    """Play one random stream through all modes; return 1, a stream played."""
    streams = [present(rng, draw_plan(rng), StreamProperties()) for _ in range(case.inputs)]
    runs = runs or [Run(case, mode) for mode in case.make]
    inputs, stables = [TDB() for _ in streams], [-HORIZON] * len(streams)
    for batch in batches(rng, streams):
        for element in batch.elements:
            inputs[batch.source].apply(element)
            if isinstance(element, Stable):
                stables[batch.source] = element.vc
        answer = case.answer(inputs)
        limit = case.limit(stables) if min(stables) > -HORIZON else None
        save = rng.random() < 0.1
        for run in runs:
            if save:
                run.reload()
            run.take(batch)
            run.judge(inputs, answer)
            if limit is not None:
                run.judge_promise(answer, limit)
            if isinstance(batch.elements[-1], Stable):
                assert len(run.operator) <= case.room(inputs, stables)
    for run in runs:
        assert run.output == case.answer(inputs)
        assert run.output.stable == INFINITY
        assert len(run.operator) == 0
        assert run.twin is None or run.twin.save() == run.operator.save()
    return 1
