"""What R3 and R4 hold and look at is bounded by what lives: stale entries go, and cost no more than deaths."""

from typing import Any

import pytest

from lmerge import OutputPolicy, create
from lmerge.ends import MIN_LIMIT, EndIndex
from lmerge.top_tier import MAX_DEPARTED
from tests.support.streams import INF, adj, ins, merge_of, stb


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_node_sheds_the_ends_of_streams_that_left(algorithm: str) -> None:
    """State is bounded by what is live, however often streams come and go."""
    merge = merge_of(algorithm, "r1")
    merge.process("r1", [ins("A", 5, INF), stb(6)])
    for number in range(100):
        merge.attach(f"s{number}")
        merge.process(f"s{number}", [ins("A", 5, INF)])
        merge.detach(f"s{number}")
    (node,) = merge._index.nodes.values()  # type: ignore[attr-defined]
    assert len(node.claims()) <= MAX_DEPARTED + 1
    merge._index.check_invariants()  # type: ignore[attr-defined]
    assert merge.process("r1", [adj("A", 5, INF, 9), stb(20)]) == [adj("A", 5, INF, 9), stb(20)]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_ends_that_changed_do_not_pile_up_in_the_index(algorithm: str) -> None:
    """A long-lived event whose end moves all the time leaves stale entries; they are compacted away."""
    merge = merge_of(algorithm)
    both = ("r1", "r2")
    for stream in both:
        merge.process(stream, [ins("A", 5, 1000), ins("B", 6, 50_000), stb(10)])
    end = 1000
    for step in range(1, 500):
        for stream in both:
            merge.process(stream, [adj("A", 5, end, end + 10 * (-1) ** step), stb(10 + step)])
        end += 10 * (-1) ** step
    index = merge._index  # type: ignore[attr-defined]
    index.check_invariants()
    assert all(len(ends) < 200 for ends in (index._out_ends, *index._own_ends.values()))
    assert merge.stats().nodes == 2


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_nodes_that_die_early_leave_nothing_behind_in_the_index(algorithm: str) -> None:
    merge = merge_of(algorithm, "r1")
    names = [f"A{number}" for number in range(100)]
    merge.process("r1", [*(ins(name, 5, 10_000) for name in [*names, "B"]), stb(10)])
    merge.process("r1", [*(adj(name, 5, 10_000, 50) for name in names), stb(100)])
    index = merge._index  # type: ignore[attr-defined]
    assert [(end, node.payload) for end, node in index._out_ends.entries()] == [(10_000, "B")]
    index.check_invariants()


def test_ends_of_a_laggard_on_dead_nodes_do_not_stay_for_ever() -> None:
    """r2 says of 100 events that they end at 1000, and nothing more; r1 is done with them at 100."""
    merge = merge_of("R3")
    doubtful = [f"A{number}" for number in range(100)]
    merge.process("r1", [ins(name, 5, 10_000) for name in doubtful])
    merge.process("r2", [ins(name, 5, 1_000) for name in doubtful])
    merge.process("r1", [stb(10)])
    own = merge._index._own_ends  # type: ignore[attr-defined]
    assert sum(map(len, own.values())) == 100
    merge.process("r1", [*(adj(name, 5, 10_000, 50) for name in doubtful), stb(100)])
    assert sum(map(len, own.values())) == 0


def test_eager_outputs_that_changed_do_not_pile_up_in_the_index() -> None:
    merge = create("R3", policy=OutputPolicy.parse("eager"))
    merge.attach("r1")
    merge.process("r1", [ins("A", 5, 1000), stb(10)])
    for step in range(300):
        merge.process("r1", [adj("A", 5, 1000 + step, 1001 + step)])
    assert len(merge._index._out_ends) <= 64  # type: ignore[attr-defined]


def test_r4_own_ends_that_changed_do_not_pile_up_in_the_index() -> None:
    merge = merge_of("R4")
    for stream in ("r1", "r2"):
        merge.process(stream, [ins("A", 5, 1000), stb(10)])
    for step in range(300):
        merge.process("r1", [adj("A", 5, 1000 + step, 1001 + step)])
    assert all(len(ends) <= 64 for ends in merge._index._own_ends.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("algorithm", "ends"), [("R3", 1), ("R4", 1), ("R4", 3)])
def test_a_stable_that_touches_nothing_looks_at_nothing(algorithm: str, ends: int) -> None:
    """The cost of a stable is what it changes (design 5): no bucket of the index is built anew for it."""
    merge = merge_of(algorithm)
    for stream in ("r1", "r2"):
        merge.process(stream, [ins(key, 5, 10_000 + end) for key in range(200) for end in range(ends)])
        merge.process(stream, [stb(10)])
    index = merge._index  # type: ignore[attr-defined]
    before = index._out_ends._buckets
    for t in range(11, 100):
        assert merge.process("r1", [stb(t)]) == [stb(t)]
    assert index._out_ends._buckets is before


def test_r4_forgets_dead_nodes_that_a_stream_once_gave_another_end() -> None:
    """r2 corrects itself after the events are half frozen, and never leads."""
    merge = merge_of("R4")
    names = [f"A{number}" for number in range(200)]
    merge.process("r1", [*(ins(name, 5, 50) for name in names), stb(10)])
    merge.process("r2", [*(ins(name, 5, 40) for name in names), *(adj(name, 5, 40, 50) for name in names)])
    own = merge._index._own_ends  # type: ignore[attr-defined]
    assert sum(map(len, own.values())) == 200
    merge.process("r1", [stb(60)])
    assert sum(map(len, own.values())) == 0


def test_a_key_with_many_ends_is_not_looked_through_at_every_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its ends none is stale; what is looked at is paid for by nodes that have died."""
    looked_at = 0
    compact = EndIndex.compact

    def counted(index: EndIndex[Any]) -> None:
        nonlocal looked_at
        looked_at += len(index)
        compact(index)

    merge = merge_of("R4")
    ends = range(10_000, 15_000)
    merge.process("r1", [*(ins("A", 5, end) for end in ends), stb(10)])
    monkeypatch.setattr(EndIndex, "compact", counted)
    short = 70
    for t in range(20, 400, 10):
        merge.process("r1", [*(ins(f"B{n}", t, t + 1) for n in range(short)), stb(t + 5)])
    assert looked_at <= 5 * short * 38
    assert merge.stats().nodes == 1


def test_what_is_held_after_a_peak_is_bounded_by_what_lives_then() -> None:
    merge = create("R3", policy=OutputPolicy.parse("eager"))
    merge.attach("r1")
    merge.process("r1", [ins("A", 5, INF), *(ins(f"B{n}", 5, 20) for n in range(5_000)), stb(10), stb(30)])
    assert merge.stats().nodes == 1
    before = INF
    for end in range(100, 5_000):
        merge.process("r1", [adj("A", 5, before, end)])
        before = end
    assert len(merge._index._out_ends) <= 4 * MIN_LIMIT  # type: ignore[attr-defined]
