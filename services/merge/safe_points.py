"""Safe points: from where a successor has to read, so that it knows all that is live (recovery-and-sink 4).

At the start of every batch it is noted where every input and the merged topic stand. The safe point is the note of the
batch that made the oldest live node.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

MAX_NOTES: Final = 1024
"""Notes kept of batches. Where there are more, every second is dropped: an earlier note is as safe, only longer ago."""


@dataclass(frozen=True)
class Note:
    """Where everything stood at the start of a batch."""

    batch: int
    vector: dict[str, int]
    """The next offset to read, by attachment (an input may be attached again under its name)."""
    merged_end: int
    at_ms: int


class SafePoints:
    """The notes that are still needed, in the order of batches."""

    def __init__(self, first: Note) -> None:
        self._notes = [first]

    @property
    def newest(self) -> Note:
        """The note of the current batch."""
        return self._notes[-1]

    def add(self, note: Note) -> None:
        """Note where everything stands, before a batch (E1)."""
        self._notes.append(note)
        if len(self._notes) > MAX_NOTES:
            del self._notes[1::2]

    def of(self, oldest_batch: int) -> Note:
        """Return the note of a batch, or an earlier one."""
        return self._notes[self._place(oldest_batch)]

    def forget_before(self, oldest_batch: int | None) -> None:
        """Drop what is older than the batch of the oldest live node; without one, all but the newest."""
        del self._notes[: len(self._notes) - 1 if oldest_batch is None else self._place(oldest_batch)]

    def forget_input(self, attachment: str) -> None:
        """Forget where an input stood: it is read anew, from its start."""
        for note in self._notes:
            note.vector.pop(attachment, None)

    def _place(self, batch: int) -> int:
        return max(0, bisect_right(self._notes, batch, key=lambda note: note.batch) - 1)
