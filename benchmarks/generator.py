"""The paper's stream generator (paper 000, VI-B), and sub-queries that turn its streams into streams with adjusts.

    events           the logical stream: events in the order of vs
    present          a physical stream of them: some arrive late, and stables are strewn in
    presentation     both in one: input `index` of the logical stream that `seed` stands for
    count_lifetimes  a sub-query: count per window and group, and make the count a lifetime; late events are adjusts
    until_next       a sub-query: an event lives until the next one of its group; adjusts of half-frozen events
    interleave       physical streams as batches in the order in which a merge gets them, some lagging

Everything is a generator of one element at a time and all randomness is passed in: the same seed gives the same stream,
and no length costs memory.

The paper's generator makes disorder by moving the vs of some elements back. Here the event stays as it is and arrives
later, which looks the same from inside the stream (its vs lies behind that of its predecessors) but keeps the logical
stream, so that presentations with other late elements and other stables have the same TDB. As in the paper, disorder
is best effort: before a stable at the current time all that is late must come.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from random import Random
from typing import Self

import msgspec

from lmerge.elements import MINUS_INFINITY, Adjust, Element, Insert, Payload, Stable

MAX_INTEGER = 400
"""The integer of a payload is drawn from [0, 400] (VI-B)."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of VI-B with the paper's defaults; times are in milliseconds.

    The first five define the logical stream, the others how it is presented; inputs of one merge may differ in those.
    """

    events: int = 400_000
    event_duration: int = 100_000_000
    """EventDuration: the lifetime of every event; by default about 10,000 are active at any time."""
    min_gap: int = 0
    """Not in the paper: 1 makes vs strictly increasing, as R0 needs it."""
    max_gap: int = 20_000
    """MaxGap: the gap between the vs of consecutive events is drawn from [min_gap, max_gap]."""
    payload_bytes: int = 1000
    """The length of the random string; the payload is some 15 bytes longer."""
    stable_freq: float = 0.01
    """StableFreq: the probability that a stable follows an event."""
    disorder: float = 0.2
    """Disorder: the fraction of events that arrive late."""
    max_delay: int = 100
    """How late: 1 to this many events (the paper says "some amount")."""

    def __post_init__(self) -> None:
        assert self.event_duration > 0
        assert 0 <= self.min_gap <= self.max_gap
        assert 0 <= self.stable_freq <= 1
        assert 0 <= self.disorder <= 1
        assert self.max_delay >= 1

    @property
    def mean_gap(self) -> float:
        """The mean gap between the vs of consecutive events."""
        return (self.min_gap + self.max_gap) / 2

    def with_active(self, active: int) -> Self:
        """Return the same workload with lifetimes that keep `active` events alive on average."""
        return msgspec.structs.replace(self, event_duration=round(active * self.mean_gap))


def make_payload(n: int, rng: Random, payload_bytes: int) -> bytes:
    """Return a canonical payload of the integer `n` and a random string."""
    text = rng.randbytes((payload_bytes + 1) // 2).hex()[:payload_bytes]
    return b'{"n":%d,"s":"%b"}' % (n, text.encode())


class _Fields(msgspec.Struct):
    n: int


_fields = msgspec.json.Decoder(_Fields)


def integer_of(payload: Payload) -> int:
    """Return the integer of a generated payload."""
    assert isinstance(payload, bytes)
    return _fields.decode(payload).n


def events(workload: Workload, rng: Random) -> Iterator[Insert]:
    """Yield the events of a logical stream in the order of vs; (payload, vs) is a key."""
    vs = 0
    here: set[bytes] = set()  # the payloads at this vs
    for _ in range(workload.events):
        gap = rng.randint(workload.min_gap, workload.max_gap)
        payload = make_payload(rng.randint(0, MAX_INTEGER), rng, workload.payload_bytes)
        if not gap and payload in here:
            gap = 1  # short payloads come again; the key must not
        if gap:
            here.clear()
        here.add(payload)
        vs += gap
        yield Insert(payload, vs, vs + workload.event_duration)


def present(logical: Iterable[Insert], workload: Workload, rng: Random) -> Iterator[Element]:
    """Yield a physical stream of events that come in the order of vs.

    Late events are held back for some events, but not beyond a stable. So there is an insert between any two stables,
    every prefix is legal, and at the end of the logical stream all presentations have the same TDB.
    """
    late: list[tuple[int, int, Insert]] = []  # a heap by the place at which the event is due
    for place, event in enumerate(logical):
        if rng.random() < workload.disorder:
            heappush(late, (place + rng.randint(1, workload.max_delay), place, event))
        else:
            yield event
        while late and late[0][0] <= place:
            yield heappop(late)[-1]
        if rng.random() < workload.stable_freq:
            while late:
                yield heappop(late)[-1]
            yield Stable(event.vs)  # no later event has a smaller vs
    while late:
        yield heappop(late)[-1]


def presentation(workload: Workload, *, seed: int, index: int) -> Iterator[Element]:
    """Yield input number `index` of the logical stream `seed`: the events of all inputs, in a disorder of its own."""
    return present(events(workload, Random(seed)), workload, Random(f"{seed}/{index}"))


class _CountLifetimes:
    """The state of `count_lifetimes` over one stream."""

    def __init__(self, workload: Workload, *, groups: int, per_result: int) -> None:
        self._groups = groups
        self._width = max(1, round(workload.mean_gap * groups * per_result))
        self._lifetime = workload.event_duration * per_result
        rng = Random(groups)
        self._payloads = [make_payload(group, rng, workload.payload_bytes) for group in range(groups)]
        # The counts by group of each window that may still change, by its start.
        self._windows: dict[int, dict[int, int]] = {}
        # The largest time seen: windows that end by it have been put out.
        self._clock = MINUS_INFINITY
        self._promised = MINUS_INFINITY

    def insert(self, event: Insert) -> Iterator[Element]:
        """Count an event; put it out at once if its window has been, and the windows that it closes."""
        start = event.vs - event.vs % self._width
        counts = self._windows.setdefault(start, {})
        group = integer_of(event.payload) % self._groups
        before = counts.get(group, 0)
        counts[group] = before + 1
        if start + self._width <= self._clock:
            yield self._late(start, group, before)
        yield from self.close(event.vs)

    def _late(self, start: int, group: int, before: int) -> Element:
        end = self._end(start, before + 1)
        if before:
            return Adjust(self._payloads[group], start, self._end(start, before), end)
        return Insert(self._payloads[group], start, end)

    def _end(self, start: int, count: int) -> int:
        return start + self._lifetime + count * self._width

    def close(self, t: int) -> Iterator[Element]:
        """Put out the windows that end after the clock and by `t`."""
        if t <= self._clock:
            return
        clock, self._clock = self._clock, t
        if clock // self._width == t // self._width:
            return
        for start in sorted(start for start in self._windows if clock < start + self._width <= t):
            for group, count in self._windows[start].items():
                yield Insert(self._payloads[group], start, self._end(start, count))

    def stable(self, vc: int) -> Iterator[Element]:
        """Forget the windows that are complete, and promise that nothing changes before the first that is not."""
        yield from self.close(vc)
        first_open = vc - vc % self._width
        self._windows = {start: counts for start, counts in self._windows.items() if start >= first_open}
        if first_open > self._promised:
            self._promised = first_open
            yield Stable(first_open)

    def finish(self) -> Iterator[Element]:
        """Put out the windows that the stream has begun and not ended."""
        yield from self.close(max(self._windows, default=self._clock) + self._width)


def count_lifetimes(
    elements: Iterable[Element], workload: Workload, *, groups: int = 36, per_result: int = 2
) -> Iterator[Element]:
    """Count per tumbling window and group, then modify the lifetime: VI-B's example of a sub-query with adjusts.

    The result of a window and a group starts with the window and lives the longer the more events it has counted. It
    goes out as soon as an event beyond the window is seen; an event that comes for the window after that is an adjust
    (or an insert, if it is the first of its group). So without disorder there is no adjust, and their number grows with
    it. A result names its group and has a string as long as that of an event.

    A stable vc completes the windows that end by it. The largest window start that is not beyond vc goes out as stable:
    nothing that starts before it changes any more.

    Args:
        elements: a physical stream without adjusts.
        workload: its parameters.
        groups: how many groups; the integer modulo `groups` is an event's. With the defaults of both, 50 % disorder
            makes 36 % adjusts, as in the stream of VI-D.
        per_result: how many events a result counts on average, which sets the width of the windows. Results live as
            many times longer than the events, so that as many are active as there would be events.
    """
    query = _CountLifetimes(workload, groups=groups, per_result=per_result)
    for element in elements:
        if isinstance(element, Insert):
            yield from query.insert(element)
        else:
            assert isinstance(element, Stable)
            yield from query.stable(element.vc)
    yield from query.finish()


def until_next(elements: Iterable[Element]) -> Iterator[Element]:
    """Let an event live until the next one with its integer starts, at most its lifetime: a lifetime modification.

    An event goes out when it comes, with the end that is known by then, and the end of the one before it is adjusted if
    it was larger. That one is often half frozen by then, unlike in `count_lifetimes`. Stables pass: an adjust has both
    ends at or after the new event's vs.

    Args:
        elements: a physical stream without adjusts in which every vs comes once (``min_gap >= 1``).
    """
    # By integer, the events that may be somebody's predecessor, in the order of vs.
    latest: dict[int, list[Insert]] = {}
    stable = MINUS_INFINITY
    for element in elements:
        if isinstance(element, Stable):
            stable = element.vc
            yield element
            continue
        assert isinstance(element, Insert)
        series = latest.setdefault(integer_of(element.payload), [])
        place = bisect_left(series, element.vs, key=lambda event: event.vs)
        end = min(element.ve, series[place].vs) if place < len(series) else element.ve
        event = Insert(element.payload, element.vs, end)
        yield event
        if place and series[place - 1].ve > element.vs:
            before = series[place - 1]
            yield Adjust(before.payload, before.vs, before.ve, element.vs)
            series[place - 1] = Insert(before.payload, before.vs, element.vs)
        series.insert(place, event)
        # All that comes later starts at or after the stable: of the events before it the last is predecessor enough.
        del series[: max(0, bisect_left(series, stable, key=lambda event: event.vs) - 1)]


def interleave(
    streams: Sequence[Iterable[Element]], *, batch: int = 1, lags: Sequence[int] = ()
) -> Iterator[tuple[int, list[Element]]]:
    """Yield (input, batch) by turns, as a merge of all the streams would get them.

    Args:
        streams: one physical stream per input.
        batch: how many elements of one input come at a time.
        lags: for each input, how many elements it is behind one that does not lag; a multiple of `batch`.
    """
    iterators = [iter(stream) for stream in streams]
    waits = [lag // batch for lag in lags] or [0] * len(iterators)
    ended: set[int] = set()
    turn = 0
    while len(ended) < len(iterators):
        for index, iterator in enumerate(iterators):
            if turn < waits[index] or index in ended:
                continue
            elements = list(islice(iterator, batch))
            if elements:
                yield index, elements
            if len(elements) < batch:
                ended.add(index)
        turn += 1
