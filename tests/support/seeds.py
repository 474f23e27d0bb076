"""Play random cases by seed until enough has happened, and name the seed of a failure."""

import random
from collections.abc import Callable


def play_seeds(play: Callable[[random.Random], int], case: object, *, until: float, first: int = 0) -> None:
    """Play seeds from `first` on until their sizes, which `play` returns, add up to `until`."""
    passed, seed = 0, first
    while passed < until:
        try:
            passed += play(random.Random(seed))
        except Exception as error:
            error.add_note(f"case {case}, seed {seed}")
            raise
        seed += 1
