"""What a lane tells people: counts and samples, which every lane record carries on, and what happened since.

Whatever an input writes, this stays small: a lane record that no broker takes would stop the lane for all inputs.
"""

from collections import Counter
from typing import Final, NamedTuple

from lmerge import Divergence, Stats
from lmerge.facts import StreamId
from services.merge.lane_record import Counts, LaneRecord, Sample, Stop

MAX_SAMPLES: Final = 5
"""Contradictions kept in the lane record, the last ones, for people to look at; the counter goes on."""

MAX_SAMPLE_BYTES: Final = 200
"""How much of a payload is shown, and of the name of a plan."""

MAX_REASON: Final = 500
"""Characters kept of why an input was stopped: it quotes the record."""

MAX_CLAIM: Final = 100
"""Characters kept of what an input claims about an event: of R4 it is every end."""

MAX_HAPPENINGS: Final = 20
"""How many happenings of a kind are told, of those between two commits."""


class Happening(NamedTuple):
    """Something that an operator would like to read in the log."""

    kind: str
    input: str
    text: str


class LaneNotes:
    """The notes of one lane."""

    def __init__(self) -> None:
        self.happenings: list[Happening] = []
        """What happened since the caller forgot it, and is told."""
        self.left_out: Counter[tuple[str, str]] = Counter()
        """How often more happened of a kind, to an input: only counted."""
        self._told: Counter[str] = Counter()
        self.signals = 0
        self.leader_changes = 0
        self.divergences = 0
        self.samples: tuple[Sample, ...] = ()
        self.output_at_ms = 0
        # What was put out before this lane was made anew, and who led when it was last committed.
        self._out = Counts()
        self._leader: str | None = None

    def resume(self, record: LaneRecord) -> None:
        """Go on from the last committed record."""
        self.signals, self.divergences, self.samples = record.signals, record.divergences, record.samples
        self._out, self._leader, self.leader_changes = record.out, record.leader, record.leader_changes
        self.output_at_ms = record.output_at_ms

    def happen(self, kind: str, name: str, text: str) -> None:
        """Note what happened to an input."""
        self._told[kind] += 1
        if self._told[kind] <= MAX_HAPPENINGS:
            self.happenings.append(Happening(kind, name, text))
        else:
            self.left_out[kind, name] += 1

    def forget_happenings(self) -> None:
        """Forget what happened, once it was told."""
        for each in (self.happenings, self.left_out, self._told):
            each.clear()

    def diverged(self, fact: Divergence) -> tuple[str | None, str]:
        """Note a contradiction; return who stands alone against a majority, if anybody, and what was claimed."""
        self.divergences += 1
        odd = None if fact.odd is None else str(fact.odd)
        claims = {str(name): _shortened(claim, MAX_CLAIM) for name, claim in fact.claims.items()}
        payload = bytes(fact.payload)[:MAX_SAMPLE_BYTES].decode(errors="replace")  # type: ignore[call-overload]
        self.samples = (*self.samples[1 - MAX_SAMPLES :], Sample(payload, fact.vs, claims, odd))
        text = _shortened(", ".join(f"{name}: {claim}" for name, claim in claims.items()), MAX_REASON)
        self.happen("divergence", odd or "", f"about an event that begins at {fact.vs}: {text}")
        return odd, text

    def led_by(self, leader: StreamId | None) -> str | None:
        """Note who leads, and return the name."""
        name = None if leader is None else str(leader)
        if name is not None and name != self._leader:
            self._leader = name
            self.leader_changes += 1
        return name

    def put_out(self, stats: Stats) -> Counts:
        """Return what was put out since the merge began."""
        return Counts(
            inserts=self._out.inserts + stats.inserts_out,
            adjusts=self._out.adjusts + stats.adjusts_out,
            stables=self._out.stables + stats.stables_out,
        )


def shortened_plan(plan: str) -> str:
    """Return what is kept of the name of a plan."""
    return _shortened(plan, MAX_SAMPLE_BYTES)


def shortened(stop: Stop) -> Stop:
    """Return what is kept of a stop."""
    return Stop(stop.kind, _shortened(stop.reason, MAX_REASON), stop.offset, stop.at_hello)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
