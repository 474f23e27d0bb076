"""Making cuts: what becomes of each row, and the next heartbeat. What may be promised is `generator.py`'s to say."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from lmerge.errors import UsageError
from lmerge.feed.definition import FeedDefinition
from lmerge.feed.generator import Generator, Group, later
from lmerge.feed.heartbeat import Heartbeat, is_early, is_late

TopicPartition: TypeAlias = tuple[str, int]

Reason: TypeAlias = Literal["late", "late_in_new", "late_after_idle", "early", "unreadable"]
"""Why a row does not count; `SourceCounts` says what each means."""

UnsafeRule: TypeAlias = Literal["timeout", "idle"]
"""A rule that moves tau without a bound that says so."""

_RESOLUTION_MS: Final = 100
"""How coarse wall time is kept for bounds that are delayed: as heartbeats are written."""


class Row(NamedTuple):
    """What the heartbeats need of a row; `ts` is what `read_timestamp` gave."""

    topic: str
    partition: int
    offset: int
    ts: int | None


class LeftOut(NamedTuple):
    """A row that does not count, and why."""

    row: Row
    reason: Reason


class SourceCounts(msgspec.Struct):
    """What became of the rows of one source topic. Those left out are late, early or unreadable.

    Late rows are counted in three ways. `late_in_new`: of partitions that were added while the feed ran; such a
    partition finds a promise that it had no part in. `late_after_idle`: above what their own partition had promised;
    they are late only because the partition was silent and was left out. `late`: all others.
    """

    rows: int = 0
    late: int = 0
    late_in_new: int = 0
    late_after_idle: int = 0
    early: int = 0
    unreadable: int = 0

    @property
    def left_out(self) -> dict[Reason, int]:
        """How many rows do not count, by reason."""
        return {
            "late": self.late,
            "late_in_new": self.late_in_new,
            "late_after_idle": self.late_after_idle,
            "early": self.early,
            "unreadable": self.unreadable,
        }

    def leave_out(self, reason: Reason) -> None:
        """Count a row that does not count."""
        setattr(self, reason, getattr(self, reason) + 1)

    def add(self, other: "SourceCounts") -> None:
        """Add the counts of further rows."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Cut(NamedTuple):
    """A heartbeat to be written, and what belongs to it, which is a fact once it is committed.

    Attributes:
        heartbeat: the heartbeat.
        counts: what became of its rows, by topic.
        unsafe: by which unsafe rules its tau was moved.
    """

    heartbeat: Heartbeat
    counts: dict[str, SourceCounts]
    unsafe: tuple[UnsafeRule, ...]


class _Partition(msgspec.Struct):
    """What is known of one partition: `highest` is the largest timestamp seen that counted."""

    end: int
    is_new: bool
    highest: int | None = None


class CutMaker:
    """Decides the next heartbeat from the rows that were read since the last one.

    After a failed write throw it away and make another from the last heartbeat that was committed: it has no state
    that must survive. Adding a row costs O(1), a cut O(partitions).

    Two clocks: `now_ms` is the wall clock, which rows are compared with; `at_ms` is a steady one, by which delays are
    measured. A feed without delayed bounds, timeout and idleness needs no steady clock.

    Args:
        definition: the feed.
        last: the last committed heartbeat.
        at_ms: the steady clock.

    Raises:
        UsageError: the heartbeat has other topics than the definition.
    """

    def __init__(self, definition: FeedDefinition, last: Heartbeat, *, at_ms: int = 0) -> None:
        if set(last.ends) != set(definition.topics):
            raise UsageError(
                f"feed {definition.name}: heartbeat {last.n} has the topics {sorted(last.ends)}, the definition "
                f"{sorted(definition.topics)}"
            )
        self._max_ahead_ms = definition.max_ahead_ms
        # What the rows of the next cut are judged by: its tau_before, its n.
        self._last = last
        groups = {s.topic: Group(s.disorder_ms + 1, s.latency_ms or 0, s.idle_ms) for s in definition.sources}
        self._generator = Generator(
            groups,
            definition.matrix,
            timeout=definition.timeout_ms,
            resolution=_RESOLUTION_MS,
            max_ts=last.max_ts,
            at=at_ms,
        )
        # How many of the generator's timeouts are in a cut.
        self._timeouts = 0
        # Every known partition, in the order of `ends`.
        self._partitions: dict[TopicPartition, _Partition] = {}
        for topic, ends in last.ends.items():
            for partition, end in enumerate(ends):
                self._begin((topic, partition), end, at_ms, is_new=False)
        self._counts: dict[str, SourceCounts] = {}
        self._disorder_ms = dict.fromkeys(definition.topics, 0)
        # Of the cut in the making, fixed by its first row; `_open` says whether it is.
        self._ceiling: int | None = None
        self._open = False
        self._changed = False

    @property
    def last(self) -> Heartbeat:
        """The last heartbeat that was made."""
        return self._last

    @property
    def changed(self) -> bool:
        """Whether there is something to say since the last cut: rows, partitions, a promise that fell due."""
        return self._changed

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where to read on: the end of every partition."""
        return {key: state.end for key, state in self._partitions.items()}

    @property
    def disorder_ms(self) -> dict[str, int]:
        """By topic, how far a row was behind the largest earlier timestamp of its partition at most."""
        return self._disorder_ms

    @property
    def idle(self) -> list[TopicPartition]:
        """The partitions that tau does not wait for, since they are idle."""
        return self._generator.idle

    @property
    def due_at_ms(self) -> int | None:
        """When, by the steady clock, something may be promised that rows alone do not tell; None: not foreseeable.

        From then on find out where the partitions end, read all up to there, and say so by `caught_up`.
        """
        due = self._generator.due_at()
        return None if due is None else due + 1  # both instants are rounded down

    def slowest(self) -> list[TopicPartition]:
        """Name the partitions that hold tau back: those that have not spoken yet or, if all have, the lowest."""
        taus = {key: self._generator.tau(key) for key in self._generator.waits_for}
        silent = [key for key, tau in taus.items() if tau is None]
        lowest = min((tau for tau in taus.values() if tau is not None), default=None)
        return silent or [key for key, tau in taus.items() if tau == lowest]

    def promises(self) -> dict[str, int | None]:
        """Give what each topic allows to promise by itself, as of the rows added so far."""
        keys = list(self._partitions)
        return {topic: self._generator.tau_of(key for key in keys if key[0] == topic) for topic in self._last.ends}

    def grow(self, topic: str, partitions: int, *, at_ms: int = 0) -> list[TopicPartition]:
        """Take note of how many partitions a topic has now; return those that are new. They begin at offset 0.

        A topic never loses partitions. Fewer than it had are the news of a broker that is behind: nothing is new. (One
        that was made anew has another id, and is another feed.)
        """
        known = sum(key[0] == topic for key in self._partitions)
        new = [(topic, partition) for partition in range(known, partitions)]
        for key in new:
            self._begin(key, 0, at_ms, is_new=True)
        self._changed = self._changed or bool(new)
        return new

    def add(self, rows: Iterable[Row], *, now_ms: int, at_ms: int = 0) -> list[LeftOut]:
        """Take rows that were read, each partition's in the order of offsets; return those that do not count.

        Args:
            rows: the rows.
            now_ms: the wall clock; the first call of a cut fixes its ceiling.
            at_ms: the steady clock, after the rows were read.
        """
        spoke: set[TopicPartition] = set()
        left_out: list[LeftOut] = []
        for row in rows:
            topic, partition, offset, ts = row
            if not self._open:
                self._fix_ceiling(now_ms)
            key = (topic, partition)
            state = self._partitions[key]
            assert offset >= state.end, f"{topic}/{partition}: offset {offset} comes after {state.end - 1}"
            state.end = offset + 1
            found = self._counts.get(topic) or self._counts.setdefault(topic, SourceCounts())
            found.rows += 1
            reason = self._judge(key, state, ts)
            if reason is not None:
                found.leave_out(reason)
                left_out.append(LeftOut(row, reason))
            else:
                spoke.add(key)
        for key in spoke:
            highest = self._partitions[key].highest
            assert highest is not None
            self._generator.arrive(key, highest, at=at_ms)
        return left_out

    def caught_up(self, at_ms: int) -> None:
        """Say that all partitions were read up to ends that were asked for at this instant, by the steady clock.

        Only now timers may run out, and what one topic promises for another may hold: what is in the log and was not
        read yet must not become late by it.
        """
        self._generator.advance(at_ms - 1)
        self._changed = self._changed or self._generator.promise(self._last.tau).tau != self._last.tau

    def cut(self, *, now_ms: int) -> Cut:
        """Make the next heartbeat. Not written, it must not be followed by another: see the class."""
        if not self._open:
            self._fix_ceiling(now_ms)
        max_ts = self._last.max_ts
        ends: dict[str, list[int]] = {topic: [] for topic in self._last.ends}
        for (topic, _), state in self._partitions.items():
            max_ts = later(max_ts, state.highest)
            ends[topic].append(state.end)
        promise = self._generator.promise(self._last.tau)
        self._last = Heartbeat(
            feed=self._last.feed,
            n=self._last.n + 1,
            tau=promise.tau,
            ceiling=self._ceiling,
            max_ts=max_ts,
            ends={topic: tuple(offsets) for topic, offsets in ends.items()},
        )
        cut = Cut(self._last, self._counts, self._unsafe(by_idleness=promise.by_idleness))
        self._counts, self._open, self._changed = {}, False, False
        return cut

    def _unsafe(self, *, by_idleness: bool) -> tuple[UnsafeRule, ...]:
        by_timeout = self._generator.timeouts > self._timeouts
        self._timeouts = self._generator.timeouts
        rules: tuple[tuple[UnsafeRule, bool], ...] = (("timeout", by_timeout), ("idle", by_idleness))
        return tuple(rule for rule, did in rules if did)

    def _begin(self, key: TopicPartition, end: int, at_ms: int, *, is_new: bool) -> None:
        """Begin with a partition: nothing is known of it but what was promised for all."""
        self._partitions[key] = _Partition(end, is_new)
        self._generator.add_source(key, tau=self._last.tau, at=at_ms)

    def _fix_ceiling(self, now_ms: int) -> None:
        self._ceiling = None if self._max_ahead_ms is None else now_ms + self._max_ahead_ms
        self._open = self._changed = True

    def _judge(self, key: TopicPartition, state: _Partition, ts: int | None) -> Reason | None:
        """Say why a row does not count; None if it does, and then it is noted. The rule is that of `counts`."""
        if ts is None:
            return "unreadable"
        late = is_late(ts, self._last.tau)
        if not late and is_early(ts, self._ceiling):
            return "early"
        if state.highest is None or ts > state.highest:
            if not late:
                state.highest = ts
        elif state.highest - ts > self._disorder_ms[key[0]]:
            self._disorder_ms[key[0]] = state.highest - ts
        if not late:
            return None
        if state.is_new:
            return "late_in_new"
        return "late_after_idle" if not is_late(ts, self._generator.tau(key)) else "late"
