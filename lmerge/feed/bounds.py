"""What sources know of each other: sets of bounds for each ordered pair of them (notes/seed-003, 3 to 5 and 7). Pure.

The bound (t, d) from i to j says: if i emits timestamp x at wall instant e, all that j emits after e + t is above
x - d. Both are at least 0. Several bounds may hold for a pair, weak ones soon and strong ones later; one that another
beats in both is redundant. Nothing known is an empty set. `i = j` is a source's own disorder: d = 0 is strictly
increasing, d = 1 lets timestamps repeat, d = D + 1 lets them be D behind the largest.

What can be derived from bounds, once, before anything runs:

- `closure`: what follows over several sources, i to k to j. **It holds only if the bounds limit the sources' clocks.**
  If only what is emitted counts, the source in between may be silent, and then nothing follows (11.3 of the notes).
- `needs_timeout`: whether timestamps can stay unreleased when all sources fall silent (Theorem 3.3).
- `weakest`: the bounds between two groups of sources, from those between their members (section 5).
- `of_clocks`, `of_tokens`: the bounds of the two environments that the paper describes (section 7).
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import NamedTuple, TypeAlias


class Bound(NamedTuple):
    """The pair (t, d): `after` in wall time, `lag` in application time."""

    after: int
    lag: int


BoundSet: TypeAlias = tuple[Bound, ...]
"""Without redundancy: `after` rises and `lag` falls."""

Matrix: TypeAlias = Mapping[tuple[str, str], BoundSet]
"""By (i, j); a pair that is missing has the empty set."""


def reduced(bounds: Iterable[Bound]) -> BoundSet:
    """Leave out what is redundant.

    >>> reduced([Bound(0, 5), Bound(3, 5), Bound(2, 1), Bound(2, 3)])
    (Bound(after=0, lag=5), Bound(after=2, lag=1))
    """
    kept: list[Bound] = []
    for bound in sorted(bounds):
        if not kept or bound.lag < kept[-1].lag:
            kept.append(bound)
    return tuple(kept)


def product(one: Matrix, other: Matrix) -> dict[tuple[str, str], BoundSet]:
    """Give what either matrix says of a pair, and what follows over one source in between (4.3)."""
    found: dict[tuple[str, str], list[Bound]] = {}
    for matrix in (one, other):
        for pair, bounds in matrix.items():
            found.setdefault(pair, []).extend(bounds)
    for (i, k), first in one.items():
        for (k2, j), second in other.items():
            if k == k2:
                sums = (Bound(a.after + b.after, a.lag + b.lag) for a in first for b in second)
                found.setdefault((i, j), []).extend(sums)
    return {pair: reduced(bounds) for pair, bounds in found.items() if bounds}


def closure(matrix: Matrix) -> dict[tuple[str, str], BoundSet]:
    """Give all that follows, over any number of sources: for bounds that limit clocks, and for no others."""
    found = {pair: reduced(bounds) for pair, bounds in matrix.items() if bounds}
    while (further := product(found, found)) != found:
        found = further
    return found


def needs_timeout(matrix: Matrix, sources: Iterable[str]) -> bool:
    """Tell whether something can stay unreleased when all fall silent: unless every pair has a bound with lag 0."""
    names = list(sources)
    closed = closure(matrix)
    return not all(closed.get((i, j), ()) and closed[i, j][-1].lag == 0 for i in names for j in names)


def expanded(bounds: BoundSet, *, longest: int) -> dict[int, int]:
    """Give the smallest lag at each delay up to `longest`; nothing is known before the first."""
    return {
        after: min(bound.lag for bound in bounds if bound.after <= after)
        for after in range(longest + 1)
        if bounds and after >= bounds[0].after
    }


def weakest(sets: Iterable[BoundSet], *, longest: int) -> BoundSet:
    """Give what holds for all pairs of two groups, from the set of each pair: at every delay the larger lag."""

    def join(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
        return {after: max(lag, other[after]) for after, lag in one.items() if after in other}

    joined = reduce(join, (expanded(bounds, longest=longest) for bounds in sets))
    return reduced(Bound(after, lag) for after, lag in joined.items())


def of_clocks(deviations: Mapping[str, int], rates: Mapping[str, int] | None = None) -> dict[tuple[str, str], BoundSet]:
    """Give the bounds of sources that stamp with clocks of bounded deviation (7.2).

    Args:
        deviations: by how much a source's clock may be wrong.
        rates: how far it runs at least in one unit of wall time; left out, nothing is known.
    """
    found = {}
    for i in deviations:
        for j in deviations:
            lag = deviations[j] + (deviations[i] if i != j else 0)
            bounds = [Bound(0, lag)]
            if rates is not None:
                bounds.append(Bound(-(-lag // rates[j]), 0))
            found[i, j] = reduced(bounds)
    return found


def of_tokens(times: Mapping[str, tuple[int, int]]) -> dict[tuple[str, str], BoundSet]:
    """Give the bounds of sources that stamp with tokens of one shared counter (7.1).

    Args:
        times: the shortest and the longest time that a source takes from fetching a token to emitting.
    """
    return {(i, j): (Bound(0 if i == j else max(times[j][1] - times[i][0], 0), 0),) for i in times for j in times}
