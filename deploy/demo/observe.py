"""What is seen of the demo, made of samples: rates, gaps, who leads, who has joined. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

import msgspec

RATE_MS: Final = 5_000
"""Rates are means over this time: several batches of a replica."""

CAUGHT_UP_MS: Final = 2_000
"""Two slides: with less lag than this a replica is as current as the others."""


BEHIND_MS: Final = 5_000
"""With more lag than this a replica is catching up, and not just in the middle of a batch."""


class Input(msgspec.Struct, frozen=True):
    """An input in one lane, as the merge service says."""

    membership: str
    stable: int | None = None
    lag_ms: int | None = None
    reason: str | None = None
    fast_forwarded_to: int | None = None
    skipped_rows: int = 0


class Lane(msgspec.Struct, frozen=True):
    """One partition of the merge, as the merge service says."""

    state: str
    reason: str | None = None
    stable: int | None = None
    leader: str | None = None
    inputs: dict[str, Input] = {}


class Tally:
    """The records of one partition: how many, and when they were written, in milliseconds of the wall clock."""

    def __init__(self) -> None:
        self.count = 0
        # Distinct times in order, and how many records there were up to and with each.
        self.times: list[int] = []
        self._counts: list[int] = []

    def add(self, time_ms: int) -> None:
        """Count a record. A clock that goes back does not take time back."""
        self.count += 1
        if not self.times or time_ms > self.times[-1]:
            self.times.append(time_ms)
            self._counts.append(self.count)
        else:
            self._counts[-1] = self.count

    def per_second(self, now_ms: int) -> float:
        """Give the rate over the last seconds."""
        before = bisect_right(self.times, now_ms - RATE_MS)
        return (self.count - (self._counts[before - 1] if before else 0)) * 1_000 / RATE_MS


def longest_gap_before(times: Sequence[int], begin: int, end: int) -> int:
    """Give the longest time between two commits, both of them in ``[begin, end]``; 0 if there are not two.

    >>> longest_gap_before([0, 10, 15, 40], 5, 30)
    5
    """
    return max((b - a for a, b in pairwise(times) if begin <= a and b <= end), default=0)


def longest_gap_at(times: Sequence[int], moment: int, until: int) -> int:
    """Give the longest time without a commit that includes the moment or begins after it, up to `until`.

    A stop that has not ended by then counts with what was seen of it.

    >>> longest_gap_at([0, 10, 15, 40, 45], 12, 100), longest_gap_at([0, 10], 12, 30)
    (55, 20)
    """
    seen = [time for time in times if time < until] + [until]
    return max((b - a for a, b in pairwise(seen) if b > moment), default=until - moment)


def leader(lanes: Iterable[Lane]) -> str | None:
    """Name the replica that leads in most lanes."""
    leaders = Counter(lane.leader for lane in lanes if lane.leader)
    return leaders.most_common(1)[0][0] if leaders else None


def merged_stable(lanes: Sequence[Lane]) -> int | None:
    """Give the stable of the merged topic, the smallest over its lanes; None while one has none."""
    stables = [lane.stable for lane in lanes if lane.stable is not None]
    return min(stables) if stables and len(stables) == len(lanes) else None


def all_joined(lanes: Sequence[Lane], names: Iterable[str]) -> bool:
    """Whether these replicas are joined in every lane and have sent a stable."""
    return bool(lanes) and all(
        name in lane.inputs and lane.inputs[name].membership == "joined" and lane.inputs[name].stable is not None
        for lane in lanes
        for name in names
    )


def has_caught_up(lanes: Sequence[Lane], name: str) -> bool:
    """Whether a replica is joined and hardly behind the merged topic in every lane."""
    return all_joined(lanes, [name]) and all((lane.inputs[name].lag_ms or 0) <= CAUGHT_UP_MS for lane in lanes)


def told_to_skip_to(lanes: Sequence[Lane], name: str) -> int | None:
    """Give how far a replica is told to skip, by all lanes; None while one of them has not said so."""
    told = [lane.inputs[name].fast_forwarded_to for lane in lanes if name in lane.inputs]
    given = [before for before in told if before is not None]
    return min(given) if given and len(given) == len(lanes) else None


def skipped_rows(lanes: Sequence[Lane], name: str) -> int:
    """Give how many rows at most a replica has said that it did not have to read."""
    return max((lane.inputs[name].skipped_rows for lane in lanes if name in lane.inputs), default=0)


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as the screen shows it."""

    name: str
    plan: str
    state: str
    leads: bool = False
    is_behind: bool = False
    stable: int | None = None
    lag_ms: int | None = None
    per_second: float = 0.0
    skipped_rows: int = 0


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that the screen shows but for the words; `gap_ms` is the time since the last merged commit."""

    elapsed: float
    now_ms: int
    replicas: tuple[ReplicaView, ...]
    lanes: tuple[Lane, ...]
    leader: str | None
    stable: int | None
    per_second: float
    elements: int
    gap_ms: int | None
    longest_gap_ms: int | None


def replica_view(
    name: str, plan: str, lanes: Sequence[Lane], *, absent: str, halted: str, per_second: float
) -> ReplicaView:
    """Describe a replica by what the lanes say of it.

    Args:
        name: its name.
        plan: its plan.
        lanes: what the merge service says.
        absent: what to call it where the merge service does not know it.
        halted: what to call it if its process is gone or stopped, which the merge service cannot know; else empty.
        per_second: its rate.
    """
    inputs = [lane.inputs[name] for lane in lanes if name in lane.inputs]
    stables = [each.stable for each in inputs if each.stable is not None]
    lags = [each.lag_ms for each in inputs if each.lag_ms is not None]
    memberships = {each.membership for each in inputs}
    state = next((worst for worst in ("gap", "joining", "joined") if worst in memberships), absent)
    return ReplicaView(
        name=name,
        plan=plan,
        state=halted or state,
        leads=not halted and leader(lanes) == name,
        is_behind=not halted and bool(inputs) and (len(stables) < len(inputs) or max(lags, default=0) > BEHIND_MS),
        stable=min(stables, default=None),
        lag_ms=max(lags, default=None),
        per_second=per_second,
        skipped_rows=skipped_rows(lanes, name),
    )


def longest_gap_since(times: Mapping[int, Sequence[int]], begin: int, end: int) -> int:
    """Give the longest gap of any partition in a time, the one that is still open included."""
    return max((longest_gap_at([t for t in each if t >= begin], begin, end) for each in times.values()), default=0)


def late_rows(heartbeat_log: str, *, closing: int) -> int | None:
    """Find in the heartbeat service's log how many rows were late; None until it speaks of the closing rows."""
    for line in reversed(heartbeat_log.splitlines()):
        with suppress(msgspec.DecodeError):
            entry = msgspec.json.decode(line, type=_Progress)
            if entry.event == "progress" and (entry.max_ts or 0) >= closing:
                return sum(source.late + source.late_in_new for source in entry.rows.values())
    return None


class _Rows(msgspec.Struct, frozen=True):
    late: int
    late_in_new: int


class _Progress(msgspec.Struct, frozen=True):
    event: str
    max_ts: int | None = None
    rows: dict[str, _Rows] = {}
