"""`check_compatible` after every element: the same verdict, for what an element touches only.

By the theorem of `lmerge.compatible` only a stable of the output can make the output incompatible. So everything else
is only written down, and the stable from `old` to `vc` looks at few keys. Let m be an input with ``J_m <= old`` and
``L_m >= vc``, and consider a key with ``vs < old`` for which neither m nor the output has an end in ``[old, vc)``.
Both promises are then constant there. They agreed at `old`, where the output was judged, or else m contradicts what
the output rested on then; either way the key needs no look. What remains are the keys whose `vs`, or an end that some
stream gave them, lies in ``[old, vc)``: they are kept in buckets by these times (`_due`). Only if there is no such m
(an input joins just now; the stable was below the origin; C1 is broken) are all open keys judged.

*State.* A key is open until the output's stable makes it final: then it is judged for the last time and forgotten,
since more input cannot change the verdict. Of each stream the events are kept that it may itself still change, or
whose key is open. An input that left is kept until the output's stable has passed its stable and its J: from then on
the output itself, which has been found to follow from the inputs, promises as much. Keys about which it contradicts
the others, so that this does not hold, are then given up.

*Cost.* An element costs O(1) look-ups, and O(log n) for a time that is new; a stable of the output O(inputs) for each
key that is due, in the worst case. An input that leaves or skips costs O(open keys) once.

Each key is reported once, C1 each time. After a C1 the verdict on later elements is not exact.
"""

from heapq import heappop, heappush
from typing import assert_never

from lmerge.compatible import (
    OUTPUT,
    Key,
    Order,
    Promise,
    ahead,
    contradictory,
    furthest_stable,
    incompatible,
    judge,
)
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable, show_time
from lmerge.errors import UsageError
from lmerge.facts import Rule, StreamId, Violation


class _Stream:
    """One incarnation of an input, or the output: its events by key, and its own contract."""

    __slots__ = ("broken", "ends", "given", "joins_at", "kept", "said", "stable", "stream_id")

    def __init__(self, stream_id: StreamId, given: int | None, joins_at: int = MINUS_INFINITY) -> None:
        self.stream_id = stream_id
        self.given = given  # a joins_at from the caller; it wins over a hello's
        self.joins_at = joins_at if given is None else given
        self.stable = MINUS_INFINITY
        self.said = MINUS_INFINITY  # the last stable in the stream; its order may have promised more
        self.ends: dict[Key, tuple[int, ...]] = {}
        self.kept = 64  # events that the last sweep left; the next comes when there are twice as many
        self.broken = False  # after an illegal element nothing more counts

    def promise(self, key: Key) -> Promise:
        return Promise(self.joins_at, self.stable, self.ends.get(key, ()))

    def as_it_was(self) -> "_Stream":
        """Return what is left of this stream when it goes on to promise less."""
        past = _Stream(self.stream_id, self.joins_at)
        past.stable = self.stable
        past.ends = self.ends.copy()
        return past

    def insert(self, element: Insert, key: Key, *, multiset: bool) -> Rule | None:
        if element.vs < self.stable:
            return Rule.STABLE
        before = self.ends.get(key)
        if before is None:
            self.ends[key] = (element.ve,)
        elif multiset:
            self.ends[key] = tuple(sorted((*before, element.ve)))
        else:
            return Rule.DUPLICATE
        return None

    def adjust(self, element: Adjust, key: Key) -> Rule | None:
        if element.vold < self.stable or element.ve < self.stable:
            return Rule.STABLE
        before = self.ends.get(key, ())
        if element.vold not in before:
            return Rule.NO_SUCH_EVENT
        after = list(before)
        after.remove(element.vold)
        if element.ve > element.vs:
            after.append(element.ve)
            after.sort()
        if after:
            self.ends[key] = tuple(after)
        else:
            del self.ends[key]
        return None

    def advance(self, vc: int, still_open: set[Key]) -> None:
        self.stable = max(self.stable, vc)
        if len(self.ends) > 2 * self.kept:
            self._sweep(still_open)

    def forget(self, key: Key) -> None:
        """Forget a key that is no longer open, unless the stream itself may still change it."""
        ends = self.ends.get(key)
        if ends is not None and ends[-1] < self.stable:
            del self.ends[key]

    def _sweep(self, still_open: set[Key]) -> None:
        """Forget what is final and whose key is no longer open; amortised over the inserts since the last sweep."""
        stable = self.stable
        self.ends = {key: ends for key, ends in self.ends.items() if ends[-1] >= stable or key in still_open}
        self.kept = max(64, len(self.ends))


class CompatibilityChecker:
    """Says after each output element whether the output is still compatible with the inputs so far.

    Args:
        multiset: judge by R4: a payload and vs may have several events.
        origin: the merge's origin; if None, what a hello that opens the output says, or minus infinity.
        order: what the order of all streams, the output's too, promises.

    >>> checker = CompatibilityChecker()
    >>> checker.input("r1", Insert("A", 6, 20)), checker.input("r1", Stable(10))
    ([], [])
    >>> [violation.rule.name for violation in checker.output(Stable(10))]
    ['C3']
    """

    def __init__(self, *, multiset: bool = False, origin: int | None = None, order: Order = Order.ANY) -> None:
        self._multiset = multiset
        self._order = order
        self._output = _Stream(OUTPUT, origin)
        self._begun = False  # whether the output is past its hello
        self._inputs: dict[StreamId, _Stream] = {}
        # Inputs that left, ended by a hello, or as they were before a skip: until the output promises as much.
        self._past: list[_Stream] = []
        # Keys that some stream has had and that the output's stable has not made final.
        self._open: set[Key] = set()
        # Open keys by the times at or above the output's stable that matter to them, and a heap of those times.
        self._due: dict[int, set[Key]] = {}
        self._times: list[int] = []
        # The D of C1, as far as it was needed.
        self._reach = MINUS_INFINITY + 1

    def attach(self, stream_id: StreamId, *, joins_at: int | None = None) -> None:
        """Add an input that joins at `joins_at`, whatever its hello says; without it `input` alone will do.

        Raises:
            UsageError: an input of this name is there.
        """
        if stream_id in self._inputs:
            raise UsageError(f"{stream_id} is attached already")
        self._inputs[stream_id] = _Stream(stream_id, joins_at)

    def leave(self, stream_id: StreamId) -> None:
        """Let an input go; it counts with what was read of it. Its name may be used again for another.

        Raises:
            UsageError: there is no input of this name.
        """
        if stream_id not in self._inputs:
            raise UsageError(f"{stream_id} is not attached")
        self._retire(self._inputs.pop(stream_id))

    def input(self, stream_id: StreamId, element: Element) -> list[Violation]:
        """Take one more element of an input and return what it breaks of the input's own contract."""
        stream = self._inputs.get(stream_id)
        if stream is None:
            stream = self._inputs[stream_id] = _Stream(stream_id, None)
        if isinstance(element, Hello):
            self._inputs[stream_id] = _Stream(stream_id, stream.given, element.joins_at)
            self._retire(stream)
        elif stream.broken:
            pass
        elif isinstance(element, Skip):
            if element.before > stream.joins_at:
                past = stream.as_it_was()
                stream.joins_at = element.before
                self._retire(past)
        else:
            rule = self._apply(stream, element)
            if rule is not None:
                return [_illegal(stream, rule, element)]
        return []

    def output(self, element: Element) -> list[Violation]:
        """Take one more element of the output and return what it breaks: its own contract, or C1 to C3.

        Raises:
            UsageError: a hello or skip that is not the first element: it begins another output, for another checker.
        """
        stream = self._output
        if isinstance(element, Hello | Skip):
            self._open_output(element)
            return []
        self._begun = True
        if stream.broken:
            return []
        old = stream.stable
        rule = self._apply(stream, element)
        if rule is not None:
            return [_illegal(stream, rule, element)]
        return self._judge(old) if stream.stable > old else []

    def _open_output(self, element: Hello | Skip) -> None:
        stream = self._output
        if self._begun:
            raise UsageError(f"{element} begins another output: check it with another checker")
        if isinstance(element, Skip):
            stream.joins_at = max(stream.joins_at, element.before)
        elif stream.given is None:
            stream.joins_at = element.joins_at

    def _apply(self, stream: _Stream, element: Insert | Adjust | Stable) -> Rule | None:
        match element:
            case Insert(payload, vs, ve):
                rule = stream.insert(element, (payload, vs), multiset=self._multiset)
                if rule is None:
                    self._note((payload, vs), ve)
                    if self._order.value is not None:
                        stream.advance(vs + self._order.value, self._open)
            case Adjust(payload, vs, _, ve):
                rule = stream.adjust(element, (payload, vs))
                if rule is None:
                    self._note((payload, vs), ve)
            case Stable(vc):
                rule = Rule.STABLE if vc < stream.said else None
                stream.said = max(stream.said, vc)
                stream.advance(vc, self._open)
            case _:
                assert_never(element)
        stream.broken = rule is not None
        return rule

    def _note(self, key: Key, ve: int) -> None:
        """Have a key judged when the output's stable passes its vs, and this end of it."""
        stable = self._output.stable
        if key not in self._open:
            if key[1] < stable:
                return  # judged for the last time already
            self._open.add(key)
            self._put(key[1], key)
        if stable <= ve < INFINITY:
            self._put(ve, key)

    def _put(self, time: int, key: Key) -> None:
        keys = self._due.get(time)
        if keys is None:
            self._due[time] = {key}
            heappush(self._times, time)
        else:
            keys.add(key)

    def _streams(self) -> list[_Stream]:
        return [*self._past, *self._inputs.values()]

    def _judge(self, old: int) -> list[Violation]:
        """Judge the output, whose stable has just moved on from `old`."""
        vc = self._output.stable
        streams = self._streams()
        leader = self._leader(streams, old)
        violations = []
        due = self._pop_due(vc)
        if leader is not None:
            self._reach = max(self._reach, leader.stable)
        else:
            promises = ((stream.joins_at, stream.stable) for stream in streams)
            self._reach = furthest_stable(promises, origin=self._output.joins_at, known=self._reach)
            if vc > self._reach:
                violations.append(ahead(vc, self._reach))
            due = {key for key in self._open if key[1] < vc}
        broken = [(key, rule) for key in due & self._open if (rule := self._judge_key(key, streams, leader, old))]
        for key, rule in sorted(broken, key=lambda item: (item[0][1], repr(item[0][0]))):
            claims = [(stream.stream_id, stream.promise(key)) for stream in streams]
            violations.append(incompatible(rule, key, self._output.promise(key), claims))
        for key in due & self._open:
            self._close_if_final(key, streams)
        self._open.difference_update(key for key, _ in broken)
        self._drop_past()
        return violations

    def _leader(self, streams: list[_Stream], old: int) -> _Stream | None:
        """Return an input that has come as far as the output and whose J the output had reached before, or None."""
        judged = min(old, self._reach)
        if self._output.joins_at > judged:
            return None
        vc = self._output.stable
        return next((stream for stream in streams if stream.stable >= vc and stream.joins_at <= judged), None)

    def _pop_due(self, vc: int) -> set[Key]:
        due: set[Key] = set()
        while self._times and self._times[0] < vc:
            due |= self._due.pop(heappop(self._times))
        return due

    def _judge_key(self, key: Key, streams: list[_Stream], leader: _Stream | None, old: int) -> Rule | None:
        output = self._output
        ends = output.ends.get(key, ())
        if leader is not None:
            lead = leader.ends.get(key, ())
            vc = output.stable
            if lead == ends or [min(ve, vc) for ve in lead if ve >= old] == [min(ve, vc) for ve in ends if ve >= old]:
                return None  # below `old` the output was judged; up to vc the leader alone supports it
        promises = [stream.promise(key) for stream in streams]
        if not ends and not any(promise.ends and key[1] < promise.stable for promise in promises):
            return None  # no stream has it for good: C1 speaks for all such keys
        promises.append(Promise(output.joins_at, old, ends))
        return judge(key[1], output.promise(key), promises, multiset=self._multiset)

    def _close_if_final(self, key: Key, streams: list[_Stream]) -> None:
        ends = self._output.ends.get(key)
        if ends is None or ends[-1] < self._output.stable:
            self._open.discard(key)
            self._output.forget(key)
            for stream in streams:
                stream.forget(key)

    def _retire(self, stream: _Stream) -> None:
        if stream.stable > MINUS_INFINITY:  # before its first stable a stream promises nothing
            self._past.append(stream)
            self._drop_past()

    def _drop_past(self) -> None:
        """Forget the past streams that the output makes superfluous; give up the keys that they contradict."""
        judged = min(self._output.stable, self._reach)
        origin = self._output.joins_at
        done = [past for past in self._past if max(past.stable, past.joins_at, origin) <= judged]
        if not done:
            return
        frontier = max(past.stable for past in done)
        streams = [*self._streams(), self._output]
        for key in [key for key in self._open if key[1] < frontier]:
            promises = [stream.promise(key) for stream in streams]
            if contradictory(key[1], promises, origin=origin, multiset=self._multiset):
                self._open.discard(key)
        self._past = [past for past in self._past if past not in done]


def _illegal(stream: _Stream, rule: Rule, element: Element) -> Violation:
    """Return the violation of a stream's own contract by an element, in the words of `check_compatible`."""
    detail = {
        Rule.STABLE: f"{element} comes after Stable({show_time(stream.stable)})",
        Rule.DUPLICATE: f"{element} comes while an event with its payload and vs is there",
        Rule.NO_SUCH_EVENT: f"{element} adjusts an event that does not exist",
    }[rule]
    return Violation(rule, stream.stream_id, element, detail)
