"""The books of one merge: facts to hand over and counters to report. Every algorithm has one."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from lmerge.elements import Adjust, Element, Insert, Stable
from lmerge.facts import Dropped, DropReason, Fact, StreamId
from lmerge.state import Stats

MAX_FACTS: Final = 10_000
"""Facts kept for a caller that does not take them: enough for any batch, and no leak."""


class Ledger:
    """Counts what comes in, goes out and is dropped; keeps facts until they are taken."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self.taken: Counter[type[Element]] = Counter()
        """How many elements of each kind were taken."""
        self._out: Counter[type[Element]] = Counter()
        self._dropped: Counter[DropReason] = Counter()
        self._lost = 0
        self.missing = 0
        self.kept = 0
        self.divergences = 0

    def note(self, fact: Fact) -> None:
        """Keep a fact until `take`; beyond MAX_FACTS the newest are only counted."""
        if len(self._facts) < MAX_FACTS:
            self._facts.append(fact)
        else:
            self._lost += 1

    def close(self, stream_id: StreamId, output: Iterable[Element], dropped: dict[DropReason, int]) -> None:
        """Book one call: what was put out, what had no effect and why."""
        self._out.update(map(type, output))
        for reason, number in dropped.items():
            self._dropped[reason] += number
            self.note(Dropped(stream_id, reason, number))

    def take(self) -> list[Fact]:
        """Return the facts so far and forget them."""
        facts, self._facts = self._facts, []
        return facts

    def stats(self, *, nodes: int, size: int, leader: StreamId | None) -> Stats:
        """Return the counters, with what only the algorithm knows."""
        return Stats(
            inserts_in=self.taken[Insert],
            adjusts_in=self.taken[Adjust],
            stables_in=self.taken[Stable],
            inserts_out=self._out[Insert],
            adjusts_out=self._out[Adjust],
            stables_out=self._out[Stable],
            dropped=dict(self._dropped),
            missing=self.missing,
            kept=self.kept,
            divergences=self.divergences,
            facts_lost=self._lost,
            nodes=nodes,
            bytes=size,
            leader=leader,
        )
