"""One broker for all integration tests of a run; tests keep apart by the names of their topics and groups."""

from collections.abc import Iterator

import pytest

from deploy.local import LocalStack


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """A stack of one broker; tests that kill brokers take their own."""
    with LocalStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def bootstrap_servers(stack: LocalStack) -> str:
    return stack.bootstrap_servers
