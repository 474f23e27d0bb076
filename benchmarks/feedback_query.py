"""The query of `make bench-feedback`: `classified_bids` over a longer sequence, with a plan that knows every bid's end.

`oracle` always walks from the nearer end: what a plan could cost that chose rightly for each bid.
"""

from typing import Final

from replicas.queries import classified_bids
from replicas.queries.classified_bids import Score

STEPS: Final = 120_000
"""Some 20 ms for the dearest bid: work beside which Spark's own is small."""


def scores(steps: int) -> dict[str, Score]:
    """Return the two ways to a number, and the shorter of them."""
    both = classified_bids.scores(steps)
    return {**both, "oracle": lambda at: both["udf1" if 2 * at < steps else "udf0"](at)}


QUERY = classified_bids.query(STEPS, scores(STEPS))
