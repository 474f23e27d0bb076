"""One broker for all integration tests of a run; tests keep apart by the names of their topics and groups."""

from collections.abc import Callable, Iterator

import pytest

from deploy.local import LocalStack

Figure = Callable[[str], None]


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """A stack of one broker; tests that kill brokers take their own."""
    with LocalStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def bootstrap_servers(stack: LocalStack) -> str:
    return stack.bootstrap_servers


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Tell a figure: printed, and kept in the report of a long run."""

    def say(text: str) -> None:
        print(text)  # noqa: T201
        record_property("figure", text)

    return say
