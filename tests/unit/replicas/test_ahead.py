"""What a source remembers of the heartbeats ahead of it."""

from collections.abc import Iterator

import pytest

from lmerge.errors import IllegalElement
from lmerge.feed import Heartbeat
from replicas.ahead import Ahead
from replicas.cuts import Bounds, CutOffset, Located


def beat(n: int, max_ts: int | None = None) -> Located:
    """Heartbeat n, at every other offset; it has counted rows up to 100 n."""
    max_ts = 100 * n if max_ts is None else max_ts
    return Located(2 * n, Heartbeat(feed="f", n=n, tau=n, ceiling=None, max_ts=max_ts, ends={"bids": (10 * n,)}))


class Log:
    """The heartbeats topic; keeps what was asked for."""

    def __init__(self, beats: int) -> None:
        self.beats = [beat(n) for n in range(beats)]
        self.reads: list[tuple[int, int]] = []

    def end(self) -> int:
        return 2 * len(self.beats)

    def read(self, start: int, end: int) -> Iterator[list[Located]]:
        self.reads.append((start, end))
        for located in self.beats:
            if start <= located.at < end:
                yield [located]


def ahead_of(log: Log, n: int) -> Ahead:
    ahead = Ahead("bids", log.end, log.read)
    ahead.begin_at(at(n))
    return ahead


def at(n: int) -> CutOffset:
    return CutOffset.of(beat(n), "bids")


def numbers(ahead: Ahead) -> list[int]:
    return [located.heartbeat.n for located in ahead.following]


def test_it_reads_on_until_there_are_enough_and_asks_for_nothing_twice() -> None:
    log = Log(9)
    ahead = ahead_of(log, 2)
    ahead.look(Bounds(3, 99), None)
    assert numbers(ahead) == [3, 4, 5]
    ahead.look(Bounds(3, 99), None)
    ahead.begin_at(at(4))
    ahead.look(Bounds(9, 99), None)
    assert numbers(ahead) == [5, 6, 7, 8]
    ahead.look(Bounds(9, 99), None)  # behind the last one there is only a marker
    assert log.reads == [(5, 18), (11, 18)]


def test_of_those_that_are_not_read_the_last_is_kept() -> None:
    ahead = ahead_of(Log(9), 0)
    ahead.look(Bounds(2, 99), floor=501)
    assert numbers(ahead) == [5, 6, 7]
    assert [located.heartbeat.n for located in ahead.chain(at(0), at(7), 501)] == [0, 5, 6, 7]


def test_an_offset_that_is_not_ahead_is_begun_anew() -> None:
    log = Log(9)
    ahead = ahead_of(log, 4)
    ahead.look(Bounds(9, 99), None)
    for n, expected in ((1, [*range(2, 9)]), (8, [])):
        ahead.begin_at(at(n))
        ahead.look(Bounds(9, 99), None)
        assert numbers(ahead) == expected
    log.beats += [beat(9), beat(10)]
    ahead.begin_at(at(10))
    assert numbers(ahead) == []


def test_a_batch_that_is_not_in_memory_comes_from_the_log() -> None:
    log = Log(9)
    ahead = ahead_of(log, 4)
    ahead.look(Bounds(9, 99), None)
    once = len(log.reads)
    assert [located.heartbeat.n for located in ahead.chain(at(4), at(6), None)] == [4, 5, 6]
    assert len(log.reads) == once
    assert [located.heartbeat.n for located in ahead.chain(at(1), at(3), None)] == [1, 2, 3]
    assert log.reads[once:] == [(3, 7)]


def test_what_counted_never_goes_back_from_one_read_to_the_next() -> None:
    """The heartbeat before is whole, also behind an offset, which does not tell the largest timestamp."""
    for n in (5, 3):
        log = Log(9)
        log.beats[5] = beat(5, max_ts=399)
        ahead = ahead_of(log, 2)
        ahead.look(Bounds(2, 99), None)
        assert numbers(ahead) == [3, 4]
        ahead.begin_at(at(4))
        with pytest.raises(IllegalElement, match="max_ts goes back from 400 to 399"):
            ahead.look(Bounds(n, 99), None)
