"""The heartbeats of sources that send none, deduced from what arrives and from bounds (notes/seed-003, 4). Pure.

A *source* is one of a *group*; here a partition of a topic. Three kinds of knowledge move a source's tau, the largest
timestamp below which, and at which, nothing of it is to come:

    at once     its own disorder: what arrives on it with timestamp x promises x - lag. Only where it is FIFO.
    delayed     a bound (t, d) from group a to group b: what arrives on any source of a at instant c with timestamp x
                promises x - d on every source of b, those of a included if a is b, from c + t + L on, L the latency
                of b (Lemma 3.1: the first may have come without delay, and a straggler of b needs all of L).
    on silence  nothing arrived anywhere for the timeout: the largest timestamp seen, on every source. The caller
                accepts that what comes later is above it.

The heartbeat of a set is the minimum over its sources. *Idleness* is the one rule that is no deduction: a source that
was silent for so long is left out of the minimum until it speaks. What it then says may be late though it broke no
bound; so it is off unless asked for, and the moves that rest on it are told.

Two clocks: timestamps are application time; `at` is wall time, told by the caller and never going back. **`advance(at)`
says that everything which arrived up to `at` has been passed to `arrive`.** On a log that is read with a delay this is
not the clock: it is an instant at which the ends were asked for, once all was read up to them. Else a backlog makes
whole partitions late. What is passed to `arrive` may be stamped later than it arrived; that only delays.

The bounds of groups instead of pairs of sources are the paper's section 5; with one source in each group they are its
section 4. Cost: O(1) for an arrival; O(bounds log arrivals + sources) for `advance`. Kept: for each group the running
maximum of the last t + L, at most one entry for each `resolution` of wall time (4.5), by which heartbeats may be later.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from lmerge.feed.bounds import Matrix
from lmerge.feed.running_maximum import RunningMaximum

Source: TypeAlias = tuple[str, int]
"""A group and the number of one of its sources."""


class Group(NamedTuple):
    """What holds for every source of a group.

    Attributes:
        lag: d of its own disorder, acting at once; None: nothing is known, or it is not FIFO.
        latency: L, the longest time from emission to arrival.
        idle: after how long a silent source is left out of the minimum; None: never.
    """

    lag: int | None = None
    latency: int = 0
    idle: int | None = None


class Promise(NamedTuple):
    """A heartbeat, and whether it rests on leaving idle sources out."""

    tau: int | None
    by_idleness: bool


class _Known(msgspec.Struct):
    """What is known of one source: its own tau, and when something arrived last."""

    tau: int | None
    heard_at: int
    is_idle: bool = False


class Generator:
    """Deduces heartbeats; the theory is at the top of this file.

    Args:
        groups: the groups, by name.
        bounds: between groups; use `closure` only for bounds that limit clocks.
        timeout: after how long without an arrival anywhere the largest timestamp is released; None: never.
        resolution: how coarse wall time may be kept.
        max_ts: the largest timestamp seen before.
        at: the present instant.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        bounds: Matrix,
        *,
        timeout: int | None = None,
        resolution: int = 1,
        max_ts: int | None = None,
        at: int = 0,
    ) -> None:
        self._groups = dict(groups)
        # (from, to, t + L, d) of each bound.
        self._bounds = [
            (i, j, bound.after + groups[j].latency, bound.lag)
            for (i, j), bounds_ in bounds.items()
            for bound in bounds_
        ]
        self._timeout = timeout
        self._max_ts = max_ts
        # Up to when all arrivals are known, which those of this very instant are not; when something arrived last.
        self._at = at - 1
        self._heard_at = at
        self._sources: dict[Source, _Known] = {}
        self._histories = {i: RunningMaximum(resolution) for i, *_ in self._bounds}
        # For how long a group's arrivals can matter: the longest t + L of its bounds.
        self._reach = {i: max(wait for k, _, wait, _ in self._bounds if k == i) for i in self._histories}
        # By group, what the delayed bounds have promised for each of its sources.
        self._promised: dict[str, int | None] = dict.fromkeys(groups)
        self.timeouts = 0
        """How often a timeout has moved something."""

    def add_source(self, source: Source, *, tau: int | None, at: int) -> None:
        """Take note of a source, about which so much is promised already."""
        self._sources[source] = _Known(tau, at)

    def arrive(self, source: Source, ts: int, *, at: int) -> None:
        """Take note of an arrival."""
        known = self._sources[source]
        known.heard_at = max(known.heard_at, at)
        known.is_idle = False
        self._heard_at = max(self._heard_at, at)
        self._max_ts = later(self._max_ts, ts)
        group = self._groups[source[0]]
        if group.lag is not None:
            known.tau = later(known.tau, ts - group.lag)
        if (history := self._histories.get(source[0])) is not None:
            history.add(ts, at=at)

    def advance(self, at: int) -> None:
        """Let wall time go on: all that arrived up to `at` is known."""
        self._at = max(self._at, at)
        for i, j, wait, lag in self._bounds:
            ts = self._histories[i].until(self._at - wait)
            if ts is not None:
                self._promised[j] = later(self._promised[j], ts - lag)
        for i, history in self._histories.items():
            history.forget(self._at - self._reach[i])
        self._release()
        for source, known in self._sources.items():
            idle = self._groups[source[0]].idle
            known.is_idle = known.is_idle or (idle is not None and self._at - known.heard_at >= idle)

    def _release(self) -> None:
        """Release what is left if all have been silent for the timeout (4.4)."""
        if self._timeout is None or self._at - self._heard_at < self._timeout:
            return
        behind = [source for source in self._sources if self._is_behind(source)]
        for source in behind:
            self._sources[source].tau = self._max_ts
        self.timeouts += bool(behind)

    def _is_behind(self, source: Source) -> bool:
        return later(self.tau(source), self._max_ts) != self.tau(source)

    def due_at(self) -> int | None:
        """Give the next instant at which `advance` can change something; None if there is none yet."""
        dues = []
        lowest = self._lowest() if self._bounds else {}
        for i, j, wait, lag in self._bounds:
            tau = lowest[j]
            came = self._histories[i].next_at(self._at - wait, above=None if tau is None else tau + lag)
            if came is not None:
                dues.append(came + wait)
        if self._timeout is not None and any(self._is_behind(source) for source in self._sources):
            dues.append(self._heard_at + self._timeout)
        for source, known in self._sources.items():
            idle = self._groups[source[0]].idle
            if idle is not None and not known.is_idle:
                dues.append(known.heard_at + idle)
        return min(dues, default=None)

    def _lowest(self) -> dict[str, int | None]:
        """Give the smallest tau of each group."""
        taus: dict[str, list[int | None]] = {group: [] for group in self._groups}
        for source in self._sources:
            taus[source[0]].append(self.tau(source))
        return {group: minimum(found) for group, found in taus.items()}

    def tau(self, source: Source) -> int | None:
        """Give what is promised for one source; None if nothing is."""
        return later(self._sources[source].tau, self._promised[source[0]])

    def tau_of(self, sources: Iterable[Source]) -> int | None:
        """Give the heartbeat of a set of sources: the minimum; None if nothing is promised for one of them."""
        return minimum([self.tau(source) for source in sources])

    @property
    def waits_for(self) -> list[Source]:
        """The sources that are in the minimum: all but the idle ones."""
        return [source for source, known in self._sources.items() if not known.is_idle]

    @property
    def idle(self) -> list[Source]:
        """The sources that are left out of the minimum."""
        return [source for source, known in self._sources.items() if known.is_idle]

    def promise(self, before: int | None) -> Promise:
        """Give the heartbeat of all sources but the idle ones; `before` is the last one, below which it never falls.

        Where all are idle nothing moves: that case is the timeout's.
        """
        waits_for = self.waits_for
        tau = later(before, self.tau_of(waits_for) if waits_for else None)
        by_bounds = later(before, self.tau_of(self._sources))
        return Promise(tau, by_idleness=tau not in {by_bounds, before})


def later(one: int | None, other: int | None) -> int | None:
    """Give the larger; None is smaller than every instant."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def minimum(taus: Iterable[int | None]) -> int | None:
    """Give the smallest; None if one is None, or if there are none."""
    smallest: int | None = None
    for tau in taus:
        if tau is None:
            return None
        smallest = tau if smallest is None else min(smallest, tau)
    return smallest
