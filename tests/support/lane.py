"""A lane on in-memory logs: enough of a service to crash a merge and let it recover from its own output.

It follows recovery-and-sink sections 2 to 4 to the letter: a commit stores scalars and positions together with the
output, the safe point is the note taken *before* the batch that made the oldest live node, and recovery loads what is
live from the merged log and re-feeds the inputs silently.

    lane = Lane("R3")
    lane.attach("r1")
    lane.feed("r1", ins("A", 6, 20))
    lane.commit()
    lane.crash()
    lane.feed("r1", stb(10))
    lane.commit()
    assert lane.merged == [ins("A", 6, 20), stb(10)]
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from lmerge import INFINITY, Adjust, Element, Hello, Insert, OutputPolicy, create
from lmerge.elements import MINUS_INFINITY
from lmerge.facts import Fact
from lmerge.state import MergeState, NodeState


@dataclass(frozen=True)
class Note:
    """Where everything stood at the start of a batch."""

    vector: dict[str, int]
    merged_end: int


@dataclass(frozen=True)
class Record:
    """The lane record: what a commit stores beside the output."""

    state: MergeState
    positions: dict[str, int]
    starts: dict[str, int]
    safe: dict[str, int]
    merged_safe: int
    batch: int


@dataclass
class Lane:
    """One merge between in-memory logs."""

    algorithm: str
    policy: OutputPolicy | None = None
    origin: int = MINUS_INFINITY
    logs: dict[str, list[Element]] = field(default_factory=dict)
    merged: list[Element] = field(default_factory=list)  # what is committed
    facts: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with an empty record."""
        self._pending: list[Element] = []
        self._position: dict[str, int] = {}  # next offset to feed, and to commit
        self._cursor: dict[str, int] = {}  # streams being re-fed: how far
        self._starts: dict[str, int] = {}  # offset of the hello, or 0
        self._notes: dict[int, Note] = {}
        self._batch = 0
        self.merge = create(self.algorithm, policy=self.policy, origin=self.origin)
        self._record = self._snapshot()

    @property
    def output(self) -> list[Element]:
        """Everything put out so far, committed or not."""
        return self.merged + self._pending

    def attach(self, name: str, *elements: Element) -> None:
        """Attach an input, and feed it elements."""
        self.logs.setdefault(name, [])
        self._position[name] = self._starts[name] = 0
        self.merge.attach(name)
        if elements:
            self.feed(name, *elements)

    def detach(self, name: str) -> None:
        """Detach an input; its log stays."""
        del self._position[name], self._starts[name]
        self._cursor.pop(name, None)
        self.merge.detach(name)

    def feed(self, name: str, *elements: Element) -> None:
        """Append elements to the log of an input and process them, one batch each."""
        self.logs[name] += elements
        self.run(name)

    def run(self, name: str) -> None:
        """Process what the log of an input has, as far as the merge takes it."""
        while self._position[name] < len(self.logs[name]):
            self._batch += 1
            self._notes[self._batch] = Note({**self._position, **self._cursor}, len(self.output))
            self.merge.begin_batch(self._batch)
            element = self.logs[name][self._position[name]]
            self._pending += self.merge.process(name, [element])
            self.facts += self.merge.take_facts()
            if not self.merge.consumed(name):
                return
            if isinstance(element, Hello):
                self._starts[name] = self._position[name]
            self._position[name] += 1

    def commit(self) -> None:
        """Make the output and the lane record durable together."""
        self.merged += self._pending
        self._pending = []
        self._record = self._snapshot()

    def _snapshot(self) -> Record:
        oldest = self.merge.oldest_batch
        note = Note(dict(self._position), len(self.merged)) if oldest is None else self._notes[oldest]
        safe = {name: max(note.vector.get(name, start), start) for name, start in self._starts.items()}
        state = msgspec.structs.replace(self.merge.dump(), nodes=(), payloads=frozenset())
        return Record(state, dict(self._position), dict(self._starts), safe, note.merged_end, self._batch)

    def joined(self, name: str) -> bool:
        """Tell whether the *committed* state has the input joined: what the outside may see (E21)."""
        state = self._record.state
        return name in state.streams and max(state.max_stable, self.origin) >= state.streams[name].joins_at

    def crash(self, *, refeed: Iterable[str] | None = None) -> None:
        """Lose everything that is not committed and recover; re-feed the named inputs at once (default: all)."""
        record = self._record
        self._pending = []
        self._position, self._starts = dict(record.positions), dict(record.starts)
        self._cursor = dict(record.safe)
        self._batch = record.batch + 1
        self._notes = {self._batch: Note(dict(record.safe), record.merged_safe)}
        self.merge = create(self.algorithm, policy=self.policy, origin=self.origin)
        self.merge.begin_batch(self._batch)
        nodes = _live(self.merged[record.merged_safe :], record.state.max_stable)
        payloads = (e.payload for e in self.merged if isinstance(e, Insert) and e.vs == record.state.max_vs)
        self.merge.load(msgspec.structs.replace(record.state, nodes=nodes, payloads=frozenset(payloads)))
        for name in list(self._position) if refeed is None else refeed:
            self.refeed(name)
        self.merge.take_facts()

    def refeed(self, name: str, upto: int | None = None) -> None:
        """Go on re-feeding an input, as far as `upto`, or to the end."""
        end = self._position[name] if upto is None else upto
        self.merge.refeed(name, self.logs[name][self._cursor[name] : end], done=upto is None)
        self._cursor[name] = end
        if upto is None:
            del self._cursor[name]
            self._batch += 1
            self._notes[self._batch] = Note({**self._position, **self._cursor}, len(self.output))
            self.merge.begin_batch(self._batch)
            self._pending += self.merge.process(name, [])


def _live(suffix: list[Element], stable: int) -> tuple[NodeState, ...]:
    """Return the events of a merged suffix that are live, by key; an adjust of an unknown event is ignored (E20)."""
    ends: dict[tuple[int, object], list[int]] = {}
    for element in suffix:
        if isinstance(element, Insert):
            ends.setdefault((element.vs, element.payload), []).append(element.ve)
        elif isinstance(element, Adjust):
            known = ends.get((element.vs, element.payload), [])
            if element.vold in known:
                known.remove(element.vold)
                if element.ve > element.vs:
                    known.append(element.ve)
    return tuple(
        NodeState(vs, payload, tuple(live))
        for (vs, payload), live in ends.items()
        if max(live, default=-INFINITY) >= stable
    )
