"""The lane that production runs, in random worlds: crashes, zombies, retention, inputs that come, go, join late, break.

20,000 seeds in `make test`, ten times as many in `test-long`. A seed that fails is printed with its case;
``LaneWorld(random.Random(seed), *case).run()`` replays it.
"""

import random

import pytest

from tests.support.lane_world import LaneWorld
from tests.support.seeds import play_seeds
from tests.support.world import CASES

SEEDS = 1_300
"""For each algorithm with each policy."""

FORMED_SEEDS = 500
"""Behind the normal form, which re-feeds whole incarnations and so takes longer."""

SHARDS = 2


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize(("algorithm", "policy", "formed"), [*((*case, False) for case in CASES), ("R3", "", True)])
def test_whatever_happens_the_merged_stream_is_the_reference(
    algorithm: str, policy: str, formed: bool, shard: int, long: bool
) -> None:
    """With no repeat and no gap, legal at every prefix; and every successor knows what its predecessor knew."""

    def play(rng: random.Random) -> int:
        LaneWorld(rng, algorithm, policy, formed=formed).run()
        return 1

    seeds = (FORMED_SEEDS if formed else SEEDS) // SHARDS * (10 if long else 1)
    play_seeds(play, (algorithm, policy, formed), until=seeds, first=shard * 1_000_000)


def test_there_are_as_many_seeds_as_promised() -> None:
    assert len(CASES) * SEEDS + FORMED_SEEDS == 20_000
