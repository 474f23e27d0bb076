"""EndIndex under random actions against a plain list, and that broken indexes are noticed."""

import random
import tracemalloc

import pytest

from lmerge import INFINITY, Adjust, Insert, Stable, reconstitute
from lmerge.create import create
from lmerge.divergence import Claim, Kind, claim, contradict
from lmerge.ends import EndIndex
from lmerge.in2t import In2T, Node
from lmerge.indexed import IndexedMerge
from lmerge.membership import Stream
from lmerge.top_tier import MAX_DEPARTED


@pytest.mark.parametrize("seed", range(20))
def test_the_end_index_gives_back_what_is_live_and_lies_below(seed: int) -> None:
    rng = random.Random(seed)
    dead: set[int] = set()
    index: EndIndex[int] = EndIndex(lambda _, node: node not in dead)
    model: list[tuple[int, int]] = []
    for number in range(1000):
        draw = rng.random()
        if draw < 0.8:
            end = rng.choice([rng.randrange(50), INFINITY])
            index.add(end, number)
            if end < INFINITY:
                model.append((end, number))
        elif draw < 0.85:
            t = rng.randrange(60)
            popped = [node for node in index.pop_below(t) if node not in dead]
            assert sorted(popped) == sorted(node for end, node in model if end < t)
            model = [(end, node) for end, node in model if end >= t]
        elif model:
            dead.add(rng.choice(model)[1])
            model = [(end, node) for end, node in model if node not in dead]
        index.check_invariants()
        assert sorted((e, n) for e, n in index.entries() if n not in dead) == sorted(model)
        assert len(index) <= max(64, 2 * len(model) + len(dead))


def test_stale_entries_and_second_ones_do_not_pile_up() -> None:
    live = (5, "A")
    index: EndIndex[str] = EndIndex(lambda end, node: (end, node) == live)
    for _ in range(1000):
        index.add(5, "A")
        index.add(6, "gone")
    assert len(index) <= 64


def test_a_node_that_is_missing_from_the_index_is_noticed() -> None:
    index = In2T()
    slot = index.admit()
    node = index.add(Node(5, "A", 1, 20, ends={slot: 15}))
    index.check_invariants()
    index.keep(index.freeze_below(10))
    index.check_invariants()
    node.ends = {slot: 12}  # behind the index's back
    with pytest.raises(AssertionError):
        index.check_invariants()


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_slot_is_used_again_and_says_nothing_of_who_had_it_before(algorithm: str) -> None:
    merge = create(algorithm)
    assert isinstance(merge, IndexedMerge)
    merge.attach("stays")
    assert merge.process("stays", [Insert("A", 5, 20), Insert("B", 5, 20)])
    for number in range(5 * MAX_DEPARTED):
        merge.attach(number)
        assert merge.process(number, [Insert("A", 5, 20), Insert("B", 5, 10)]) == []  # one agrees, one does not
        merge._index.check_invariants()
        merge.detach(number)
    assert max(merge._index.nodes[5, "A"].claims()) <= 1 << MAX_DEPARTED + 1
    merge.attach("last")
    assert merge.process("last", [Stable(6)]) == [Adjust("A", 5, 20, 5), Adjust("B", 5, 20, 5), Stable(6)]


def stream(own_stable: int) -> Stream:
    result = Stream("s", 0)
    result.own_stable = own_stable
    return result


@pytest.mark.parametrize(
    ("own_stable", "vs", "ve", "joins_at", "expected"),
    [
        (10, 10, 20, 0, None),
        (10, 5, None, 0, "gone"),
        (10, 5, 8, 9, "gone"),
        (10, 5, 8, 8, "ends at 8"),
        (10, 5, 10, 10, "alive at 10"),
        (10, 5, 12, 11, None),
    ],
)
def test_what_a_stream_claims(own_stable: int, vs: int, ve: int | None, joins_at: int, expected: str | None) -> None:
    """The rule of recovery-and-sink 9, case by case."""
    made = claim(stream(own_stable), vs, ve, joins_at)
    assert (None if made is None else str(made)) == expected


GONE, ENDS_8, ENDS_9 = Claim(Kind.GONE, 0), Claim(Kind.ENDS, 8), Claim(Kind.ENDS, 9)
ALIVE_8, ALIVE_9 = Claim(Kind.ALIVE, 8), Claim(Kind.ALIVE, 9)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, GONE, False),
        (GONE, GONE, False),
        (GONE, ENDS_8, True),
        (GONE, ALIVE_8, True),
        (ENDS_8, ENDS_8, False),
        (ENDS_8, ENDS_9, True),
        (ENDS_8, ALIVE_8, False),
        (ENDS_8, ALIVE_9, True),
        (ALIVE_8, ALIVE_9, False),
    ],
)
def test_which_claims_contradict_each_other(one: Claim | None, other: Claim | None, expected: bool) -> None:
    assert contradict(one, other) is expected
    assert contradict(other, one) is expected


def test_what_a_stream_that_has_left_said_of_several_events_is_not_waited_for() -> None:
    merge = create("R4")
    merge.attach("a")
    merge.attach("b")
    out = merge.process("a", [Insert("A", 5, 25)])
    out += merge.process("b", [Insert("A", 5, 20), Insert("A", 5, 30)])
    merge.detach("b")
    out += merge.process("a", [Stable(10), Stable(26)])
    assert reconstitute(out) == reconstitute([Insert("A", 5, 25), Stable(26)])
    assert isinstance(merge, IndexedMerge)
    merge._index.check_invariants()


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
@pytest.mark.parametrize("payload_bytes", [40, 1_000])
def test_the_memory_of_live_events_is_estimated(algorithm: str, payload_bytes: int) -> None:
    merge = create(algorithm)
    for name in ("a", "b"):
        merge.attach(name)
    assert merge.stats().bytes == 0
    tracemalloc.start()
    try:
        events = [Insert(b"%0*d" % (payload_bytes, n), 10**12 + n, 2 * 10**12 + n) for n in range(5_000)]
        for name in ("a", "b"):
            merge.process(name, [*events, Stable(15 * 10**11)])
        del events
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used * 0.7 < merge.stats().bytes < used * 1.3
    merge.process("a", [Stable(INFINITY)])
    assert merge.stats().bytes == 0
