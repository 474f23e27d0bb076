"""One input of one lane: where it stands, and the search for its newest incarnation.

An input is *sought* (its newest hello is looked for, nothing is merged), *re-fed* (``cursor < position``: what it said
before a recovery is noted again, silently), *read*, *held* (R0 to R2: what it said waits in `backlog`), or *stopped*.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lmerge import MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable
from lmerge.codec import decode
from lmerge.errors import MalformedRecord
from lmerge.normal_form import NormalForm
from lmerge.state import StreamState
from services.merge.definitions import InputDefinition
from services.merge.lane_record import Counts, InputRecord, Seek, Stop


class Values(NamedTuple):
    """Consecutive records of one partition: offsets and values, side by side."""

    offsets: Sequence[int]
    values: Sequence[bytes | None]

    def since(self, index: int) -> "Values":
        """Return the records from a place on."""
        return Values(self.offsets[index:], self.values[index:]) if index else self

    def without(self, skipped: Sequence[int]) -> "Values":
        """Return the records but those at some offsets."""
        if not skipped or not any(offset in skipped for offset in self.offsets):
            return self
        kept = [(o, v) for o, v in zip(self.offsets, self.values, strict=True) if o not in skipped]
        return Values([o for o, _ in kept], [v for _, v in kept])


NONE = Values((), ())

_HELLO: Final = re.compile(rb'"kind"\s*:\s*"hello"')


@dataclass
class Input:
    """One attached input."""

    attachment: str
    topic: str
    position: int
    """The next offset to process; what a commit stores."""
    start: int
    topic_id: str = ""
    joins_at: int = MINUS_INFINITY
    """As the attach call said: what an incarnation without a hello begins with."""
    cursor: int = -1
    """The next offset to read: below `position` while it is re-fed."""
    incarnation: int = 0
    plan: str = ""
    heard_at_ms: int = 0
    seek: Seek | None = None
    stop: Stop | None = None
    skipped: tuple[int, ...] = ()
    handled: tuple[str, ...] = ()
    paused: bool = False
    backlog: Values = NONE
    form: NormalForm | None = None
    signalled: int | None = None
    signalled_at_ms: int = 0
    skip: Skip | None = None
    """The last one that it wrote."""
    taken: Counter[type[Element]] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Begin to read where it begins to process."""
        self.cursor = self.position if self.cursor < 0 else self.cursor

    @property
    def is_merged(self) -> bool:
        """Whether the merge knows it."""
        return self.seek is None and self.stop is None

    @property
    def is_wanted(self) -> bool:
        """Whether more of it is to be read now. A re-feed goes on through a pause: it is nothing new."""
        held = self.paused and self.cursor >= self.position
        return self.stop is None and not held and not self.backlog.offsets

    def go_to(self, offset: int) -> None:
        """Process from an offset on."""
        self.position = self.cursor = offset

    @property
    def counts(self) -> Counts:
        """What was taken of it."""
        return Counts(
            inserts=self.taken[Insert],
            adjusts=self.taken[Adjust],
            stables=self.taken[Stable],
            dropped=dict(self.dropped),
        )

    def record(self, kept: StreamState, *, safe: int, joined: bool) -> InputRecord:
        """Return what a transaction stores of it, with what the merge keeps of its stream."""
        return InputRecord(
            attachment=self.attachment,
            topic=self.topic,
            topic_id=self.topic_id,
            position=self.position,
            start=self.start,
            safe=safe,
            joins_at=finite(kept.joins_at),
            own_stable=finite(kept.own_stable),
            last_vs=finite(kept.last_vs),
            count=kept.count,
            joined=joined,
            incarnation=self.incarnation,
            plan=self.plan,
            heard_at_ms=self.heard_at_ms,
            seek=self.seek,
            stop=self.stop,
            skipped=self.skipped,
            handled=self.handled,
            paused=self.paused,
            held=bool(self.backlog.offsets),
            signalled=self.signalled,
            signalled_at_ms=self.signalled_at_ms,
            skipped_to=None if self.skip is None else self.skip.before,
            skipped_cuts=0 if self.skip is None else self.skip.cuts,
            skipped_rows=0 if self.skip is None else self.skip.rows,
            counts=self.counts,
        )

    @classmethod
    def recovered(cls, each: InputRecord, *, cursor: int, form: NormalForm | None, joins_at: int) -> "Input":
        """Make the input as the last record has it."""
        return cls(
            attachment=each.attachment,
            topic=each.topic,
            topic_id=each.topic_id,
            position=each.position,
            start=each.start,
            joins_at=joins_at,
            cursor=cursor,
            incarnation=each.incarnation,
            plan=each.plan,
            heard_at_ms=each.heard_at_ms,
            seek=each.seek,
            stop=each.stop,
            skipped=each.skipped,
            handled=each.handled,
            form=form,
            signalled=each.signalled,
            signalled_at_ms=each.signalled_at_ms,
            skip=None if each.skipped_to is None else Skip(each.skipped_to, each.skipped_cuts, each.skipped_rows),
            taken=Counter({Insert: each.counts.inserts, Adjust: each.counts.adjusts, Stable: each.counts.stables}),
            dropped=Counter(each.counts.dropped),
        )


def search(seek: Seek, records: Values, skipped: Sequence[int] = ()) -> tuple[Seek, int | None]:
    """Look for hellos: return the search as it stands now, and where to begin if it is over.

    Up to `until` the newest hello counts (everything before it is void), or `begin` if there is none. From `until` on
    the first hello does. Those at offsets that are to be skipped do not count.
    """
    for offset, value in zip(records.offsets, records.values, strict=True):
        if is_hello(value) and offset not in skipped:
            seek = Seek(seek.until, seek.begin, offset, seek.why)
            if offset >= seek.until - 1:
                return seek, offset
        elif offset >= seek.until and (begin := _begin(seek)) is not None:
            return seek, begin
    last = records.offsets[-1]
    return seek, _begin(seek) if last >= seek.until - 1 else None


def begin_without_hello(definition: InputDefinition, low: int) -> int | None:
    """Return where an input begins whose log begins at `low` and has no hello; None: it has to wait for one (RS 5.5).

    It is complete only if it begins with its first record, or if the attach call says where it is complete from.
    """
    return low if low == 0 or definition.joins_at is not None else None


def _begin(seek: Seek) -> int | None:
    return seek.begin if seek.found is None else seek.found


def is_hello(value: bytes | None) -> bool:
    """Tell whether a record is a hello."""
    if value is None or b'"hello"' not in value:
        return False
    try:
        return isinstance(decode(value), Hello)
    except MalformedRecord:
        return False


def looks_like_hello(value: bytes | None) -> bool:
    """Tell whether a record that is no element was perhaps meant as a hello."""
    return value is not None and _HELLO.search(value) is not None


def hellos(elements: Sequence[Element]) -> list[int]:
    """Return the places of the hellos."""
    if Hello not in map(type, elements):
        return []
    return [index for index, element in enumerate(elements) if isinstance(element, Hello)]


def finite(t: int) -> int | None:
    """Return an instant as records have it: minus infinity is null."""
    return None if t == MINUS_INFINITY else t
