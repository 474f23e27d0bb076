"""EndIndex under random actions against a plain list, and that broken indexes are noticed."""

import random

import pytest

from lmerge import INFINITY
from lmerge.divergence import Claim, Kind, claim, contradict
from lmerge.ends import EndIndex
from lmerge.in2t import In2T, Node
from lmerge.membership import Stream


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
    index.admit(0)
    node = index.add(Node(5, "A", 1, out=20, ends={0: 15}))
    index.check_invariants()
    (node,) = index.freeze_below(10)
    index.keep(node)
    index.check_invariants()
    node.ends[0] = 12  # behind the index's back
    with pytest.raises(AssertionError):
        index.check_invariants()


def stream(own_stable: int) -> Stream:
    result = Stream("s", 0, 0)
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
