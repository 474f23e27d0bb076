"""Which streams a merge has, and which of them may lead (paper 000, V-B; exact in recovery-and-sink 5).

A stream joins at J: from J on its TDB is complete, below it may lack events and hold junk. It is *joined* once the
merge has reached J, that is ``max(reached, origin) >= J``; only a joined stream leads, for until then events that it
lacks might be lost by following it. What "reached" means differs between the algorithms, so they say it.

`origin` is where the merge itself begins: no stable below it is taken, since inputs need not agree there (J5), and
streams that join at or below it are joined from the start (J4).
"""

from collections.abc import Iterator

from lmerge.elements import INFINITY, MINUS_INFINITY, Hello, Payload, Skip
from lmerge.errors import UsageError
from lmerge.facts import StreamId


class Stream:
    """One incarnation of one input. A new incarnation is a new object."""

    __slots__ = ("count", "joined", "joins_at", "last_vs", "own_stable", "refeeding", "seen", "slot", "stream_id")

    def __init__(self, stream_id: StreamId, joins_at: int) -> None:
        self.stream_id = stream_id
        # R3 and R4: names the incarnation in the index, which gives it.
        self.slot = 0
        self.joins_at = joins_at
        # The largest stable that the stream itself has sent; its later elements are held against it.
        self.own_stable = MINUS_INFINITY
        self.joined = False
        # Being re-fed after a recovery: its entries are incomplete, so it must not lead yet (E8).
        self.refeeding = False
        # R0 to R2: the vs of its last element; R1: how many it has delivered with that vs; R2: their payloads.
        self.last_vs = MINUS_INFINITY
        self.count = 0
        self.seen: set[Payload] = set()


class Membership:
    """The attached streams of one merge."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.streams: dict[StreamId, Stream] = {}
        """The attached streams; written only here."""
        # Streams that may not lead yet.
        self._waiting: set[Stream] = set()
        self.earliest = INFINITY
        """The smallest J among those that are not being re-fed, INFINITY if there is none: nobody can join before the
        merge has reached it, so that asking after every element costs one comparison."""

    def __len__(self) -> int:
        return len(self.streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self.streams.values())

    def attach(self, stream_id: StreamId, joins_at: int) -> Stream:
        """Add a stream.

        Raises:
            UsageError: a stream with this id is attached already.
        """
        if stream_id in self.streams:
            raise UsageError(f"stream {stream_id!r} is attached already: detach it first")
        stream = self.streams[stream_id] = Stream(stream_id, joins_at)
        self._wait(stream)
        return stream

    def detach(self, stream_id: StreamId) -> Stream:
        """Forget a stream.

        Raises:
            UsageError: no stream with this id is attached.
        """
        stream = self[stream_id]
        del self.streams[stream_id]
        self._waiting.discard(stream)
        self._find_earliest()
        return stream

    def __getitem__(self, stream_id: StreamId) -> Stream:
        try:
            return self.streams[stream_id]
        except KeyError:
            raise UsageError(f"stream {stream_id!r} is not attached") from None

    def reincarnate(self, stream: Stream, hello: Hello) -> Stream:
        """Begin a new incarnation: everything that the old one said is void."""
        self.detach(stream.stream_id)
        return self.attach(stream.stream_id, hello.joins_at)

    def skip(self, stream: Stream, skip: Skip, reached: int) -> None:
        """Note that the stream lacks events with ``ve < before``: it joins there anew (RS 5.2)."""
        stream.joins_at = max(stream.joins_at, skip.before)
        if stream.joins_at > max(reached, self.origin):
            stream.joined = False
            self._wait(stream)

    def refeed(self, stream: Stream, *, done: bool) -> None:
        """Note that a stream is being re-fed, or that it has been."""
        stream.refeeding = not done
        self._find_earliest()

    def join(self, reached: int) -> list[Stream]:
        """Mark the waiting streams that may lead now as joined, and return them in the order of attachment."""
        bound = max(reached, self.origin)
        if bound < self.earliest:
            return []
        ready = [s for s in self if s in self._waiting and s.joins_at <= bound and not s.refeeding]
        for stream in ready:
            stream.joined = True
            self._waiting.discard(stream)
        self._find_earliest()
        return ready

    def join_one(self, stream: Stream, reached: int) -> bool:
        """Mark one waiting stream as joined if it may lead now, and tell whether it may."""
        if stream.joins_at > max(reached, self.origin):
            return False
        stream.joined = True
        self._waiting.discard(stream)
        self._find_earliest()
        return True

    def _wait(self, stream: Stream) -> None:
        self._waiting.add(stream)
        self._find_earliest()

    def _find_earliest(self) -> None:
        self.earliest = min((s.joins_at for s in self._waiting if not s.refeeding), default=INFINITY)
