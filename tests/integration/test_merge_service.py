"""The merge service as a process on a real broker, driven over REST."""

import re
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from lmerge import Element, Hello, Insert, Stable
from lmerge.canonical import payload
from lmerge.kafka import BrokerError, KafkaSettings, TopicAdmin, TopicSpec
from tests.support.kafka import wait_until as wait_for
from tests.support.merge_service import Service, append, merged, running
from tests.support.streams import ins, stb

# Not all the time: the tests share what one client may ask for.
wait_until = partial(wait_for, every=0.05)


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(scope="module")
def service(settings: KafkaSettings) -> Iterator[Service]:
    with running(settings) as service:
        yield service


def test_an_input_that_breaks_its_contract_in_one_lane_holds_no_lane(settings: KafkaSettings, service: Service) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=2) for name in ("good", "bad")))
    a, b = payload({"k": "a"}), payload({"k": "b"})
    service.put(merge, {"partitions": 2})
    service.attach(merge, "good", "bad")
    append(settings, f"{merge}.bad", [ins(a, 5, 8), stb(10), ins(b, 6, 9)])
    for partition in (0, 1):
        append(settings, f"{merge}.good", [ins(a, 5, 8), ins(b, 12, 20), stb(30)], partition)
    bad = f"{merge}/inputs/bad"
    wait_until(lambda: "quarantined" in service.observed(bad)["conditions"], "bad is stopped")
    assert "Insert" in service.observed(bad)["reason"]
    wait_until(lambda: all(merged(settings, f"{merge}.merged", p)[-1:] == [stb(30)] for p in (0, 1)), "good goes on")


def test_who_may_call_and_what_is_refused(settings: KafkaSettings, service: Service) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    topic = f"{merge}.r1"
    TopicAdmin(settings).ensure(TopicSpec(topic, partitions=3))
    path = f"/v1/merges/{merge}"
    assert service.call("PUT", path, {}, token="wrong")[0] == 401
    assert service.call("PUT", path, {}, token="reader")[0] == 403
    assert service.call("GET", "/v1/merges", token="reader")[0] == 200
    assert service.call("GET", path)[1]["code"] == "not_found"
    assert service.call("PUT", path, {"partitions": 0})[1]["code"] == "invalid"
    assert service.call("PUT", path, {"policy": "sometimes"})[1]["code"] == "invalid"
    assert service.call("PUT", "/v1/merges/Not-An-Id", {})[0] == 422
    assert service.call("PUT", path, {})[0] == 201
    assert service.call("PUT", path, {})[0] == 200
    assert service.call("PUT", path, {"partitions": 2})[1]["code"] == "conflict"
    assert service.call("PUT", f"{path}/inputs/r1", {"topic": "no.such.topic"})[1]["code"] == "missing_topic"
    assert service.call("PUT", f"{path}/inputs/r1", {"topic": topic})[1]["code"] == "wrong_partitions"
    assert service.call("DELETE", f"{path}/inputs/r1")[0] == 404
    assert service.call("GET", path)[1]["observed"]["lanes"][0]["state"] == "stalled"
    assert service.call("DELETE", path)[0] == 204
    assert service.call("GET", path)[0] == 404


def test_a_merge_that_is_deleted_and_defined_anew_writes_its_own_topics(
    settings: KafkaSettings, service: Service
) -> None:
    """The loop may look before both calls and after both: what is wanted has then never been nothing."""
    name = f"m{uuid.uuid4().hex[:8]}"
    topics = [f"{name}.{which}" for which in ("r1", "first", "second")]
    TopicAdmin(settings).ensure(*(TopicSpec(topic, partitions=1) for topic in topics))
    append(settings, f"{name}.r1", [ins(payload(1), 5, 9), stb(20)])
    for topic in topics[1:]:
        service.call("DELETE", f"/v1/merges/{name}")
        service.put(name, {"merged_topic": topic, "state_topic": f"{topic}.state"})
        service.put(f"{name}/inputs/r1", {"topic": f"{name}.r1"})
        wait_until(lambda topic=topic: stb(20) in merged(settings, topic), f"it writes {topic}", seconds=60)  # type: ignore[misc]
    assert service.call("GET", "/metrics")[0] == 200


def test_when_the_topics_of_a_former_merge_are_deleted_as_advised_the_new_one_begins(
    settings: KafkaSettings, service: Service
) -> None:
    """Nothing has to be restarted: the loop makes the topics again by itself."""
    name = f"m{uuid.uuid4().hex[:8]}"
    admin = TopicAdmin(settings)
    admin.ensure(TopicSpec(f"{name}.r1", partitions=1))
    append(settings, f"{name}.r1", [ins(payload(1), 5, 9), stb(20)])

    def define() -> None:
        service.put(name, {})
        service.put(f"{name}/inputs/r1", {"topic": f"{name}.r1"})

    define()
    wait_until(lambda: _stable(service, name) == 20, "it is merged", seconds=60)
    assert service.call("DELETE", f"/v1/merges/{name}")[0] == 204
    define()
    wait_until(lambda: "delete them" in str(service.observed(name)["lanes"][0]["reason"]), "it cannot begin")
    wait_until(lambda: _was_given_up(service, name), "it has tried", seconds=60)
    admin.delete(*(f"{name}.{role}" for role in ("merged", "state", "feedback")))
    wait_until(lambda: _stable(service, name) == 20, "it begins", seconds=60)
    assert [type(element) for element in merged(settings, f"{name}.merged")] == [Hello, Insert, Stable]


def _was_given_up(service: Service, merge: str) -> bool:
    """Tell whether a process could not take a lane over, by its metrics."""
    failed = re.compile(rf'lmerge_failures_total{{event="take_over_failed",merge="{merge}"}} [1-9]')
    return failed.search(service.call("GET", "/metrics")[1]) is not None


def test_a_merge_of_whose_topics_one_was_deleted_writes_nothing_until_the_other_is(
    settings: KafkaSettings, service: Service
) -> None:
    """Else everything would come once more, behind what is there."""
    merges = {f"m{uuid.uuid4().hex[:8]}": topics for topics in (("state", "merged"), ("merged", "state"))}
    admin = TopicAdmin(settings)
    for name in merges:
        admin.ensure(TopicSpec(f"{name}.r1", partitions=1))
        append(settings, f"{name}.r1", [ins(payload(1), 5, 9), stb(20)])
        service.put(name, {})
        service.attach(name, "r1")
    for name in merges:
        wait_until(lambda name=name: _stable(service, name) == 20, "it is merged", seconds=60)  # type: ignore[misc]
    before = {name: merged(settings, f"{name}.merged") for name in merges}
    service.end(signal.SIGKILL)
    try:
        for name, (gone, _) in merges.items():
            admin.delete(f"{name}.{gone}")
    finally:  # the other tests need it
        service.start()
    for name, (_, left) in merges.items():
        wait_until(lambda name=name: _was_given_up(service, name), "it cannot begin", seconds=60)  # type: ignore[misc]
        assert merged(settings, f"{name}.merged") == (before[name] if left == "merged" else [])
        admin.delete(f"{name}.{left}")
    for name in merges:
        wait_until(lambda name=name: _merges(settings, name) == before[name], "it begins anew", seconds=60)  # type: ignore[misc]


def _stable(service: Service, merge: str) -> Any:
    return service.observed(merge)["lanes"][0]["stable"]


def _merges(settings: KafkaSettings, merge: str) -> list[Element]:
    """Return what a merge has put out; nothing while its topic is being made."""
    try:
        return merged(settings, f"{merge}.merged")
    except BrokerError:
        return []
