"""Lines of one input: chunks of bytes in, whole lines with their numbers out."""


class Lines:
    """Collects chunks until lines are whole. Pure: the caller reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rest = b""
        self._number = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes; an empty chunk is the end, after which a last line needs no line feed."""
        if not chunk and self._rest:
            chunk = b"\n"
        self._rest += chunk

    def take(self) -> tuple[list[bytes], list[int]]:
        """Return the whole lines so far, and their numbers counted from 1; empty lines are left out."""
        *whole, self._rest = self._rest.split(b"\n")
        first = self._number + 1
        self._number += len(whole)
        numbered = [(line, number) for number, line in enumerate(whole, first) if line.strip()]
        return [line for line, _ in numbered], [number for _, number in numbered]
