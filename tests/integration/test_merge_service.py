"""The merge service as a process on a real broker, driven over REST."""

import random
import signal
import uuid

import pytest

from lmerge import INFINITY, TDB, Event, Hello, reconstitute
from lmerge.canonical import payload
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from tests.support.kafka import wait_until
from tests.support.logical import on_the_wire, present
from tests.support.merge_service import Service, append, merged, running
from tests.support.streams import ins, stb


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


def test_the_merged_topic_is_right_through_kills_attach_and_detach(settings: KafkaSettings) -> None:
    """Three presentations of one TDB; the service is killed in the middle, inputs come and go."""
    rng = random.Random(5)
    merge = f"m{uuid.uuid4().hex[:8]}"
    reference = [Event(f"e{n}", 10 * n, 10 * n + rng.choice([5, 25, 90])) for n in range(60)]
    streams = {name: on_the_wire(present("R3", reference, rng)) for name in ("r1", "r2", "r3")}
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=1) for name in streams))
    with running(settings) as service:
        service.put(merge, {})
        service.attach(merge, "r1", "r2")
        chunks = {name: [stream[i : i + 25] for i in range(0, len(stream), 25)] for name, stream in streams.items()}
        for step in range(max(map(len, chunks.values()))):
            for name, parts in chunks.items():
                if step < len(parts):
                    append(settings, f"{merge}.{name}", parts[step])
            if step == 1:
                service.end(signal.SIGKILL)
                service.start()
            if step == 2:
                service.attach(merge, "r3")
                wait_until(lambda: _joined(service, f"{merge}/inputs/r3"), "r3 is joined")
                assert service.call("DELETE", f"/v1/merges/{merge}/inputs/r1")[0] == 204
        wait_until(lambda: merged(settings, f"{merge}.merged")[-1:] == [stb(INFINITY)], "the merge comes to its end")
        output = merged(settings, f"{merge}.merged")
        assert isinstance(output[0], Hello)
        assert reconstitute(output) == TDB(Event(payload(e.payload), e.vs, e.ve) for e in reference)
        (lane,) = service.observed(merge)["lanes"]
        assert (lane["state"], sorted(lane["inputs"]), lane["may_die"]) == ("running", ["r2", "r3"], 1)
        _, metrics = service.call("GET", "/metrics")
        assert f'lmerge_transactions_total{{lane="0",merge="{merge}",outcome="committed"}}' in metrics
        assert service.end(signal.SIGTERM) == 0


def _joined(service: Service, path: str) -> bool:
    return bool(service.observed(path)["membership"] == "joined")


def test_an_input_that_breaks_its_contract_is_named_and_the_others_go_on(settings: KafkaSettings) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=2) for name in ("good", "bad")))
    a, b = payload({"k": "a"}), payload({"k": "b"})
    with running(settings) as service:
        service.put(merge, {"partitions": 2})
        service.attach(merge, "good", "bad")
        append(settings, f"{merge}.bad", [ins(a, 5, 8), stb(10), ins(b, 6, 9)])
        for partition in (0, 1):
            append(settings, f"{merge}.good", [ins(a, 5, 8), ins(b, 12, 20), stb(30)], partition)
        bad = f"{merge}/inputs/bad"
        wait_until(lambda: "quarantined" in service.observed(bad)["conditions"], "bad is stopped")
        assert "Insert" in service.observed(bad)["reason"]
        wait_until(
            lambda: all(merged(settings, f"{merge}.merged", p)[-1:] == [stb(30)] for p in (0, 1)), "good goes on"
        )


def test_who_may_call_and_what_is_refused(settings: KafkaSettings) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    topic = f"{merge}.r1"
    TopicAdmin(settings).ensure(TopicSpec(topic, partitions=3))
    with running(settings) as service:
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
