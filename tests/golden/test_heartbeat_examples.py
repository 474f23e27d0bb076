"""The worked examples of notes/seed-003, section 11, by their own numbers (and numbered as there)."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from lmerge.feed import CutMaker, FeedDefinition, Heartbeat, Row, Source, counts
from lmerge.feed.bounds import Bound, Matrix, closure, expanded, needs_timeout, of_clocks, of_tokens, product, weakest
from lmerge.feed.counted import CountedBounds
from lmerge.feed.estimators import AdaptiveBound, SkewEstimator
from lmerge.feed.generator import Generator, Group
from replicas.windows import Windows

Arrival = tuple[int, str, int]
"""Instant, source, timestamp."""


def matrix(**sets: Iterable[tuple[int, int]]) -> dict[tuple[str, str], tuple[Bound, ...]]:
    """Make a matrix: `b12=[(0, 4)]` is the set from source 1 to source 2."""
    return {(name[1], name[2]): tuple(Bound(*pair) for pair in pairs) for name, pairs in sets.items()}


class Played:
    """The taus after all arrivals of each instant, -1 where nothing is promised (the least timestamp is 0)."""

    def __init__(
        self,
        bounds: Matrix,
        latency: Mapping[str, int],
        arrivals: Sequence[Arrival],
        *,
        until: int,
        timeout: int | None = None,
    ) -> None:
        generator = Generator({name: Group(latency=time) for name, time in latency.items()}, bounds, timeout=timeout)
        for name in latency:
            generator.add_source((name, 0), tau=None, at=0)
        self.taus: dict[str, list[int]] = {name: [] for name in latency}
        for c in range(until + 1):
            for at, name, ts in arrivals:
                if at == c:
                    generator.arrive((name, 0), ts, at=c)
            generator.advance(c)
            for name, taus in self.taus.items():
                tau = generator.tau((name, 0))
                taus.append(-1 if tau is None else tau)
        self.heartbeats = [min(taus) for taus in zip(*self.taus.values(), strict=True)]
        self.released: dict[int, list[int]] = {}
        buffer: list[int] = []
        for c, heartbeat in enumerate(self.heartbeats):
            buffer += [ts for at, _, ts in arrivals if at == c]
            if out := sorted(ts for ts in buffer if ts <= heartbeat):
                self.released[c] = out
            buffer = [ts for ts in buffer if ts > heartbeat]
        self.left = sorted(buffer)


def test_11_1_one_stream() -> None:
    arrivals = [(0, "1", 10), (1, "1", 12), (2, "1", 11), (4, "1", 15), (5, "1", 13), (6, "1", 16)]
    played = Played(matrix(b11=[(0, 3)]), {"1": 2}, arrivals, until=9)
    assert played.heartbeats == [-1, -1, 7, 9, 9, 9, 12, 12, 13, 13]
    assert played.released == {6: [10, 11, 12], 8: [13]}
    assert played.left == [15, 16]


TWO = matrix(b11=[(0, 1)], b12=[(0, 4)], b21=[(2, 2)], b22=[(0, 1)])
TWO_ARRIVALS = [(0, "1", 20), (1, "2", 18), (2, "1", 22), (4, "2", 23), (6, "1", 24)]


def test_11_2_two_streams() -> None:
    played = Played(TWO, {"1": 1, "2": 3}, TWO_ARRIVALS, until=12)
    assert played.taus["1"] == [-1, 19, 19, 21, 21, 21, 21, *[23] * 6]
    assert played.taus["2"] == [-1, -1, -1, 16, 17, 18, 18, *[22] * 6]
    assert played.heartbeats == [-1, -1, -1, 16, 17, 18, 18, *[22] * 6]
    assert played.released == {5: [18], 7: [20, 22]}
    assert played.left == [23, 24]
    assert product(TWO, TWO) == TWO


def test_11_2_with_a_timeout_of_5() -> None:
    played = Played(TWO, {"1": 1, "2": 3}, TWO_ARRIVALS, until=12, timeout=5)
    assert [played.taus[name][10:12] for name in "12"] == [[23, 24], [22, 24]]
    assert played.released[11] == [23, 24]
    assert played.left == []


CHAIN = matrix(b12=[(1, 1)], b13=[(1, 3)], b23=[(1, 1)])


def test_11_3_closure() -> None:
    closed = closure(CHAIN)
    assert closed == {**CHAIN, ("1", "3"): (Bound(1, 3), Bound(2, 2))}
    assert product(CHAIN, CHAIN) != CHAIN
    latency = {"1": 0, "2": 4, "3": 6}
    plain = Played(CHAIN, latency, [(0, "1", 100)], until=9)
    assert (plain.taus["2"], plain.taus["3"]) == ([*[-1] * 5, *[99] * 5], [*[-1] * 7, *[97] * 3])
    assert Played(closed, latency, [(0, "1", 100)], until=9).taus["3"] == [*[-1] * 7, 97, 98, 98]


def test_11_3_the_closure_does_not_hold_if_only_emissions_count() -> None:
    """Source 2 is silent and source 3 emits 98 at 5, as bound 13 allows; the closure promises that it is above 98."""
    latency = {"1": 0, "2": 0, "3": 0}
    assert Played(CHAIN, latency, [(0, "1", 100)], until=5).taus["3"][4] == 97
    assert Played(closure(CHAIN), latency, [(0, "1", 100)], until=5).taus["3"][4] == 98


@pytest.mark.parametrize(
    ("bounds", "taus"),
    [
        ([(0, 1)], [4, 4, 4, 5, 7, 7]),
        ([(3, 0)], [None, None, None, 5, 5, 5]),
        ([(0, 1), (3, 0)], [4, 4, 4, 5, 7, 7]),
        ([(0, 1), (2, 0)], [4, 4, 5, 5, 7, 7]),
    ],
)
def test_11_4_bounds_counted_in_arrivals(bounds: list[tuple[int, int]], taus: list[int | None]) -> None:
    source = CountedBounds(bounds)
    assert [source.arrive(ts) for ts in (5, 5, 5, 6, 8, 8)] == taus


TOKEN_TIMES = {"1": (1, 4), "2": (2, 3), "3": (1, 9)}
"""Shortest and longest time from fetching a token to emitting it."""


def test_11_5_shared_counter() -> None:
    found = of_tokens(TOKEN_TIMES)
    delays = {("1", "2"): 2, ("1", "3"): 8, ("2", "1"): 2, ("2", "3"): 7, ("3", "1"): 3, ("3", "2"): 2}
    same = {(name, name): 0 for name in "123"}
    assert found == {pair: (Bound(after, 0),) for pair, after in (delays | same).items()}
    assert not needs_timeout(found, "123")


def worst_run(slow: str) -> list[Arrival]:
    """One source holds token 0 for its longest time; the others fetch meanwhile, and take their shortest for each."""
    longest = TOKEN_TIMES[slow][1]
    others = {name: shortest for name, (shortest, _) in TOKEN_TIMES.items() if name != slow}
    fetched = sorted((at, name) for name, shortest in others.items() for at in range(0, longest, shortest))
    return [
        *((at + others[name], name, token) for token, (at, name) in enumerate(fetched, start=1)),
        (longest, slow, 0),
    ]


def at_once(lags: Mapping[str, int]) -> dict[tuple[str, str], tuple[Bound, ...]]:
    """Make the bounds of a shared counter without delays: a lag for each source that is to be waited for."""
    return {(i, j): (Bound(0, 0 if i == j else lags[j]),) for i in lags for j in lags}


def test_11_5_without_delays() -> None:
    lags = {"1": 6, "2": 6, "3": 14}
    assert {slow: len(worst_run(slow)) - 1 for slow in lags} == lags, "so many are fetched while a token is held"
    assert needs_timeout(at_once(lags), "123")
    latency = dict.fromkeys("123", 0)
    for slow, (_, longest) in TOKEN_TIMES.items():
        for bounds in (at_once(lags), of_tokens(TOKEN_TIMES)):
            before = Played(bounds, latency, worst_run(slow), until=longest - 1).taus[slow][-1]
            assert before < 0, "token 0 is not late"
    less = at_once({**lags, "1": 5})
    assert Played(less, latency, worst_run("1"), until=3).taus["1"][-1] == 0, "by a lag of 5 it would be"


DEVIATIONS = {"1": 2, "2": 3, "3": 1}


def test_11_6_sensors_with_clocks_of_known_rate() -> None:
    found = of_clocks(DEVIATIONS, {"1": 1, "2": 2, "3": 1})
    assert found == matrix(
        b11=[(0, 2), (2, 0)],
        b12=[(0, 5), (3, 0)],
        b13=[(0, 3), (3, 0)],
        b21=[(0, 5), (5, 0)],
        b22=[(0, 3), (2, 0)],
        b23=[(0, 4), (4, 0)],
        b31=[(0, 3), (3, 0)],
        b32=[(0, 4), (2, 0)],
        b33=[(0, 1), (1, 0)],
    )
    closed = closure(found)
    assert Bound(2, 3) in closed["1", "2"]
    assert {Bound(3, 4), Bound(4, 3)} <= set(closed["2", "1"])
    assert not needs_timeout(found, "123")


def test_11_6_sensors_without_rates() -> None:
    found = of_clocks(DEVIATIONS)
    assert product(found, found) == found
    assert needs_timeout(found, "123")
    assert needs_timeout({}, "1")


def test_11_7_grouping() -> None:
    one, other = (Bound(1, 2), Bound(3, 1)), (Bound(0, 5), Bound(2, 0))
    assert expanded(one, longest=4) == {1: 2, 2: 2, 3: 1, 4: 1}
    assert expanded(other, longest=4) == {0: 5, 1: 5, 2: 0, 3: 0, 4: 0}
    assert weakest([one, other], longest=4) == (Bound(1, 5), Bound(2, 2), Bound(3, 1))
    assert weakest([one, ()], longest=4) == ()


def spark_counts(batches: Sequence[Sequence[int]], delay: int, *, older: bool = False) -> dict[int, int]:
    """Count by windows of 5 as Spark does: late are rows of windows that the watermark before the last batch closed.

    An older Spark took the watermark of the batch itself.
    """
    found: dict[int, int] = {}
    largest = watermark = before = 0
    for batch in batches:
        for ts in batch:
            if ts // 5 * 5 + 5 > (watermark if older else before):
                found[ts // 5 * 5] = found.get(ts // 5 * 5, 0) + 1
        largest = max(largest, *batch)
        before, watermark = watermark, max(watermark, largest - delay)
    return found


def feed_counts(cuts: Sequence[Sequence[int]], *, disorder_ms: int) -> dict[int, int]:
    definition = FeedDefinition(name="f", sources=(Source(topic="a", time="kafka", disorder_ms=disorder_ms),))
    maker = CutMaker(definition, Heartbeat.start("id", {"a": (0,)}))
    found: dict[int, int] = {}
    offset = 0
    for rows in cuts:
        before = maker.last
        maker.add([Row("a", 0, offset + n, ts) for n, ts in enumerate(rows)], now_ms=0)
        offset += len(rows)
        beat = maker.cut(now_ms=0).heartbeat
        for ts in rows:
            if counts(ts, tau_before=before.tau, ceiling=beat.ceiling):
                found[ts // 5 * 5] = found.get(ts // 5 * 5, 0) + 1
    return found


def test_11_8_lateness_depends_on_batches_in_spark_and_not_in_a_feed() -> None:
    """No Spark runs: its numbers are those of `spark_counts`, a model of it above. The feed's are of our own code."""
    rows = [6, 14, 7, 16, 8]
    one_by_one = [[ts] for ts in rows]
    assert spark_counts(one_by_one, 3)[5] == 2
    assert spark_counts([rows], 3)[5] == 3
    assert spark_counts(one_by_one, 3, older=True)[5] == 1, "7 and 8 are dropped"
    assert spark_counts([rows], 3, older=True)[5] == 3
    true = {5: 3, 10: 1, 15: 1, 30: 1}
    for batches in ([*one_by_one, [30]], [rows, [30]]):
        assert spark_counts(batches, 9) == true
        assert feed_counts(batches, disorder_ms=8) == true  # d = D + 1 = 9


def test_11_9_conservative_estimates() -> None:
    estimator = SkewEstimator("12", longest=2)
    arrivals = [(0, "1", 10), (1, "2", 7), (2, "1", 12), (3, "2", 12), (4, "1", 11), (5, "2", 9)]
    for at, source, ts in arrivals[:-1]:
        estimator.arrive(source, ts, at=at)
    assert estimator.lags("1", "2") == [4, 4, 0]
    estimator.arrive("2", 9, at=5)
    assert [estimator.lags(i, j) for i in "12" for j in "12"] == [[2, 2, 2], [4, 4, 4], [2, 2, 0], [4, 4, 4]]
    assert estimator.bounds()["2", "1"] == (Bound(0, 2), Bound(2, 0))


def test_11_10_adaptive_estimates() -> None:
    bound = AdaptiveBound(window=3, weight=0.5)
    found = []
    for lag in (8, 2, 3, 1, 2, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0):
        bound.sample(lag)
        found.append(bound.exact)
    assert found == [8, 8, 8, 8, 5.5, 5.5, 6, 6, 6, 6, 3, 3, 3, 3, 1.5]
    bound.exact = 5.5
    generator = Generator({"1": Group(lag=bound.lag)}, {})
    generator.add_source(("1", 0), tau=None, at=0)
    generator.arrive(("1", 0), 100, at=0)
    assert generator.tau(("1", 0)) == 94


def test_11_11_heartbeats_of_a_plan() -> None:
    """Without its memory link: nothing here gives labels to operators, which 12.10 keeps as an option on paper."""
    generator = Generator(dict.fromkeys("123", Group(lag=0)), {})
    for name, tau in zip("123", (50, 48, 20), strict=True):
        generator.add_source((name, 0), tau=None, at=0)
        generator.arrive((name, 0), tau, at=0)
    s1, s2, s3 = ("1", 0), ("2", 0), ("3", 0)
    assert generator.promise(None).tau == 20  # query level
    assert (generator.tau_of([s1, s2]), generator.tau_of([s1, s2, s3])) == (48, 20)  # operator level: O1, O2


@pytest.mark.parametrize(
    ("heartbeat", "width", "slide", "stable"),
    [(23, 10, 5, 15), (25, 5, 5, 25), (24, 5, 5, 20), (4, 5, 5, 0), (5, 5, 5, 5)],
)
def test_11_12_windows(heartbeat: int, width: int, slide: int, stable: int) -> None:
    assert Windows(width_ms=width, slide_ms=slide).first_open(heartbeat) == stable
