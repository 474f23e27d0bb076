"""One broker and one Spark for all integration tests of a process; tests keep apart by the names of topics and groups.

`make integration` runs them in two processes: in one all that start Spark, one after the other, in the other the rest.
Two Sparks at the same time starve on two cores, and Spark gives up a Python worker after 10 s. (Groups of pytest-xdist
would say the same, but with pytest 9.2 they have no effect.)
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.local import LocalStack
from replicas.session import end_session
from tests.support.merge_service import Service
from tests.support.running_replica import start_spark

Figure = Callable[[str], None]

WITH_SPARK = {
    "test_compose",
    "test_cut_over",
    "test_early",
    "test_fast_forward",
    "test_observability",
    "test_queries",
    "test_query_plans",
    "test_replica",
    "test_replica_process",
    "test_replica_start",
    "test_spark",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that start Spark."""
    if item.path.parent == Path(__file__).parent and item.path.stem in WITH_SPARK:
        item.add_marker("spark")


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """A stack of one broker; tests that kill brokers take their own."""
    with LocalStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def bootstrap_servers(stack: LocalStack) -> str:
    return stack.bootstrap_servers


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark of all replicas that run in this process, with a replica's settings."""
    session = start_spark()
    yield session
    end_session(session)


@pytest.fixture(autouse=True)
def _no_merge_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no later test share the cores with the merges of this one: a service that several tests share runs on."""
    service = request.getfixturevalue("service") if "service" in request.fixturenames else None
    yield
    if isinstance(service, Service):
        service.remove_merges()


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Tell a figure: printed at the end of the run, and kept in the report of a long one."""
    return partial(record_property, "figure")
