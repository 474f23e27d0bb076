"""How far a replica may skip, by what the lanes have told it."""

from collections.abc import Iterator
from typing import cast

from lmerge.kafka import BrokerError, Record, RecordsGone, RetryError, TailReader, Watermarks
from lmerge.signals import Signal
from replicas.skipping import Signals, Told


def told(*signals: tuple[str, int, int], lanes: int) -> int | None:
    heard = Told("r2", lanes=lanes)
    for name, lane, before in signals:
        heard.hear(Signal(id="m", input=name, partition=lane, before=before))
    return heard.before


def test_nothing_may_be_skipped_until_every_lane_has_said_so() -> None:
    """F5: lane 0 at 100, lane 1 silent; rows of both lanes come together."""
    assert told(lanes=1) is None
    assert told(("r2", 0, 100), lanes=2) is None
    assert told(("r2", 0, 100), ("r2", 1, 10), lanes=2) == 10


def test_a_lane_never_takes_back_what_it_said_and_signals_to_others_do_not_count() -> None:
    assert told(("r2", 0, 100), ("r2", 0, 90), lanes=1) == 100
    assert told(("r1", 0, 100), ("r2", 3, 100), lanes=1) is None


def test_what_a_merge_said_before_it_was_made_anew_does_not_count() -> None:
    """The new one may have committed less, in any of its lanes."""
    heard = Told("r2", lanes=2)

    def say(merge_id: str, lane: int, before: int) -> int | None:
        heard.hear(Signal(id="m", input="r2", partition=lane, before=before, merge_id=merge_id))
        return heard.before

    say("old", 0, 100)
    assert say("old", 1, 90) == 90
    assert say("new", 0, 50) is None
    assert say("new", 1, 60) == 50
    assert say("", 1, 70) is None, "an older program says whose signal it is by silence"


class FeedbackTopic:
    """A feedback topic with signals to r2, whose broker may fail."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.failure: BrokerError | None = None

    def say(self, before: int) -> None:
        self.values.append(Signal(id="m", input="r2", partition=0, before=before).encode())

    def watermarks(self, topic: str, partition: int) -> Watermarks:  # noqa: ARG002
        return Watermarks(0, len(self.values))

    def read_range(self, topic: str, partition: int, *, start: int, end: int) -> Iterator[list[Record]]:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        yield [Record(topic, partition, at, None, self.values[at], (), 0) for at in range(start, end)]


def listening(topic: FeedbackTopic) -> Signals:
    signals = Signals(lambda: cast("TailReader", topic), "m.feedback", Told("r2", lanes=1))
    assert signals.before() is None
    return signals


def test_what_was_said_before_it_listened_is_not_heard() -> None:
    topic = FeedbackTopic()
    topic.say(50)
    signals = listening(topic)
    topic.say(100)
    assert signals.before() == 100


def test_a_signal_that_could_not_be_read_is_read_the_next_time() -> None:
    topic = FeedbackTopic()
    signals = listening(topic)
    topic.say(100)
    topic.failure = RetryError("the broker is away")
    assert signals.before() is None
    assert signals.before() == 100


def test_signals_that_are_gone_are_not_waited_for() -> None:
    topic = FeedbackTopic()
    signals = listening(topic)
    topic.say(100)
    topic.failure = RecordsGone("they are gone")
    assert signals.before() is None
    topic.say(200)
    assert signals.before() == 200
