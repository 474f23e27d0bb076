"""The desired state: any process changes it, all changes are in one order, audited, and survive everything."""

import json
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from services.merge.topics import AUDIT
from tests.support.kafka import values, wait_until
from tests.support.merge_service import Service, several

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
            assert "secret-of-this-test" not in json.dumps(entry)
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
