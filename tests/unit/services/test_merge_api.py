"""The admin API, with its parts in memory: every call, every code."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from lmerge import INFINITY
from lmerge.kafka import MissingTopic, Refused, RetryError
from services.merge.api import openapi
from services.merge.api.problems import CODES
from services.merge.api.server import RestServer
from services.merge.definitions import Attachment, Desired, InputDefinition
from services.merge.lane_record import LaneRecord, Sample, Stop, UnreadableRecord
from services.merge.options import RestSettings
from tests.support.rest import ADMIN, NOW, World

ROOT = Path(__file__).parents[3]
THREADS = 40
"""So many calls run at the same time: the threads of the framework's pool."""


@pytest.fixture
def world() -> World:
    return World()


def refused(answer: tuple[int, Any]) -> str:
    """Give the code of a refusal, which must agree with its status."""
    status, body = answer
    assert body["status"] == status == CODES[body["code"]][0]
    assert body["title"] == CODES[body["code"]][1]
    assert body["detail"]
    return str(body["code"])


# -- merges


def test_a_merge_is_made_once_and_then_is_there(world: World) -> None:
    body = {"partitions": 2, "algorithm": "auto", "properties": [{"insert_only": True, "order": "strictly increasing"}]}
    status, made = world.call("PUT", "/v1/merges/m", body, X_Reason="ticket 7, für r1")
    assert (status, made["desired"]["algorithm"]) == (201, "R0")
    assert "strictly increasing" in made["desired"]["reason"]
    assert world.call("PUT", "/v1/merges/m", body)[0] == 200
    assert world.control.changes == [("admin", "ticket 7, für r1", "define merge m")]
    changed = {"by": "admin", "at_ms": NOW, "why": "ticket 7, für r1", "what": "define merge m"}
    assert world.call("GET", "/v1/merges/m")[1]["desired"]["changed"] == changed
    assert refused(world.call("PUT", "/v1/merges/m", {"partitions": 3})) == "conflict"
    assert world.call("DELETE", "/v1/merges/m") == (204, None)
    assert refused(world.call("GET", "/v1/merges/m")) == "not_found"
    assert refused(world.call("DELETE", "/v1/merges/m")) == "not_found"


def test_a_merge_shows_what_is_wanted_and_what_is(world: World) -> None:
    world.with_merge(partitions=2)
    status, view = world.call("GET", "/v1/merges/m")
    assert (status, view["observed"]["state"], view["observed"]["may_die"]) == (200, "stalled", 0)
    assert "start a replica" in view["observed"]["reason"]
    assert [topic["name"] for topic in view["desired"]["topics"]] == ["m.merged", "m.state", "m.feedback"]

    world.committed("m", 100, 60)
    observed = world.call("GET", "/v1/merges/m")[1]["observed"]
    assert (observed["state"], observed["stable"], observed["may_die"]) == ("running", 60, 1)
    assert [lane["inputs"]["r2"]["lag_ms"] for lane in observed["lanes"]] == [7, 7]

    world.committed("m", INFINITY, INFINITY)
    assert world.call("GET", "/v1/merges/m")[1]["observed"]["stable"] == "+inf"


def test_a_definition_that_makes_no_sense_names_the_fields_and_repeats_nothing(world: World) -> None:
    status, body = world.call("PUT", "/v1/merges/m", {"partitions": 0, "polcy": "secret-typed-here"})
    assert (status, body["code"]) == (422, "invalid")
    assert [each["field"] for each in body["fields"]] == ["body.partitions", "body.polcy"]
    assert "secret-typed-here" not in json.dumps(body)
    assert refused(world.call("PUT", "/v1/merges/m", {"policy": "sometimes"})) == "invalid"
    assert refused(world.call("PUT", "/v1/merges/m", {"algorithm": "R1", "normal_form": {}})) == "invalid"
    ordered = {"insert_only": True, "order": "strictly increasing"}
    cannot = {"quarantine_diverging": True, "properties": [ordered]}
    assert refused(world.call("PUT", "/v1/merges/m", cannot)) == "invalid"
    answer = world.call("POST", "/v1/merges:validate", {"name": "m", "definition": cannot})[1]
    assert [each["code"] for each in answer["problems"]] == ["invalid"]
    assert refused(world.call("PUT", "/v1/merges/Not-An-Id", {})) == "invalid"
    assert refused(world.call("GET", "/v1/merges?limit=0")) == "invalid"
    assert world.control.changes == []


def test_the_topics_of_a_merge_must_fit(world: World) -> None:
    world.topics.partitions["m.merged"] = 3
    assert refused(world.call("PUT", "/v1/merges/m", {"partitions": 2})) == "wrong_partitions"
    assert world.call("PUT", "/v1/merges/m", {"partitions": 3})[0] == 201
    assert refused(world.call("PUT", "/v1/merges/n", {"create_topics": False})) == "missing_topic"
    taken = ({"merged_topic": "m.state"}, {"merged_topic": "n.state"}, {"state_topic": "lmerge.control"})
    for topic in (*taken, {"merged_topic": "lmerge.audit"}):
        assert refused(world.call("PUT", "/v1/merges/n", topic)) == "topic_taken"


def test_lists_have_pages(world: World) -> None:
    for name in ("c", "a", "e", "b", "d"):
        world.with_merge(name, inputs=())
    assert list(_pages(world, "/v1/merges")) == [["a", "b"], ["c", "d"], ["e"]]
    world.with_merge("m", inputs=("r3", "r1", "r4", "r2"))
    assert list(_pages(world, "/v1/merges/m/inputs")) == [["r1", "r2"], ["r3", "r4"]]
    assert world.call("GET", "/v1/merges?after=zzz")[1] == {"items": [], "next": None}


def _pages(world: World, path: str) -> Iterator[list[str]]:
    after = ""
    while after is not None:
        status, page = world.call("GET", f"{path}?limit=2&after={after}")
        assert status == 200
        yield [item["name"] for item in page["items"]]
        after = page["next"]


def test_validation_says_what_would_come_of_it_and_does_nothing(world: World) -> None:
    world.topics.partitions |= {"m.merged": 1, "a": 1, "b": 4}
    body = {
        "name": "m",
        "definition": {"algorithm": "R2"},
        "inputs": {
            "r1": {"topic": "a"},
            "r2": {"topic": "b"},
            "r3": {"topic": "c"},
            "r4": {"topic": "a", "properties": {"key": True}},
        },
    }
    status, answer = world.call("POST", "/v1/merges:validate", body)
    assert (status, answer["valid"], answer["algorithm"]) == (200, False, "R2")
    assert [problem["code"] for problem in answer["problems"]] == ["wrong_partitions", "missing_topic", "conflict"]
    assert {topic["name"]: topic["exists"] for topic in answer["topics"]} == {
        "m.merged": True,
        "m.state": False,
        "m.feedback": False,
    }
    assert answer["changes"][:2] == ["define merge m (R2, 1 partitions)", "attach input r1 (topic a)"]
    assert world.control.changes == []

    fine = {"name": "m", "definition": {}, "inputs": {"r1": {"topic": "a"}}}
    assert world.call("POST", "/v1/merges:validate", fine)[1]["valid"]
    world.call("PUT", "/v1/merges/m", {})
    world.call("PUT", "/v1/merges/m/inputs/r1", {"topic": "a"})
    assert world.call("POST", "/v1/merges:validate", fine)[1]["changes"] == []
    other = {"name": "m", "definition": {"partitions": 4}}
    assert [each["code"] for each in world.call("POST", "/v1/merges:validate", other)[1]["problems"]] == ["conflict"]


def test_divergences_are_shown_with_samples(world: World) -> None:
    world.with_merge(partitions=2)
    samples = tuple(Sample(f'{{"n":{n}}}', n, {"r1": "[1, 5)", "r2": "[1, 6)"}, odd="r2") for n in range(3))
    world.committed("m", 100, 100)
    lanes = world.records.records["m"]
    lanes[1] = msgspec.structs.replace(lanes[1], divergences=9, samples=samples)  # type: ignore[type-var]
    status, page = world.call("GET", "/v1/merges/m/divergences?limit=2")
    assert (status, page["count"], page["next"]) == (200, 9, 2)
    assert page["items"][0] == {
        "lane": 1,
        "payload": '{"n":0}',
        "vs": 0,
        "claims": {"r1": "[1, 5)", "r2": "[1, 6)"},
        "odd_one_out": "r2",
    }
    page = world.call("GET", "/v1/merges/m/divergences?limit=2&after=2")[1]
    assert ([item["vs"] for item in page["items"]], page["next"]) == ([2], None)
    assert world.call("GET", "/v1/merges/m")[1]["observed"]["divergences"] == 9


# -- inputs


def test_an_input_is_attached_once_and_detached(world: World) -> None:
    world.with_merge(inputs=())
    world.topics.partitions |= {"a": 1, "b": 2}
    path = "/v1/merges/m/inputs/r1"
    assert refused(world.call("PUT", "/v1/merges/none/inputs/r1", {"topic": "a"})) == "not_found"
    assert refused(world.call("PUT", path, {"topic": "absent"})) == "missing_topic"
    assert refused(world.call("PUT", path, {"topic": "b"})) == "wrong_partitions"
    world.topics.partitions["m.state"] = 1
    assert refused(world.call("PUT", path, {"topic": "m.state"})) == "conflict"
    status, view = world.call("PUT", path, {"topic": "a"})
    assert (status, view["observed"]["membership"]) == (201, "joining")
    assert world.call("PUT", path, {"topic": "a"})[0] == 200
    assert world.call("GET", path)[1]["desired"]["attachment"] == view["desired"]["attachment"]
    assert refused(world.call("PUT", path, {"topic": "a", "joins_at": 5})) == "conflict"
    assert world.call("DELETE", path) == (204, None)
    assert refused(world.call("GET", path)) == "not_found"
    assert refused(world.call("DELETE", path)) == "not_found"
    assert world.call("GET", "/v1/merges/m")[1]["desired"]["former_topics"] == ["a"]
    assert [what for *_, what in world.control.changes[1:]] == ["attach input r1 (topic a)", "detach input r1"]


def test_one_input_too_many_is_refused_with_the_way_out(world: World) -> None:
    world.with_merge("m", inputs=())
    now = world.control.desired["m"]
    attached = {f"r{n}": Attachment(attachment=f"{n}", definition=InputDefinition(topic=f"{n}")) for n in range(100)}
    world.control.desired = {"m": now.model_copy(update={"inputs": attached})}
    world.topics.partitions["one.more"] = 1
    answer = world.call("PUT", "/v1/merges/m/inputs/one_more", {"topic": "one.more"})
    assert refused(answer) == "too_many_inputs"
    assert "detach one" in answer[1]["detail"]


def test_an_input_that_promises_too_little_is_refused_with_the_way_out(world: World) -> None:
    assert world.call("PUT", "/v1/merges/m", {"algorithm": "R2"})[0] == 201
    world.topics.partitions["a"] = 1
    answer = world.call("PUT", "/v1/merges/m/inputs/r1", {"topic": "a", "properties": {"key": True}})
    assert refused(answer) == "too_weak"
    assert "algorithm R3" in answer[1]["detail"]


def test_an_input_is_paused_and_resumed(world: World) -> None:
    world.with_merge()
    path = "/v1/merges/m/inputs/r1"
    for _ in range(2):
        assert world.call("POST", f"{path}:pause")[1]["desired"]["paused"] is True
    for _ in range(2):
        assert world.call("POST", f"{path}:resume")[1]["desired"]["paused"] is False
    assert [what for *_, what in world.control.changes[3:]] == ["pause input r1", "resume input r1"]
    assert refused(world.call("POST", "/v1/merges/m/inputs/r9:pause")) == "not_found"


def test_an_input_may_skip_no_further_than_every_lane_has_committed(world: World) -> None:
    world.with_merge(partitions=2)
    path = "/v1/merges/m/inputs/r1:fast-forward"
    assert refused(world.call("POST", path, {"before": 1})) == "too_far"
    world.committed("m", 100, None)
    assert refused(world.call("POST", path, {"before": 1})) == "too_far"
    world.committed("m", 100, 60)
    assert refused(world.call("POST", path, {"before": 61})) == "too_far"
    status, view = world.call("POST", path, {"before": 60})
    assert (status, view["desired"]["fast_forward"]["before"]) == (200, 60)
    assert refused(world.call("POST", path, {})) == "invalid"
    assert refused(world.call("POST", path, {"before": "soon"})) == "invalid"
    assert refused(world.call("POST", path.replace("r1", "r9"), {"before": 60})) == "not_found"


def test_only_what_is_quarantined_is_released(world: World) -> None:
    world.with_merge()
    path = "/v1/merges/m/inputs/r2"
    assert refused(world.call("POST", f"{path}:release")) == "not_quarantined"
    world.committed("m", 100, stop={"r2": Stop("gap", "offset 4 is gone", 4)})
    answer = world.call("POST", f"{path}:release")
    assert (refused(answer), "attach it again" in answer[1]["detail"]) == ("not_quarantined", True)
    world.committed("m", 100, stop={"r2": Stop("quarantined", "offset 7: no element", 7)})
    view = world.call("GET", path)[1]
    assert (view["observed"]["membership"], view["observed"]["conditions"]) == ("gap", ["quarantined"])
    assert view["observed"]["reason"] == "offset 7: no element; release it"
    assert world.call("POST", f"{path}:release")[1]["desired"]["release"]["skip_record"] is False
    assert world.call("POST", f"{path}:release", {"skip_record": True})[1]["desired"]["release"]["skip_record"]
    assert refused(world.call("POST", "/v1/merges/m/inputs/r9:release")) == "not_found"


def test_a_quarantine_of_an_earlier_attachment_is_not_this_ones(world: World) -> None:
    world.with_merge()
    world.committed("m", 100, stop={"r2": Stop("quarantined", "offset 7: no element", 7)})
    world.call("DELETE", "/v1/merges/m/inputs/r2")
    world.call("PUT", "/v1/merges/m/inputs/r2", {"topic": "m.replica.r2"})
    assert refused(world.call("POST", "/v1/merges/m/inputs/r2:release")) == "not_quarantined"


# -- what the cluster and the process do


def test_a_broker_that_is_away_is_503_and_one_that_refuses_is_409(world: World) -> None:
    world.topics.error = RetryError("nobody answers")
    assert refused(world.call("PUT", "/v1/merges/m", {})) == "broker_unavailable"
    world.topics.error = Refused("not allowed")
    assert refused(world.call("PUT", "/v1/merges/m", {})) == "refused_by_kafka"
    world.topics.error = None
    world.with_merge()
    world.topics.error = MissingTopic("m.replica.r1")
    assert world.call("PUT", "/v1/merges/m", {"partitions": 1})[0] == 200  # it is there: nothing has to be asked
    world.records.error = UnreadableRecord("lane record has version 9")
    assert refused(world.call("GET", "/v1/merges/m")) == "unreadable_state"


def test_a_defect_is_500_and_neither_answer_nor_log_has_its_text(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.with_merge()
    world.records.error = RuntimeError("password=hunter2")
    status, body = world.call("GET", "/v1/merges/m")
    assert (status, body["code"]) == (500, "internal")
    logged = capfd.readouterr().err
    assert "RuntimeError" in logged
    assert body["detail"].split()[-1] in logged
    assert "hunter2" not in logged + json.dumps(body)


def test_health_readiness_and_metrics_need_no_token(world: World) -> None:
    assert world.call("GET", "/healthz", token=None) == (200, {"status": "alive"})
    assert world.call("GET", "/readyz", token=None) == (200, {"status": "ready"})
    world.health.is_running = False
    assert refused(world.call("GET", "/readyz", token=None)) == "not_ready"
    assert world.client.request("GET", "/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    assert world.client.request("GET", "/docs").status_code == 200
    assert world.client.request("GET", "/openapi.json").json()["info"]["title"] == "LMerge"


def test_machines_are_answered_while_more_calls_wait_for_a_broker_than_there_are_threads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.with_merge("m")
    waiting = threading.Semaphore(0)
    answers = threading.Event()

    def read(_merge: str, _desired: Desired) -> list[LaneRecord | None]:
        waiting.release()
        answers.wait(60)
        return [None]

    monkeypatch.setattr(world.records, "read", read)
    with (
        RestServer(world.app, RestSettings("127.0.0.1", 0)) as server,
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60) as client,
        ThreadPoolExecutor(THREADS + 5) as pool,
    ):
        calls = [pool.submit(client.get, "/v1/merges/m") for _ in range(THREADS + 5)]
        try:
            for _ in range(THREADS):
                assert waiting.acquire(timeout=60)
            for path in ("/healthz", "/readyz", "/metrics"):
                assert client.get(path, timeout=30).status_code == 200, path
            assert not any(call.done() for call in calls)
        finally:
            answers.set()
        assert {call.result().status_code for call in calls} == {200}


def test_what_is_no_call_is_refused_as_a_problem(world: World) -> None:
    assert refused(world.call("GET", "/v1/nothing")) == "no_such_path"
    assert refused(world.call("GET", "/v1/merges/")) == "no_such_path"
    assert refused(world.call("PATCH", "/v1/merges/m")) == "method_not_allowed"
    response = world.client.request("PUT", "/v1/merges/m", content="{}", headers={"Authorization": f"Bearer {ADMIN}"})
    assert refused((response.status_code, response.json())) == "not_json"
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    response = world.client.request("PUT", "/v1/merges/m", content=b'{"policy": "\xff"}', headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "malformed")
    response = world.client.request("PUT", "/v1/merges/m", content=b"{", headers=headers)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")


# -- the document


def test_the_committed_document_is_in_step() -> None:
    assert (ROOT / "docs" / "openapi.json").read_text() == openapi.text(), "run: make openapi"


def test_every_code_is_in_the_document_and_every_call_has_an_example() -> None:
    document = json.loads(openapi.text())
    text = json.dumps(document["paths"])
    for code in CODES.keys() - {"no_such_path", "method_not_allowed"}:  # these are of no call
        assert f'"{code}"' in text, code
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            for status, response in call["responses"].items():
                for media_type, content in response.get("content", {}).items():
                    shown = "example" in content or "examples" in content or media_type == "text/plain"
                    assert shown, (path, method, status)
