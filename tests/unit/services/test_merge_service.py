"""The decisions of the merge service that need no broker."""

import pytest
from pydantic import ValidationError

from lmerge import OutputPolicy, UsageError
from lmerge.kafka import Record
from services.merge import desired as decide
from services.merge.control_topic import UnreadableControl, desired_from, to_record
from services.merge.definitions import MAX_FORMER_TOPICS, Desired, InputDefinition, MergeDefinition
from services.merge.desired import Conflict, NotFound
from services.merge.lane import MAX_NOTES, Lane
from services.merge.lane_record import InputRecord, LaneRecord, UnreadableRecord, decode, encode
from services.merge.status import lane_status

R1 = InputDefinition(topic="m.replica.r1")


def merge(**inputs: InputDefinition) -> Desired:
    now: Desired | None = decide.put_merge(None, "m", MergeDefinition())
    for name, definition in inputs.items():
        now = decide.put_input(now, "m", name, definition, lambda name=name: f"{name}-1")  # type: ignore[misc]
    assert now is not None
    return now


def test_asking_for_what_is_there_changes_nothing() -> None:
    now = merge(r1=R1)
    assert decide.put_merge(now, "m", MergeDefinition()) is now
    assert decide.put_input(now, "m", "r1", R1, lambda: "another") is now


def test_what_contradicts_what_is_there_is_a_conflict_with_a_way_out() -> None:
    now = merge(r1=R1)
    with pytest.raises(Conflict, match="delete it first"):
        decide.put_merge(now, "m", MergeDefinition(partitions=2))
    with pytest.raises(Conflict, match="detach it first"):
        decide.put_input(now, "m", "r1", InputDefinition(topic="other"), lambda: "x")
    with pytest.raises(Conflict, match="that of input r1"):
        decide.put_input(now, "m", "r2", R1, lambda: "x")


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="no merge m"):
        decide.put_input(None, "m", "r1", R1, lambda: "x")
    with pytest.raises(NotFound, match="no input r2"):
        decide.delete_input(merge(r1=R1), "m", "r2")
    assert decide.delete_input(merge(r1=R1), "m", "r1").inputs == {}


def test_an_input_that_is_attached_again_is_another_attachment() -> None:
    now = decide.delete_input(merge(r1=R1), "m", "r1")
    assert decide.put_input(now, "m", "r1", R1, lambda: "r1-2").inputs["r1"].attachment == "r1-2"


def test_the_topics_of_inputs_that_left_are_remembered_each_once_and_not_without_bound() -> None:
    now = merge()
    for n in [*range(MAX_FORMER_TOPICS + 5), 90]:
        now = decide.put_input(now, "m", "r1", InputDefinition(topic=f"t{n}"), lambda: "x")
        now = decide.delete_input(now, "m", "r1")
    kept = [*range(5, 90), *range(91, MAX_FORMER_TOPICS + 5), 90]
    assert now.former_topics == tuple(f"t{n}" for n in kept)
    assert len(kept) == MAX_FORMER_TOPICS


def control_record(key: bytes | None, value: bytes | None) -> Record:
    return Record("lmerge.control", 0, 7, key, value, (), 0)


def test_the_last_record_of_a_merge_says_what_is_wanted_and_other_keys_say_nothing() -> None:
    records = [to_record("m", merge()), to_record("gone", merge()), (b"other/m", b"?"), (None, b"?")]
    records += [to_record("m", merge(r1=R1)), to_record("gone", None)]
    assert desired_from(control_record(*each) for each in records) == {"m": merge(r1=R1)}
    with pytest.raises(UnreadableControl, match=r"lmerge\.control/0 at offset 7: no definition of a merge"):
        desired_from([control_record(b"merge/m", b'{"definition":{"partitions":0}}')])


def test_the_origin_is_fixed_once() -> None:
    fixed = decide.fix_origin(merge(), "m", 1000)
    assert (fixed.origin, fixed.origin_fixed) == (1000, True)
    with pytest.raises(UsageError, match="fixed already"):
        decide.fix_origin(fixed, "m", 2000)


def test_a_definition_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValidationError):
        MergeDefinition(partitions=0)
    with pytest.raises(ValidationError):
        InputDefinition(topic="not a topic")
    with pytest.raises(UsageError, match="unknown policy"):
        decide.put_merge(None, "m", MergeDefinition(policy="sometimes"))


def lane_record(**inputs: InputRecord) -> LaneRecord:
    return LaneRecord(
        batch=1, max_stable=100, origin=None, leader="r1", merged_safe=0, safe_at_ms=0, control_offset=0, inputs=inputs
    )


def input_record(*, joins_at: int | None = None, own_stable: int | None = 90, verdict: str = "") -> InputRecord:
    return InputRecord(
        attachment="x",
        topic="t",
        position=5,
        start=0,
        safe=0,
        joins_at=joins_at,
        own_stable=own_stable,
        verdict=verdict,
    )


def test_a_lane_record_comes_back_and_another_version_is_refused() -> None:
    record = lane_record(r1=input_record())
    assert decode(encode(record)) == record
    with pytest.raises(UnreadableRecord, match="version 9"):
        decode(encode(record).replace(b'"v":1', b'"v":9'))
    with pytest.raises(UnreadableRecord, match="cannot be read"):
        decode(b"{}")


def test_the_status_says_who_is_joined_how_far_behind_and_why_a_lane_is_stalled() -> None:
    status = lane_status(
        lane_record(
            r1=input_record(),
            r2=input_record(joins_at=200, own_stable=None),
            r3=input_record(verdict="offset 7: broken"),
        )
    )
    assert {name: each.membership for name, each in status.inputs.items()} == {
        "r1": "joined",
        "r2": "joining",
        "r3": "gap",
    }
    assert (status.state, status.may_die, status.inputs["r1"].lag_ms) == ("running", 0, 10)
    assert status.inputs["r3"].reason == "offset 7: broken"
    assert lane_status(None).state == "recovering"
    assert "attach one" in (lane_status(lane_record()).reason or "")
    assert lane_status(lane_record(r2=input_record(joins_at=200))).state == "stalled"


def test_a_malformed_record_stops_its_input_at_its_offset() -> None:
    lane = Lane(OutputPolicy(), 0)
    lane.attach("r1", "x", "t", start=0, joins_at=0)
    lane.begin_batch(merged_end=0, now_ms=0)
    values = [b'{"kind":"stable","vc":5}', b"nonsense", b'{"kind":"stable","vc":6}']
    lane.take("r1", [Record("t", 0, 10 + n, None, value, (), 0) for n, value in enumerate(values)])
    assert lane.inputs["r1"].verdict.startswith("offset 11: ")
    assert lane.inputs["r1"].position == 11
    assert lane.reads(0) == {}


def test_notes_of_batches_are_bounded_while_a_node_lives_for_ever() -> None:
    lane = Lane(OutputPolicy(), 0)
    lane.attach("r1", "x", "t", start=0, joins_at=0)
    for number in range(5 * MAX_NOTES):
        lane.begin_batch(merged_end=number, now_ms=number)
        value = b'{"kind":"insert","payload":%d,"vs":5,"ve":null}' % number if number % 10 == 3 else None
        if value is not None:
            lane.take("r1", [Record("t", 0, number, None, value, (), 0)])
        if number % 7 == 0:
            prepared = lane.prepare(control_offset=0)
            lane.committed()
            if prepared is not None and number > 3:
                assert prepared.record.merged_safe <= 3
                assert prepared.record.inputs["r1"].safe <= 3
    assert len(lane._notes) <= MAX_NOTES
