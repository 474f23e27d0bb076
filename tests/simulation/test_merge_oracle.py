"""R0 to R4 in random worlds, judged by the oracle after every output element.

A seed that fails is printed with the case; `World(random.Random(seed), …)` replays it.
"""

import random
from collections import Counter

import pytest

from lmerge import Adjust, Insert, Stable
from tests.support.seeds import play_seeds
from tests.support.world import CASES, POLICIES, World

ELEMENTS = 200_000
"""Elements per algorithm in `make test`, and once more over R3's other policies; ten times as many in `test-long`."""

PLAIN = [case for case in CASES if case[1] in ("", POLICIES[0])]
"""Every algorithm with the paper's own policy."""

SHARDS = [(*case, shard) for case in CASES for shard in range(4 if case in PLAIN else 1)]


@pytest.mark.parametrize(("algorithm", "policy", "shard"), SHARDS)
def test_every_prefix_is_compatible_and_the_end_is_the_reference(
    algorithm: str, policy: str, shard: int, long: bool
) -> None:
    """Streams of one TDB, any interleaving, streams that come late, go and come back."""
    elements = ELEMENTS / (4 if (algorithm, policy) in PLAIN else len(POLICIES)) * (10 if long else 1)

    def play(rng: random.Random) -> int:
        world = World(rng, algorithm, policy)
        while world.step():
            pass
        assert world.is_right
        assert world.inputs_end()
        if not policy or policy == POLICIES[0]:
            _check_not_chatty(world)
        if "fully_frozen" in policy:
            assert not any(isinstance(element, Adjust) for element in world.output)
        return world.elements

    play_seeds(play, (algorithm, policy), until=elements, first=shard * 1_000_000)


def _check_not_chatty(world: World) -> None:
    """Invariant 7."""
    stats = world.merge.stats()
    out = Counter(map(type, world.output))
    assert (stats.inserts_out, stats.adjusts_out, stats.stables_out) == (out[Insert], out[Adjust], out[Stable])
    assert stats.inserts_out <= stats.inserts_in
    assert stats.adjusts_out <= stats.inserts_in + stats.adjusts_in
    assert stats.stables_out <= stats.stables_in
