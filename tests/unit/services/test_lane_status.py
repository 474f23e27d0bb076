"""What the service says of a lane, by its committed record."""

from typing import Any

import pytest

from lmerge import INFINITY
from services.merge.definitions import Attachment, Desired, FeedbackDefinition, InputDefinition, MergeDefinition
from services.merge.lane_record import Counts, InputRecord, LaneRecord, Seek, Stop
from services.merge.status import DEAD_MS, SILENT_MS, InputStatus, LaneStatus, lane_status

NOW = 1_000_000


def wanted(*names: str, lag_ms: int | None = None, **change: Any) -> Desired:
    definition = MergeDefinition(feedback=FeedbackDefinition(lag_ms=lag_ms))
    inputs = {name: Attachment(attachment=f"{name}/1", definition=InputDefinition(topic=name)) for name in names}
    return Desired(definition=definition, algorithm="R3", origin_fixed=True, inputs=inputs, **change)


def read(name: str = "r1", **change: Any) -> InputRecord:
    given = {"attachment": f"{name}/1", "topic": name, "position": 5, "start": 0, "safe": 0, "heard_at_ms": NOW}
    return InputRecord(**{**given, "own_stable": 100, "joined": True, **change})


def record(**change: Any) -> LaneRecord:
    return LaneRecord(**{"v": 1, "batch": 1, "at_ms": NOW, "max_stable": 100, **change})


def status(*inputs: InputRecord, now_ms: int = NOW, lag_ms: int | None = None, **change: Any) -> LaneStatus:
    names = [each.topic for each in inputs]
    given = record(inputs=dict(zip(names, inputs, strict=True)), **change)
    return lane_status(given, wanted(*names, lag_ms=lag_ms), now_ms=now_ms)


def one(each: InputRecord, **change: Any) -> InputStatus:
    return status(each, **change).inputs["r1"]


def test_before_the_first_commit() -> None:
    assert (lane_status(None, wanted(), now_ms=NOW).state, lane_status(None, wanted(), now_ms=NOW).reason) == (
        "stalled",
        "no input is attached: attach one",
    )
    silent = wanted("r1").model_copy(update={"origin_fixed": False})
    assert lane_status(None, silent, now_ms=NOW).reason == "no input has said anything yet: start a replica"
    assert lane_status(None, wanted("r1"), now_ms=NOW).state == "recovering"


def test_a_lane_that_runs() -> None:
    of = status(read("r1"), read("r2"), leader="r2", owner="p1", nodes=7, bytes=700, divergences=2, safe_at_ms=NOW - 50)
    assert (of.state, of.reason, of.leader, of.owner) == ("running", None, "r2", "p1")
    assert (of.stable, of.may_die, of.live_events, of.live_bytes) == (100, 1, 7, 700)
    assert (of.divergences, of.safe_point_age_ms) == (2, 50)
    assert status(read()).safe_point_age_ms == 0, "nothing is noted yet"


def test_a_lane_without_an_owner() -> None:
    assert status(read(), now_ms=NOW + DEAD_MS).state == "running"
    dead = status(read(), now_ms=NOW + DEAD_MS + 1)
    assert dead.state == "recovering"
    assert "nobody has committed for 15 s" in (dead.reason or "")


def test_topics_of_another_merge() -> None:
    of = lane_status(record(merge_id="old"), wanted("r1", id="new"), now_ms=NOW)
    assert of.state == "stalled"
    assert "another merge of this name" in (of.reason or "")


def test_a_lane_that_waits_says_for_what() -> None:
    joining: dict[str, Any] = {"joined": False, "joins_at": 200}
    cases = {
        "no input is attached": status(),
        "no input is joined": status(read(**joining)),
        "all joined inputs are paused or silent": status(read(paused=True), read("r2", **joining)),
    }
    for text, of in cases.items():
        assert of.state == "stalled"
        assert text in (of.reason or "")
        assert of.may_die == 0


def test_who_is_paused_or_silent_does_not_count_as_one_that_may_carry_on() -> None:
    assert status(read("r1"), read("r2", paused=True), read("r3")).may_die == 1
    quiet = NOW - SILENT_MS - 1
    assert status(read("r1"), read("r2", heard_at_ms=quiet), read("r3")).may_die == 1


@pytest.mark.parametrize(
    ("change", "membership", "reason"),
    [
        ({}, "joined", None),
        ({"joined": False, "joins_at": 200}, "joining", "the lane has not come to 200 yet"),
        ({"joined": False}, "joining", "it is being read again"),
        ({"joined": False, "joins_at": 90}, "joining", "it is being read again"),
        ({"joined": False, "joins_at": INFINITY}, "joining", "its hello is being read"),
        ({"attachment": "r1/0"}, "leaving", None),
        ({"joined": False, "stop": Stop("quarantined", "offset 7: bad", 7)}, "gap", "offset 7: bad; release it"),
        ({"joined": False, "stop": Stop("gap", "gone")}, "gap", "gone; detach it and attach it again"),
        (
            {"joined": False, "seek": Seek(9, 0)},
            "joining",
            "its newest incarnation is being looked for, up to offset 9",
        ),
        ({"joined": False, "seek": Seek(5, 0)}, "joining", "nothing has come of it yet: start the replica"),
        ({"joined": False, "seek": Seek(5, None, 2)}, "joining", "nothing has come of it yet: start the replica"),
        (
            {"joined": False, "seek": Seek(5, None, why="records gone")},
            "gap",
            "records gone; it waits for a hello: start the replica cold, or attach the topic with joins_at",
        ),
        (
            {"joined": False, "seek": Seek(5, None)},
            "gap",
            "it waits for a hello: start the replica cold, or attach the topic with joins_at",
        ),
    ],
)
def test_membership_and_the_reason_for_it(change: dict[str, Any], membership: str, reason: str | None) -> None:
    of = one(read(**change))
    assert (of.membership, of.reason) == (membership, reason)


def test_an_input_that_the_lane_has_not_seen() -> None:
    of = lane_status(record(), wanted("r1"), now_ms=NOW).inputs["r1"]
    assert (of.membership, of.reason) == ("joining", "the lane has not seen it yet")


def test_an_input_that_is_not_wanted_any_more_is_leaving() -> None:
    of = lane_status(record(inputs={"r1": read()}), wanted(), now_ms=NOW)
    assert of.inputs["r1"].membership == "leaving"
    assert of.state == "stalled"


@pytest.mark.parametrize(
    ("own_stable", "max_stable", "lag"), [(90, 100, 10), (110, 100, 0), (None, 100, None), (90, INFINITY, None)]
)
def test_lag(own_stable: int | None, max_stable: int, lag: int | None) -> None:
    assert one(read(own_stable=own_stable), max_stable=max_stable).lag_ms == lag


def test_conditions() -> None:
    assert one(read(own_stable=90), lag_ms=10).conditions == []
    assert one(read(own_stable=89), lag_ms=10).conditions == ["lagging"]
    assert one(read(own_stable=89)).conditions == [], "nobody said what lagging is"
    assert one(read(paused=True)).conditions == ["paused"]
    assert one(read(stop=Stop("quarantined", "bad", 7))).conditions == ["quarantined"]
    assert one(read(stop=Stop("gap", "gone"))).conditions == []


def test_silent_is_who_says_nothing_while_others_speak() -> None:
    quiet = NOW - SILENT_MS - 1
    assert status(read("r1", heard_at_ms=quiet), read("r2")).inputs["r1"].conditions == ["silent"]
    assert status(read("r1", heard_at_ms=quiet + 1), read("r2")).inputs["r1"].conditions == []
    assert status(read("r1", heard_at_ms=quiet), read("r2", heard_at_ms=quiet)).inputs["r1"].conditions == []
    assert status(read("r1", heard_at_ms=0), read("r2")).inputs["r1"].conditions == [], "it never spoke"


def test_what_else_is_shown() -> None:
    counts = Counts(inserts=3, adjusts=2, stables=1, dropped={"frozen": 4})
    told: dict[str, Any] = {"signalled": 50, "skipped_to": 40, "skipped_cuts": 3, "skipped_rows": 70}
    of = one(read(incarnation=2, plan="a", joins_at=7, counts=counts, **told))
    assert (of.incarnation, of.plan, of.joins_at, of.stable, of.position) == (2, "a", 7, 100, 5)
    assert of.fast_forwarded_to == 50
    assert (of.skipped_to, of.skipped_cuts, of.skipped_rows) == (40, 3, 70)
    assert of.counts.model_dump() == {"inserts": 3, "adjusts": 2, "stables": 1, "dropped": {"frozen": 4}}
