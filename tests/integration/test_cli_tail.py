"""`lmerge tail` on a real broker; the merge service's API is served with its parts in memory."""

import itertools
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lmerge import INFINITY, Element
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec, TransactionalWriter
from services.cli.__main__ import cli
from services.merge.api.server import RestServer
from services.merge.options import RestSettings
from tests.support.kafka import wait_until
from tests.support.rest import ADMIN, World
from tests.support.streams import adj, ins, stb

ROOT = Path(__file__).parents[2]
A, B = b'{"auction":7}', b'{"auction":9}'


class Tail:
    """The command, and the merged topic of a merge of one's own."""

    def __init__(self, servers: str, url: str, world: World) -> None:
        self.merge = f"m{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.merge}.merged"
        self.env = {"LMERGE_URL": url, "LMERGE_TOKEN": ADMIN, "LMERGE_BOOTSTRAP_SERVERS": servers}
        self._settings = KafkaSettings(servers)
        world.with_merge(self.merge, partitions=2, inputs=())

    def make_topic(self) -> None:
        TopicAdmin(self._settings).ensure(TopicSpec(self.topic, 2))

    def append(self, partition: int, *elements: Element) -> None:
        with TransactionalWriter(self._settings, f"test/{self.merge}") as writer:
            writer.fence()
            with writer.transaction():
                writer.write(self.topic, partition, [(None, value) for value in encode_batch(elements)])

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["tail", self.merge, *arguments], env=self.env)


@pytest.fixture
def tail(bootstrap_servers: str) -> Iterator[Tail]:
    world = World()
    with RestServer(world.app, RestSettings("127.0.0.1", 0)) as server:
        yield Tail(bootstrap_servers, server.url, world)


def test_tail_prints_what_is_there(tail: Tail) -> None:
    tail.make_topic()
    tail.append(0, ins(A, 6, 20), adj(A, 6, 20, 12), stb(15))
    tail.append(1, ins(B, 8, INFINITY), stb(INFINITY))
    elements = tail("--from-beginning", "--no-follow").stdout.splitlines()
    assert sorted(elements) == [
        '{"kind":"adjust","payload":{"auction":7},"vs":6,"vold":20,"ve":12}',
        '{"kind":"insert","payload":{"auction":7},"vs":6,"ve":20}',
        '{"kind":"insert","payload":{"auction":9},"vs":8,"ve":null}',
        '{"kind":"stable","vc":15}',
        '{"kind":"stable","vc":null}',
    ]
    events = tail("--from-beginning", "--no-follow", "--events").stdout.splitlines()
    assert sorted(map(str, map(json.loads, events))) == [
        "{'payload': {'auction': 7}, 'vs': 6, 've': 12}",
        "{'payload': {'auction': 9}, 'vs': 8, 've': None}",
    ]
    placed = json.loads(tail("--from-beginning", "-n", "1", "--json").stdout)
    assert (placed["partition"] in (0, 1), placed["offset"], placed["element"]["kind"]) == (True, 0, "insert")
    assert tail("--no-follow").stdout == ""


def test_tail_prints_the_table_with_what_may_still_change(tail: Tail) -> None:
    tail.make_topic()
    tail.append(0, ins(A, 6, 20), adj(A, 6, 20, 12), stb(15), ins(A, 16, 30), adj(A, 16, 30, 16))
    tail.append(1, ins(B, 8, INFINITY), ins(B, 2, 3), stb(5))
    assert tail("--table").stdout.splitlines() == [
        '{"payload":{"auction":9},"vs":2,"ve":3}',
        '{"payload":{"auction":7},"vs":6,"ve":12}',
        '{"payload":{"auction":9},"vs":8,"ve":null}',
    ]
    assert len(tail("--table", "-n", "1").stdout.splitlines()) == 1
    assert tail("--table", "--events").exit_code == 2


def test_tail_prints_what_comes(tail: Tail) -> None:
    tail.make_topic()
    tail.append(0, ins(A, 6, 20), stb(15))
    env = {**os.environ, **tail.env, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "services.cli", "tail", tail.merge, "-n", "1"]
    process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    numbers = itertools.count(16)

    def has_ended() -> bool:
        tail.append(0, stb(next(numbers)))
        return process.poll() is not None

    try:
        wait_until(has_ended, "an element came and was printed")
    finally:
        process.kill()
        printed, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(printed)["vc"] in range(16, next(numbers))


def test_a_setting_that_kafka_does_not_know_is_named_and_its_value_is_not(tail: Tail, tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.pasword=hunter2\n")
    result = tail("--no-follow", "--kafka-config", str(file))
    assert (result.exit_code, "sasl.pasword" in result.stderr, "hunter2" in result.output) == (4, True, False)


def test_a_topic_that_is_not_there_is_a_sentence(tail: Tail) -> None:
    result = tail("--no-follow")
    assert (result.exit_code, tail.topic in result.stderr, "Traceback" in result.stderr) == (2, True, False)
