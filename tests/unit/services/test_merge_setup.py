"""Where a merge begins: by the word of its first input that says so."""

import pytest

from lmerge import Hello
from lmerge.kafka import BrokerError, MissingTopic, RecordsGone, RetryError
from services.merge.definitions import Attachment, InputDefinition
from services.merge.setup import Beginning, Look, first_beginning
from tests.support.streams import hello

EMPTY = Look(0, is_empty=True, hello=None)
WHOLE = Look(0, is_empty=False, hello=None)
CUT = Look(7, is_empty=False, hello=None)


def said(joins_at: int, low: int = 0) -> Look:
    element = hello(1, joins_at)
    assert isinstance(element, Hello)
    return Look(low, is_empty=False, hello=element)


def beginning(*looks: Look | BrokerError, joins_at: int | None = None) -> Beginning | None:
    """Look at topics t0, t1, ...; `joins_at` is what the attach call said of the first."""
    inputs = {
        f"r{n}": Attachment(
            attachment=f"{n}", definition=InputDefinition(topic=f"t{n}", joins_at=None if n else joins_at)
        )
        for n in range(len(looks))
    }

    def look(topic: str) -> Look:
        found = looks[int(topic[1:])]
        if isinstance(found, BrokerError):
            raise found
        return found

    return first_beginning(inputs, look)


def test_the_first_input_that_has_said_something_decides() -> None:
    assert beginning() is None
    assert beginning(EMPTY, MissingTopic("t1")) is None
    assert beginning(EMPTY, said(20), said(10)) == Beginning("r1", 20, "")
    assert beginning(WHOLE, said(20)) == Beginning("r0", None, "")
    assert beginning(EMPTY, joins_at=5) == Beginning("r0", 5, "")
    assert beginning(said(20), joins_at=5) == Beginning("r0", 20, ""), "what a hello says wins"


def test_an_input_whose_first_records_are_gone_says_nothing_without_hello_and_joins_at() -> None:
    """Else the merge begins at minus infinity, and whoever began cold never joins."""
    assert beginning(CUT) is None
    assert beginning(CUT, said(20)) == Beginning("r1", 20, "")
    assert beginning(CUT, joins_at=5) == Beginning("r0", 5, "")
    assert beginning(said(20, low=7)) == Beginning("r0", 20, "")


@pytest.mark.parametrize("kind", [RetryError, RecordsGone])
def test_an_input_that_cannot_be_looked_at_does_not_keep_the_others_from_it(kind: type[BrokerError]) -> None:
    failure = kind("t0 does not answer")
    assert beginning(failure, said(20)) == Beginning("r1", 20, "")
    with pytest.raises(kind, match="t0 does not answer"):
        beginning(failure, EMPTY)
