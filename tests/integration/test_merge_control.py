"""The desired state: any process changes it, all changes are in one order, audited, and survive everything.

No token is in what is audited, said or answered.
"""

import json
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from services.merge import desired as decide
from services.merge.control import Control
from services.merge.definitions import Desired, InputDefinition, MergeDefinition
from services.merge.loop import MergeLoop
from services.merge.metrics import Metrics
from services.merge.pace import Pace
from services.merge.topics import AUDIT
from tests.support.kafka import values, wait_until
from tests.support.merge_service import TOKEN, Service, append, running, several
from tests.support.streams import ins, stb

CHANGES = 10


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


def audited(settings: KafkaSettings, merge: str) -> list[Any]:
    """Return the changes of a merge, in their order."""
    entries = [json.loads(value) for value in values(settings, AUDIT.name) if value is not None]
    return [entry for entry in entries if entry["merge"] == merge]


def test_changes_by_two_processes_at_once_are_all_there_in_one_order_and_survive(settings: KafkaSettings) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.r{n}", 1) for n in range(CHANGES)))
    path = f"/v1/merges/{merge}"
    with several(settings, 2) as services:
        assert services[0].call("PUT", path, {}, why="a test begins")[0] == 201

        def attach(n: int) -> int:
            body = {"topic": f"{merge}.r{n}"}
            return services[n % 2].call("PUT", f"{path}/inputs/r{n}", body, why=f"change {n}")[0]

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(attach, range(CHANGES))) == {201}
        wait_until(lambda: shown(services[0], path) == shown(services[1], path), "both processes show the same")
        before = shown(services[0], path)
        assert sorted(before["inputs"]) == sorted(f"r{n}" for n in range(CHANGES))
        for service in services:
            service.end(signal.SIGKILL)
        services[0].start()
        assert shown(services[0], path) == before
        assert services[0].call("DELETE", path, why="the test is over")[0] == 204
        for entry in audited(settings, merge):
            assert TOKEN not in json.dumps(entry)
    entries = audited(settings, merge)
    assert [entry["what"].split()[0] for entry in entries] == ["define", *["attach"] * CHANGES, "remove"]
    assert {entry["by"] for entry in entries} == {"admin"}
    assert [entry["why"] for entry in (entries[0], entries[-1])] == ["a test begins", "the test is over"]
    assert sorted(entry["why"] for entry in entries[1:-1]) == sorted(f"change {n}" for n in range(CHANGES))
    # Each change was decided on all before it: it adds one input to theirs.
    for count, entry in enumerate(entries[:-1]):
        assert len(entry["wanted"]["inputs"]) == count
    for one, other in pairwise(entries[:-1]):
        assert set(one["wanted"]["inputs"]) < set(other["wanted"]["inputs"])
    assert entries[-1]["wanted"] is None


def shown(service: Service, path: str) -> Any:
    """Return what a process shows as wanted."""
    status, answer = service.call("GET", path)
    assert status == 200, answer
    return answer["desired"]


@contextmanager
def looping(settings: KafkaSettings, control: Control, merge: str, owner: str) -> Iterator[MergeLoop]:
    """Run the loop of a merge; its control is not followed by anybody else."""
    loop = MergeLoop(settings, control, Metrics().of(merge), merge, owner=owner, pace=Pace())
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join()


def test_who_takes_a_lane_over_knows_at_least_what_its_last_owner_knew(settings: KafkaSettings) -> None:
    """Else an input that was detached comes back with a process that has not heard of it yet (RS 1.5)."""
    merge = f"m{uuid.uuid4().hex[:8]}"
    by: Any = {"by": "test", "what": "test"}
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", 1) for name in ("r1", "r2")))
    for name in ("r1", "r2"):
        append(settings, f"{merge}.{name}", [ins(b"1", 5, 9), stb(10)])
    with ExitStack() as stack:
        ahead = Control(settings)
        stack.callback(ahead.close)
        ahead.change(merge, lambda now: decide.put_merge(now, merge, MergeDefinition(), lambda: merge), **by)
        stack.callback(lambda: ahead.change(merge, lambda _: None, **by))
        for name in ("r1", "r2"):
            definition = InputDefinition(topic=f"{merge}.{name}")
            ahead.change(merge, partial(put_input, merge, name, definition), **by)
        with looping(settings, ahead, merge, "ahead") as loop:
            wait_until(lambda: shown_inputs(loop) == {"r1", "r2"}, "both are attached", seconds=60)
            behind = Control(settings)
            stack.callback(behind.close)
            ahead.change(merge, lambda now: decide.delete_input(now, merge, "r1"), **by)
            wait_until(lambda: shown_inputs(loop) == {"r2"}, "r1 is detached", seconds=60)
        assert "r1" in behind.desired[merge].inputs
        append(settings, f"{merge}.r2", [stb(20)])
        with looping(settings, behind, merge, "behind") as loop:
            wait_until(lambda: 0 in loop.records and loop.records[0].max_stable == 20, "it goes on", seconds=60)
            assert loop.records[0].owner == "behind"
            assert shown_inputs(loop) == {"r2"}
        assert "r1" not in behind.desired[merge].inputs


def put_input(merge: str, name: str, definition: InputDefinition, now: Desired | None) -> Desired:
    """Decide to attach an input."""
    return decide.put_input(now, merge, name, definition, lambda: f"{name}/1")


def shown_inputs(loop: MergeLoop) -> set[str]:
    """Return the inputs in the committed record of the only lane."""
    return set(loop.records[0].inputs) if 0 in loop.records else set()


def test_no_token_is_in_what_a_process_says_or_answers(
    settings: KafkaSettings, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it writes from its start to its end is searched, and every answer, those that refuse too."""
    reader, wrong = (f"{kind}-{uuid.uuid4().hex}" for kind in ("reader", "wrong"))
    merge = f"m{uuid.uuid4().hex[:8]}"
    path = f"/v1/merges/{merge}"
    TopicAdmin(settings).ensure(TopicSpec(f"{merge}.r1", partitions=1))
    with running(settings, {"LMERGE_READ_TOKEN": reader}) as service:
        service.put(merge, {})
        answers = [
            service.call(method, where, body, token=token)
            for token in (wrong, reader, TOKEN)
            for method, where, body in (
                ("PUT", path, {"policy": "sometimes"}),
                ("PUT", f"{path}/inputs/r1", {"topic": "no.such.topic"}),
                ("PUT", f"{path}/inputs/r1", {"topic": f"{merge}.r1"}),
                ("GET", f"{path}?token={token}", None),
                ("GET", "/metrics", None),
                ("GET", "/openapi.json", None),
            )
        ]
        append(settings, f"{merge}.r1", [stb(10), stb(4)])
        wait_until(lambda: "quarantined" in service.observed(f"{merge}/inputs/r1")["conditions"], "r1 is stopped")
        service.remove_merges()
        assert service.end(signal.SIGTERM) == 0
    said = "".join(capfd.readouterr())
    assert f'"event":"quarantined","merge":"{merge}"' in said
    assert {status for status, _ in answers} >= {200, 201, 401, 403, 422}
    assert not [token for token in (TOKEN, reader, wrong) if token in said + json.dumps(answers)]
