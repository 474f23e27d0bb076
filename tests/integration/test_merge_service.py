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
    third = f"/v1/merges/{merge}/inputs/r3"
    streams = {name: on_the_wire(present("R3", reference, rng)) for name in ("r1", "r2", "r3")}
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=1) for name in streams))
    with running(settings) as service:
        assert service.call("PUT", f"/v1/merges/{merge}", {})[0] in (200, 201)
        for name in ("r1", "r2"):
            assert service.call("PUT", f"/v1/merges/{merge}/inputs/{name}", {"topic": f"{merge}.{name}"})[0] in (
                200,
                201,
            )
        chunks = {name: [stream[i : i + 25] for i in range(0, len(stream), 25)] for name, stream in streams.items()}
        for step in range(max(map(len, chunks.values()))):
            for name, parts in chunks.items():
                if step < len(parts):
                    append(settings, f"{merge}.{name}", parts[step])
            if step == 1:
                service.end(signal.SIGKILL)
                service.start()
            if step == 2:
                assert service.call("PUT", third, {"topic": f"{merge}.r3"})[0] in (200, 201)
                wait_until(lambda: _joined(service, third), "r3 is joined")
                assert service.call("DELETE", f"/v1/merges/{merge}/inputs/r1")[0] == 204
        wait_until(lambda: merged(settings, f"{merge}.merged")[-1:] == [stb(INFINITY)], "the merge comes to its end")
        output = merged(settings, f"{merge}.merged")
        assert isinstance(output[0], Hello)
        assert reconstitute(output) == TDB(Event(payload(e.payload), e.vs, e.ve) for e in reference)
        status, view = service.call("GET", f"/v1/merges/{merge}")
        assert status == 200
        assert (view["observed"]["lanes"][0]["state"], sorted(view["observed"]["lanes"][0]["inputs"])) == (
            "running",
            ["r2", "r3"],
        )
        assert view["observed"]["lanes"][0]["may_die"] == 1
        status, metrics = service.call("GET", "/metrics")
        assert f'lmerge_transactions_total{{lane="0",merge="{merge}",outcome="committed"}}' in metrics
        assert service.end(signal.SIGTERM) == 0


def _joined(service: Service, path: str) -> bool:
    lanes = service.call("GET", path)[1]["observed"]["lanes"]
    return bool(lanes) and all(lane is not None and lane["membership"] == "joined" for lane in lanes)


def test_an_input_that_breaks_its_contract_is_named_and_the_others_go_on(settings: KafkaSettings) -> None:
    merge = f"m{uuid.uuid4().hex[:8]}"
    TopicAdmin(settings).ensure(*(TopicSpec(f"{merge}.{name}", partitions=2) for name in ("good", "bad")))
    a, b = payload({"k": "a"}), payload({"k": "b"})
    with running(settings) as service:
        assert service.call("PUT", f"/v1/merges/{merge}", {"partitions": 2})[0] in (200, 201)
        for name in ("good", "bad"):
            assert service.call("PUT", f"/v1/merges/{merge}/inputs/{name}", {"topic": f"{merge}.{name}"})[0] in (
                200,
                201,
            )
        append(settings, f"{merge}.bad", [ins(a, 5, 8), stb(10), ins(b, 6, 9)])
        for partition in (0, 1):
            append(settings, f"{merge}.good", [ins(a, 5, 8), ins(b, 12, 20), stb(30)], partition)
        path = f"/v1/merges/{merge}/inputs/bad"
        wait_until(lambda: (service.call("GET", path)[1]["observed"]["lanes"] or [None])[0] is not None, "bad is seen")
        wait_until(
            lambda: service.call("GET", path)[1]["observed"]["lanes"][0]["membership"] == "gap", "bad is stopped"
        )
        assert "Insert" in service.call("GET", path)[1]["observed"]["lanes"][0]["reason"]
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
        assert service.call("GET", "/v1/merges", token="reader")[0] in (200, 201)
        assert service.call("GET", path)[1]["code"] == "not_found"
        assert service.call("PUT", path, {"partitions": 0})[1]["code"] == "invalid"
        assert service.call("PUT", path, {"policy": "sometimes"})[1]["code"] == "invalid"
        assert service.call("PUT", "/v1/merges/Not-An-Id", {})[0] == 422
        assert service.call("PUT", path, {})[0] in (200, 201)
        assert service.call("PUT", path, {})[0] in (200, 201)
        assert service.call("PUT", path, {"partitions": 2})[1]["code"] == "conflict"
        assert service.call("PUT", f"{path}/inputs/r1", {"topic": "no.such.topic"})[1]["code"] == "missing_topic"
        assert service.call("PUT", f"{path}/inputs/r1", {"topic": topic})[1]["code"] == "conflict"
        assert service.call("DELETE", f"{path}/inputs/r1")[0] == 404
        assert service.call("GET", path)[1]["observed"]["lanes"][0]["state"] == "stalled"
        assert service.call("DELETE", path)[0] == 204
        assert service.call("GET", path)[0] == 404
