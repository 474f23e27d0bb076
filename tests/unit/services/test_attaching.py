"""Looking at the topics of inputs beside the loop."""

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from lmerge.kafka import MissingTopic, Refused, RetryError
from services.merge import attaching
from services.merge.attaching import Extent, Found, Looks
from services.merge.definitions import Attachment, InputDefinition


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def wanted(name: str, attachment: str = "") -> Attachment:
    return Attachment(attachment=attachment or f"{name}/1", definition=InputDefinition(topic=name))


def finish(looks: Looks) -> None:
    """Wait until every look has ended."""
    wait(looks._pending.values())


def test_a_topic_that_does_not_answer_holds_neither_the_caller_nor_other_inputs(pool: ThreadPoolExecutor) -> None:
    answers = threading.Event()

    def look(topic: str, partitions: Collection[int]) -> Found:
        if topic == "slow":
            answers.wait()
        return {partition: Extent(topic, 0, partition) for partition in partitions}

    looks = Looks(pool, look)
    slow, quick = wanted("slow"), wanted("quick")
    assert looks.at(slow, [0, 1]) == looks.at(quick, [0, 1]) == {}
    wait([looks._pending["quick/1"]])
    assert looks.at(slow, [0, 1]) == {}
    assert looks.at(quick, [0, 1]) == {0: Extent("quick", 0, 0), 1: Extent("quick", 0, 1)}
    answers.set()
    finish(looks)
    assert looks.at(slow, [0, 1]) == {0: Extent("slow", 0, 0), 1: Extent("slow", 0, 1)}


def test_who_did_not_answer_is_looked_at_again_after_a_pause(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Collection[int]] = []
    gone = Refused("not allowed")

    def look(topic: str, partitions: Collection[int]) -> Found:
        looked.append(partitions)
        every: Found = {0: Extent(topic, 0, 5), 1: RetryError("nobody answers"), 2: gone}
        return {partition: every[partition] for partition in partitions}

    looks = Looks(pool, look)
    looks.at(wanted("r1"), [0, 1, 2])
    finish(looks)
    assert looks.at(wanted("r1"), [0, 1, 2]) == {0: Extent("r1", 0, 5), 2: gone}
    assert looks.at(wanted("r1"), [1]) == {}
    assert looked == [[0, 1, 2]]
    monkeypatch.setattr(attaching, "AGAIN_SECONDS", -1.0)
    looks._not_before.clear()
    for _ in range(2):
        assert looks.at(wanted("r1"), [1]) == {}
        finish(looks)
        assert looks.at(wanted("r1"), [1]) == {}
    assert looked == [[0, 1, 2], [1], [1]]


def test_a_topic_is_missing_when_several_looks_in_a_row_have_missed_it(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that is asked may not have heard yet of one that was made a moment ago."""
    gone = MissingTopic("no such topic")
    there = Extent("r1", 0, 5)
    # One look before it is believed it is found, once in part; then it stays away. No answer tells nothing.
    away = RetryError("nobody answers")
    some: list[Found] = [*([{0: gone, 1: gone}] * (attaching.MISSES - 1)), {0: away, 1: away}]
    every: list[Found] = [*some, {0: there, 1: there}, *some, {0: there, 1: gone}, {0: gone, 1: gone}]
    answers = iter(every)
    monkeypatch.setattr(attaching, "AGAIN_SECONDS", -1.0)
    looks = Looks(pool, lambda _topic, _partitions: next(answers))

    def found() -> Found:
        assert looks.at(wanted("r1"), [0, 1]) == {}
        finish(looks)
        return looks.at(wanted("r1"), [0, 1])

    assert [found() for _ in some] == [{}] * len(some)
    assert found() == {0: there, 1: there}
    assert [found() for _ in some] == [{}] * len(some)
    assert found() == {0: there, 1: gone}
    assert found() == {}, "what was told is not counted again"


def test_what_is_not_wanted_any_more_is_looked_at_anew_when_it_is(pool: ThreadPoolExecutor) -> None:
    looks = Looks(pool, lambda topic, partitions: dict.fromkeys(partitions, Extent(topic, 0, 5)))
    looks.at(wanted("r1"), [0])
    finish(looks)
    looks.keep(())
    assert looks.at(wanted("r1"), [0]) == {}, "what was found then is old"


def test_what_was_found_for_another_attachment_does_not_count(pool: ThreadPoolExecutor) -> None:
    """Its topic may have been made anew in between."""
    looks = Looks(pool, lambda topic, partitions: dict.fromkeys(partitions, Extent(topic, 0, 5)))
    looks.at(wanted("r1"), [0])
    finish(looks)
    again = wanted("r1", "r1/2")
    looks.keep([again])
    assert looks.at(again, [0]) == {}
    assert looks.at(wanted("r1"), [0]) == {}
