"""Snapshot normal form: make streams with equal snapshots into streams with equal TDBs (seed-002, 1.4 and 1.5).

Plans that are equivalent by snapshots may cut the same lifetime into different pieces: ``a[1, 5) a[5, 9)`` here, ``a[1,
9)`` there. Their TDBs differ, so LMerge must not merge them as they are (design trap 1). The normal form of a TDB is a
function of its snapshots alone: for each payload, the longest runs of instants at which its multiplicity is the same n,

    <(payload, n), [start of the run, end of the run)>,   n > 0,

cut at every multiple of `cut_every`. ((payload, n), vs) is a key, so R3 merges normal forms.

**Eager form.** A stable settles the snapshots below it. So ``Stable(vc)`` publishes every run that starts below vc,
with the end known now (the payload's next change, at most the next cut); adjusts the runs published earlier whose end
is another by now; and passes on, with nothing held back.

**Why every output element is legal.** A run starts at s because the multiplicities at s - 1 and s differ, or because s
is a cut; below vc neither can change. So a published run is never removed, and its n is final; what was published at
the last ``Stable(v)`` is every run that starts below v, so a new one starts at v or later. Inserts and adjusts after
``Stable(v)`` change multiplicities at v or later only, so the end of a run that was beyond v stays at v or beyond: the
old and the new end of an adjust are >= v.

**State.** For each payload the changes of its multiplicity at instants not yet passed, and its newest published run;
and the events that are not fully frozen, by end, to refuse adjusts of events that do not exist. All of it is bounded by
what is not fully frozen: a payload without such events is forgotten.

**Cost.** O(log) for an insert or adjust, besides moving the pending changes of one payload in a list. A stable visits
the payloads which changed since the last, or of which a run starts or ends below it, and no others.

**Cuts** bound lifetimes, and so make cold joins possible (seed-002, 5.7). A replica that joins at J, or has skipped
before J, has every event with ``ve >= J``, so its snapshots are right from J - 1 on. Its runs are not: one that is open
at J - 1 may have begun earlier than the replica knows. But no run crosses a cut: with Ta the first cut at or after J -
1, every run starts at or after Ta, and is right, or ends at or before Ta. So the output has exactly the right runs with
``ve >= Ta + 1``, and that is what `Hello` and `Skip` say when they leave. Without cuts there is no such instant, and
both are refused: a run may have been open for ever.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, assert_never

import msgspec
from sortedcontainers import SortedDict

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable, show_time
from lmerge.errors import IllegalElement, UsageError
from lmerge.properties import after_normal_form, declare


def pair(payload: Payload, n: int) -> Payload:
    """Label a run with the pair of its payload and multiplicity."""
    return (payload, n)


def json_pair(payload: bytes, n: int) -> bytes:
    """Label a run of a payload that is canonical JSON; the label is canonical JSON again (see `lmerge.canonical`).

    >>> json_pair(b'{"item":7}', 2)
    b'{"n":2,"payload":{"item":7}}'
    """
    return b'{"n":%d,"payload":%b}' % (n, payload)


class _Track:
    """What is kept of one payload."""

    __slots__ = ("changes", "due", "instants", "n", "payload", "ve", "vs")

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        # How much the multiplicity changes (never 0) at which instants, and these instants in order: those after the
        # start of the newest published run; what came before is in `n`. They are few for each payload, so that a list
        # beats a tree.
        self.changes: dict[int, int] = {}
        self.instants: list[int] = []
        # The newest published run, if it has not been passed: [vs, ve) with multiplicity n. n == 0: there is none.
        self.n = 0
        self.vs = self.ve = MINUS_INFINITY
        # Where the index by due instant holds it; None while it is not there. See `NormalForm._due`.
        self.due: int | None = None

    def add(self, instant: int, change: int) -> None:
        """Let the multiplicity change by so much more at an instant."""
        before = self.changes.get(instant, 0)
        if not before:
            insort(self.instants, instant)
        if before + change:
            self.changes[instant] = before + change
        else:
            del self.changes[instant]
            del self.instants[bisect_left(self.instants, instant)]

    def take(self, instant: int) -> int:
        """Remove and return the change at an instant, before which there is none."""
        change = self.changes.pop(instant, 0)
        if change:
            del self.instants[0]
        return change

    def next_change(self) -> int | None:
        """Return the first instant at which the multiplicity changes, if any."""
        return self.instants[0] if self.instants else None

    def next_visit(self) -> int | None:
        """Return the instant t such that a stable beyond t concerns this payload even if nothing changes before."""
        return self.ve if self.n else self.next_change()


class NormalForm:
    """The operator, for one stream.

    Args:
        cut_every: cut runs at every multiple of it; the same for all replicas. None: do not cut.
        label: makes the payload of a run out of the payload and its multiplicity; it must be injective. `json_pair`
            where payloads are canonical JSON.

    >>> normal_form = NormalForm()
    >>> for element in [Insert("a", 1, 5), Insert("a", 3, 8), Stable(4), Stable(9)]:
    ...     print(normal_form.process(element))
    []
    []
    [Insert(('a', 1), 1, 3), Insert(('a', 2), 3, 5), Stable(4)]
    [Insert(('a', 1), 5, 8), Stable(9)]
    """

    def __init__(self, cut_every: int | None = None, *, label: Callable[[Any, int], Payload] = pair) -> None:
        if cut_every is not None and cut_every <= 0:
            raise UsageError(f"cut_every={cut_every}: must be a positive number of milliseconds, or None for no cuts")
        self._cut_every = cut_every
        self._label = label
        self._reset()

    def _reset(self) -> None:
        self._stable = MINUS_INFINITY
        # Events that are not fully frozen, as (payload, vs), by ve: those below the stable go in one sweep.
        self._events: SortedDict[int, Counter[tuple[Payload, int]]] = SortedDict()
        self._tracks: dict[Payload, _Track] = {}
        # Payloads that were inserted or adjusted since the last stable. A dict for its order: sets have none that
        # would be the same in the next process.
        self._touched: dict[Payload, None] = {}
        # Payloads by the instant beyond which a stable concerns them, whether touched or not.
        self._due: SortedDict[int, dict[Payload, None]] = SortedDict()

    def __len__(self) -> int:
        """Return the number of events that are not fully frozen."""
        return sum(events.total() for events in self._events.values())

    def process(self, element: Element) -> list[Element]:
        """Take one element of the input and return what it publishes.

        Raises:
            IllegalElement: the stream's earlier elements rule it out; or it has no normal form with these cuts (see
                the module's text on joining, and `Stable(INFINITY)` with an event that has no end). Nothing has
                changed.
        """
        match element:
            case Insert(payload, vs, ve):
                self._require(element, vs >= self._stable)
                self._insert(payload, vs, ve)
                return []
            case Adjust():
                self._adjust(element)
                return []
            case Stable(vc):
                self._require(element, vc >= self._stable)
                return self._advance(element)
            case Hello():
                hello = self._announce(element)
                self._reset()
                return [hello]
            case Skip(before):
                return [msgspec.structs.replace(element, before=self._complete_from(element, before))]
            case _:
                assert_never(element)

    def _require(self, element: Element, legal: bool) -> None:
        if not legal:
            raise IllegalElement(f"{element} comes after Stable({show_time(self._stable)})")

    def _insert(self, payload: Payload, vs: int, ve: int) -> None:
        self._events.setdefault(ve, Counter())[payload, vs] += 1
        track = self._tracks.get(payload)
        if track is None:
            track = self._tracks[payload] = _Track(payload)
        track.add(vs, 1)
        track.add(ve, -1)
        self._touched[payload] = None

    def _adjust(self, element: Adjust) -> None:
        payload, vs, vold, ve = element.payload, element.vs, element.vold, element.ve
        self._require(element, vold >= self._stable and ve >= self._stable)
        same_end = self._events.get(vold)
        if same_end is None or (payload, vs) not in same_end:
            raise IllegalElement(f"{element} adjusts an event that does not exist")
        same_end[payload, vs] -= 1
        if not same_end[payload, vs]:
            del same_end[payload, vs]
            if not same_end:
                del self._events[vold]
        if ve > vs:
            self._events.setdefault(ve, Counter())[payload, vs] += 1
        track = self._tracks[payload]
        track.add(vold, 1)
        track.add(ve, -1)  # at ve == vs it undoes the start: the event is gone
        self._touched[payload] = None
        self._forget_if_idle(payload)

    def _advance(self, element: Stable) -> list[Element]:
        vc = element.vc
        if vc == INFINITY and INFINITY in self._events and self._cut_every is not None:
            raise IllegalElement(
                f"{element}: an event without end would be cut into endlessly many runs; end it before the stream"
            )
        self._stable = vc
        while self._events and self._events.peekitem(0)[0] < vc:
            self._events.popitem(0)
        while self._due and self._due.peekitem(0)[0] < vc:
            self._touched.update(self._due.peekitem(0)[1])
            for payload in self._due.popitem(0)[1]:
                self._tracks[payload].due = None
        published: list[Insert | Adjust] = []
        concerned, self._touched = self._touched, {}
        for payload in concerned:
            published.extend(self._publish(self._tracks[payload], vc))
            self._reschedule(self._tracks[payload])
            self._forget_if_idle(payload)
        published.sort(key=attrgetter("vs"))
        return [*published, element]

    def _publish(self, track: _Track, vc: int) -> Iterator[Insert | Adjust]:
        """Bring the newest run of a payload up to date, and publish all further ones that start below vc."""
        if track.n and (end := self._end(track)) != track.ve:
            yield Adjust(self._label(track.payload, track.n), track.vs, track.ve, end)
            track.ve = end
        # At an instant below vc no change is to come; at vc itself an insert may still cancel the one that is known.
        while (instant := track.next_visit()) is not None and instant < vc:
            track.n += track.take(instant)  # nothing, if it is a cut
            if track.n:
                track.vs = instant
                track.ve = self._end(track)
                yield Insert(self._label(track.payload, track.n), track.vs, track.ve)

    def _end(self, track: _Track) -> int:
        """Return the end, as known now, of the run that is open since `track.vs`: the next change or cut."""
        change = track.next_change()
        assert change is not None, "whatever is valid has an end, if only at infinity"
        return change if self._cut_every is None else min(change, (track.vs // self._cut_every + 1) * self._cut_every)

    def _reschedule(self, track: _Track) -> None:
        self._unschedule(track)
        track.due = track.next_visit()
        if track.due is not None:
            self._due.setdefault(track.due, {})[track.payload] = None

    def _unschedule(self, track: _Track) -> None:
        if track.due is not None:
            same_instant = self._due[track.due]
            del same_instant[track.payload]
            if not same_instant:
                del self._due[track.due]
            track.due = None

    def _forget_if_idle(self, payload: Payload) -> None:
        track = self._tracks[payload]
        if track.next_visit() is None:
            self._unschedule(track)
            self._touched.pop(payload, None)
            del self._tracks[payload]

    def _announce(self, element: Hello) -> Hello:
        hello = declare(element, after_normal_form)
        if hello.joins_at == MINUS_INFINITY:
            return hello
        return msgspec.structs.replace(hello, joins_at=self._complete_from(element, hello.joins_at))

    def _complete_from(self, element: Hello | Skip, instant: int) -> int:
        if self._cut_every is None:
            raise IllegalElement(
                f"{element}: without cuts a run may reach back further than the replica; set cut_every for all replicas"
            )
        return complete_from(instant, self._cut_every)


def complete_from(instant: int, cut_every: int) -> int:
    """Return the instant J' such that all runs with ``ve >= J'`` are right, if all events with ve >= `instant` are.

    >>> complete_from(13, 10)
    21
    """
    first_cut = -(-(instant - 1) // cut_every) * cut_every  # at or after instant - 1
    return first_cut + 1


def normal_form(
    elements: Iterable[Element], cut_every: int | None = None, *, label: Callable[[Any, int], Payload] = pair
) -> Iterator[Element]:
    """Apply `NormalForm` to a whole stream.

    >>> list(normal_form([Insert("A", 1, 5), Insert("A", 5, 9), Stable(20)]))
    [Insert(('A', 1), 1, 9), Stable(20)]
    """
    operator = NormalForm(cut_every, label=label)
    for element in elements:
        yield from operator.process(element)
