"""The smoke test of the compose stack: where something is wrong it says what, and its exit code is not 0.

That it passes on a real stack is seen by tests/integration/test_compose.py; here, what it says of one that is old.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Self

import pytest
from click.testing import CliRunner

from deploy.compose import smoke
from deploy.local import places, ports
from lmerge.kafka import KafkaSettings, Watermarks
from services.cli.definition import MergeTopics
from services.merge.api.server import RestServer
from services.merge.options import RestSettings
from tests.support.rest import ADMIN, World

TOO_OLD = "smoke: hot_items.merged is alive; too old to be judged from its beginning"


def run(url: str, token: str) -> "subprocess.CompletedProcess[str]":
    options = ["--url", url, "--bootstrap-servers", "127.0.0.1:9", "--seconds", "0.2"]
    return subprocess.run(
        [sys.executable, smoke.__file__, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"LMERGE_TOKEN": token, "PYTHONPATH": str(places.CHECKOUT)},
    )


@pytest.fixture
def url() -> Iterator[str]:
    """A merge service whose merge has inputs, none of which has said anything."""
    world = World()
    world.with_merge("hot_items", partitions=2)
    with RestServer(world.app, RestSettings(ports.HOST, 0)) as server:
        yield server.url


def assert_fails(done: "subprocess.CompletedProcess[str]", why: str) -> None:
    assert done.returncode == 1
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_where_no_service_answers_it_says_so() -> None:
    (port,) = ports.choose(1)
    said = "smoke: not within 0.2 s: 3 inputs are joined. no merge service answers"
    assert_fails(run(f"http://{ports.HOST}:{port}", ADMIN), said)


def test_where_replicas_are_missing_it_says_how_things_are(url: str) -> None:
    assert_fails(run(url, ADMIN), "smoke: not within 0.2 s: 3 inputs are joined. lane 0: stalled")


def test_who_has_no_token_is_refused(url: str) -> None:
    assert_fails(run(url, "somebody-elses"), "smoke: the merge service refuses: ")


class Topic:
    """Stands in for both readers: topics begin somewhere, and the merged one has grown whenever it is read."""

    lows: Mapping[str, tuple[int, ...]] = {}

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watermarks(self, topic: str, lane: int) -> Watermarks:
        return Watermarks(self.lows.get(topic, (0, 0))[lane], 9_000)

    def events(self) -> Iterator[object]:
        return iter(range(smoke.EVENTS))


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The merges that are given to `lmerge certify`, in a world whose merged topic is a `Topic`."""
    merges: list[str] = []

    def certify(_: KafkaSettings, merge: str) -> None:
        merges.append(merge)

    def resolve(_: KafkaSettings, merge: str) -> MergeTopics:
        return MergeTopics(f"{merge}.merged", (f"{merge}.replica.r1", f"{merge}.replica.r2", f"{merge}.replica.gone"))

    monkeypatch.setattr(smoke, "TailReader", Topic)
    monkeypatch.setattr(smoke, "MergedReader", Topic)
    monkeypatch.setattr(smoke, "certify", certify)
    monkeypatch.setattr(smoke, "resolve_merge", resolve)
    return merges


@pytest.mark.parametrize(
    ("lows", "judged", "said"),
    [
        ({}, ["hot_items"], "smoke: hot_items.merged is right\n"),
        ({"hot_items.merged": (0, 700)}, [], TOO_OLD),
        ({"hot_items.replica.r2": (700, 0)}, [], TOO_OLD),
        ({"hot_items.replica.gone": (700, 700)}, [], TOO_OLD),
    ],
)
def test_where_a_beginning_is_gone_the_topic_is_alive_and_not_judged(
    lows: Mapping[str, tuple[int, ...]],
    judged: list[str],
    said: str,
    certified: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Topic, "lows", lows)
    world = World()
    world.with_merge("hot_items", partitions=2)
    world.committed("hot_items", 50, 50)
    with RestServer(world.app, RestSettings(ports.HOST, 0)) as server:
        options = ["--url", server.url, "--bootstrap-servers", "127.0.0.1:9", "--seconds", "5", "--inputs", "1"]
        done = CliRunner().invoke(smoke.smoke, options, env={"LMERGE_TOKEN": ADMIN}, catch_exceptions=False)
    assert (done.exit_code, certified) == (0, judged)
    assert "smoke: 2 inputs are joined: r1, r2" in done.output
    assert "more events came without it" in done.output
    assert said in done.output
