"""A replica attaches itself to its merge by the real API over a real socket, and says why if it cannot."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from deploy.local import ports
from lmerge.errors import UsageError
from lmerge.feed import FeedDefinition, Source
from replicas.attachment import Attachment, connect
from replicas.errors import NotAttached
from replicas.metrics import Metrics
from replicas.queries import hot_items
from replicas.settings import ReplicaSettings
from services.merge.api.server import RestServer
from services.merge.options import RestSettings
from tests.support.kafka import wait_until
from tests.support.rest import ADMIN, READ, World

SETTINGS = ReplicaSettings(
    bootstrap_servers="127.0.0.1:1",
    merge="m",
    replica="r9",
    feed=FeedDefinition(name="f", sources=(Source(topic="bids", time="kafka", disorder_ms=0),)),
    query=hot_items.QUERY,
    plan_name="direct",
    windows=hot_items.QUERY.windows,
    topics={},
    directory=Path("nowhere"),
)
INPUT = "/v1/merges/m/inputs/r9"


class Service:
    """The API of a merge service, which listens once it is started."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        (self._port,) = ports.choose(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self.world = World()
        self.world.with_merge(inputs=("r1",))
        self.world.topics.partitions["m.replica.r9"] = 1

    def start(self) -> None:
        self._stack.enter_context(RestServer(self.world.app, RestSettings("127.0.0.1", self._port)))

    def inputs(self) -> set[str]:
        return {*self.world.control.desired["m"].inputs}


@pytest.fixture
def service() -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(stack)


class Attached:
    """An attachment under way, with its metrics."""

    def __init__(self, stack: ExitStack, url: str, token: str | None = ADMIN) -> None:
        self._metrics = Metrics("m", "r9")
        api = stack.enter_context(closing(connect(url, token, None)))
        self.attachment = stack.enter_context(Attachment(api, SETTINGS, self._metrics))

    @property
    def is_attached(self) -> bool:
        self.attachment.check()
        value = re.findall(r"^lmerge_replica_attached\{.*\} (\S+)$", self._shown(), re.MULTILINE)
        return bool(value == ["1.0"])

    def _shown(self) -> str:
        return generate_latest(self._metrics.registry).decode()

    def wait(self) -> None:
        wait_until(lambda: self.is_attached, "the replica is attached", seconds=20)

    def refusal(self) -> str:
        with pytest.raises(NotAttached) as refused:
            self.wait()
        return str(refused.value)


def test_it_attaches_itself_and_a_clean_stop_detaches_it(service: Service) -> None:
    service.start()
    with ExitStack() as stack:
        attached = Attached(stack, service.url)
        attached.wait()
        assert service.inputs() == {"r1", "r9"}
        attached.attachment.detach()
    assert service.inputs() == {"r1"}
    changes = [(why, what) for _, why, what in service.world.control.changes[-2:]]
    assert changes == [
        ("the replica has started", "attach input r9 (topic m.replica.r9)"),
        ("the replica was stopped", "detach input r9"),
    ]


def test_a_replica_that_fails_stays_attached_and_the_next_one_finds_itself_there(service: Service) -> None:
    service.start()
    for _ in range(2):
        with ExitStack() as stack:
            Attached(stack, service.url).wait()
        assert service.inputs() == {"r1", "r9"}


def test_it_tries_on_while_the_service_is_away(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        attached = Attached(stack, service.url)
        wait_until(lambda: "not attached to m yet, trying on: no merge service answers" in caplog.text, "it is said")
        assert not attached.is_attached
        service.start()
        attached.wait()
    assert "another address: --api" in caplog.text.lower()


def test_a_stop_does_not_wait_for_a_service_that_is_away(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        attached = Attached(stack, service.url)
        wait_until(lambda: "trying on" in caplog.text, "it is said")
        attached.attachment.detach()
    assert "Detach it: lmerge detach m r9" in caplog.text


def no_merge(service: Service) -> None:
    assert service.world.call("DELETE", "/v1/merges/m")[0] in (200, 204)


def other_partitions(service: Service) -> None:
    service.world.topics.partitions["m.replica.r9"] = 3


def other_topic(service: Service) -> None:
    service.world.topics.partitions["other"] = 1
    assert service.world.call("PUT", INPUT, {"topic": "other"})[0] == 201


@pytest.mark.parametrize(
    ("arrange", "token", "said"),
    [
        (no_merge, ADMIN, "there is no merge m"),
        (other_partitions, ADMIN, "3 partitions"),
        (other_topic, ADMIN, "input r9 of merge m is attached otherwise; detach it first"),
        (None, "nobody", "give --token-file, --token or LMERGE_TOKEN"),
        (None, None, "give --token-file, --token or LMERGE_TOKEN"),
        (None, READ, "read"),
    ],
)
def test_a_refusal_says_why(service: Service, arrange: Any, token: str | None, said: str) -> None:
    if arrange is not None:
        arrange(service)
    service.start()
    with ExitStack() as stack:
        attached = Attached(stack, service.url, token)
        text = attached.refusal()
        assert text.startswith("merge m does not take m.replica.r9 as input r9: ")
        assert said in text
        before = len(service.world.control.changes)
        attached.attachment.detach()
        assert len(service.world.control.changes) == before


def test_what_somebody_else_has_attached_with_more_words_is_left_to_them(service: Service) -> None:
    assert service.world.call("PUT", INPUT, {"topic": "m.replica.r9", "joins_at": 5})[0] == 201
    service.start()
    with ExitStack() as stack:
        attached = Attached(stack, service.url)
        attached.wait()
        attached.attachment.detach()
    assert service.inputs() == {"r1", "r9"}


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"--api 127\.0\.0\.1:8080: give an address such as"):
        connect("127.0.0.1:8080", None, None)
