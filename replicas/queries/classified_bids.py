"""Bids that an expensive function selects by their price, each for the instant of the bid. Merged by R3.

What the function computes stands for any costly classification: the price's place in a long sequence of pseudo-random
numbers, of which one bit decides. The sequence is made by a step that has an inverse, so it can be walked from either
end, and the cost of a bid is the distance:

    udf0   walks down from the last number: dear for low prices, cheap for high ones
    udf1   walks up from the first number: cheap for low prices, dear for high ones

Neither is the better plan. Run side by side with feedback, the one that lags skips what the other has settled, so the
merged topic is about as fast as the faster of the two at any time (paper 000, VI-E.3; `make bench-feedback`).

The function is declared non-deterministic, though it is not: Spark copies a deterministic one into every place that
uses its value, here a projection and a filter, and would run it twice for each bid. Rows that a fast-forward makes
needless never come here: the source leaves them out, since a result's reach is a millisecond.
"""

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.properties import StreamProperties
from replicas.query import EVENT_TIME, Plan, Query, Sources
from replicas.windows import Windows

STEPS: Final = 2_000
"""The length of the sequence: a fifth of a microsecond of work each, half a millisecond for the dearest bid."""

TOP_PRICE: Final = 10_000
"""Prices from 0 to here, in cents, are spread over the sequence; higher ones are at its end."""

FIRST: Final = 0x9E37_79B9_7F4A_7C15
_FACTOR: Final = 0xFF51_AFD7_ED55_8CCD
_INVERSE: Final = pow(_FACTOR, -1, 1 << 64)
_BITS: Final = (1 << 64) - 1

Score = Callable[[int], int]
"""From a place in the sequence to the number there."""


def up(number: int, steps: int) -> int:
    """Walk up the sequence: fold the upper half into the lower, multiply; both are one to one on 64 bits.

    >>> down(up(FIRST, 10), 10) == FIRST
    True
    """
    for _ in range(steps):
        number = ((number ^ number >> 33) * _FACTOR) & _BITS
    return number


def down(number: int, steps: int) -> int:
    """Walk down the sequence: the inverse of each half of a step, in reverse order."""
    for _ in range(steps):
        number = (number * _INVERSE) & _BITS
        number ^= number >> 33
    return number


def place(price: int, steps: int) -> int:
    """Return the place of a price in a sequence of so many steps.

    >>> place(0, 2_000), place(5_000, 2_000), place(1_000_000, 2_000)
    (0, 1000, 2000)
    """
    return max(0, min(price, TOP_PRICE)) * steps // TOP_PRICE


def _plan(name: str, steps: int, score: Score) -> Plan:
    """Make a plan that selects a bid if the upper bit of its number is set; `name` is that of the function too."""

    def is_selected(price: int | None) -> bool:
        return price is not None and score(place(price, steps)) >> 63 == 1

    is_selected.__name__ = name

    def build(sources: Sources, _windows: Windows) -> DataFrame:
        classify = F.udf(is_selected, "boolean", useArrow=False).asNondeterministic()
        vs = F.unix_millis(EVENT_TIME)
        classified = sources["bids"].withColumn("selected", classify("price"))
        bid = F.col("id").alias("bid")
        return classified.where("selected").select(bid, "auction", "price", vs.alias("vs"), (vs + 1).alias("ve"))

    # A bid's id is in its payload, which Spark's plan does not tell.
    return Plan(build=build, properties=StreamProperties(insert_only=True, key=True))


def scores(steps: int) -> dict[str, Score]:
    """Return how each plan finds a number of a sequence of so many steps."""
    last = up(FIRST, steps)
    return {"udf0": lambda at: down(last, steps - at), "udf1": lambda at: up(FIRST, at)}


def query(steps: int, scores: Mapping[str, Score]) -> Query:
    """Make the query with a plan for each way to find a number; all must find the same."""
    return Query(
        name="classified_bids",
        sources={"bids": {"id": int, "auction": int, "price": int}},
        key=("auction",),
        plans={name: _plan(name, steps, score) for name, score in scores.items()},
    )


QUERY = query(STEPS, scores(STEPS))
