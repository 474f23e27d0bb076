"""Output policies: how closely the output of R3 follows its inputs (paper 000, III-D and V-A).

Any policy gives a compatible output; they trade latency for chattiness. The default is the paper's own: the first
insert of an event goes out at once, its end is corrected only when a stable would freeze it wrongly, and the output's
stable is the largest of the inputs'.
"""

import enum
import math
import re
from typing import TypeAlias

import msgspec

from lmerge.errors import UsageError


class Inserts(enum.Enum):
    """When an event first goes out."""

    FIRST = "first"
    """At once, with the first input that has it (the default)."""
    LEADING = "leading"
    """When the leading stream (the one with the largest stable) has it."""
    HALF_FROZEN = "half_frozen"
    """When it is half frozen on the input that leads: what is put out is never taken back entirely."""
    FULLY_FROZEN = "fully_frozen"
    """When it is final: the output is append-only, and its stable waits for the earliest event that is not final."""


class Quorum(msgspec.Struct, frozen=True):
    """An event goes out when that many of the attached inputs have it (1 or more), or that fraction (below 1)."""

    share: float

    def __post_init__(self) -> None:
        if not (0 < self.share < 1 or (1 <= self.share < math.inf and self.share == int(self.share))):
            raise UsageError(f"quorum({self.share}): needs a whole number of inputs, or a fraction between 0 and 1")

    def needed(self, attached: int) -> int:
        """Return how many of `attached` inputs make a quorum; never more than there are."""
        return min(attached, math.ceil(self.share * attached) if self.share < 1 else int(self.share))


class Adjusts(enum.Enum):
    """When a change of an end goes out."""

    LAZY = "lazy"
    """Only when a stable would otherwise freeze the wrong end (the default)."""
    EAGER = "eager"
    """With every input that reports another end than the output has."""


InsertPolicy: TypeAlias = Inserts | Quorum


class OutputPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What R3 puts out, and when."""

    inserts: InsertPolicy = Inserts.FIRST
    adjusts: Adjusts = Adjusts.LAZY
    lag: int = 0
    """How far, in application time, the output's stable stays behind the largest one of the inputs."""

    def __post_init__(self) -> None:
        if not isinstance(self.inserts, Inserts | Quorum) or not isinstance(self.adjusts, Adjusts):
            raise UsageError(f"{self.inserts!r}, {self.adjusts!r}: no policies; read names with OutputPolicy.parse")
        if self.lag < 0:
            raise UsageError(f"lagging({self.lag}): a stable cannot run ahead of the inputs")
        if self.inserts is Inserts.FULLY_FROZEN and self.adjusts is Adjusts.EAGER:
            raise UsageError("fully_frozen with eager: what is put out when it is final is never adjusted")

    @classmethod
    def parse(cls, text: str) -> "OutputPolicy":
        """Read a policy as people write it: names separated by commas; what is not named is the default.

        >>> OutputPolicy.parse("quorum(2),eager,lagging(5000)")
        OutputPolicy(inserts=Quorum(share=2.0), adjusts=<Adjusts.EAGER: 'eager'>, lag=5000)

        Raises:
            UsageError: a name is unknown or given twice.
        """
        chosen: dict[str, object] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            field, value = _parse_word(word)
            if field in chosen:
                raise UsageError(f"policy {text!r}: {word} contradicts what is named before it")
            chosen[field] = value
        return cls(**chosen)  # type: ignore[arg-type]


_WORDS: dict[str, tuple[str, object]] = {
    **{choice.value: ("inserts", choice) for choice in Inserts},
    **{choice.value: ("adjusts", choice) for choice in Adjusts},
    "max": ("lag", 0),
}


def _parse_word(word: str) -> tuple[str, object]:
    if word in _WORDS:
        return _WORDS[word]
    if match := re.fullmatch(r"quorum\(([0-9]+(?:\.[0-9]+)?)\)", word):
        return "inserts", Quorum(float(match[1]))
    if match := re.fullmatch(r"lagging\(([0-9]{1,18})\)", word):
        return "lag", int(match[1])
    raise UsageError(f"unknown policy {word!r}: use {', '.join(_WORDS)}, quorum(k or fraction), lagging(milliseconds)")
