"""The decisions of the merge service that need no broker."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from lmerge.choose import Algorithm
from lmerge.errors import UsageError
from lmerge.kafka import Record
from services.merge import desired as decide
from services.merge.control_topic import UnreadableControl, desired_from, to_record
from services.merge.definitions import (
    MAX_FORMER_TOPICS,
    MAX_INPUTS,
    Desired,
    InputDefinition,
    MergeDefinition,
    NormalFormDefinition,
    Properties,
)
from services.merge.desired import Conflict, NotFound, TooFar, TooMany, TooWeak
from services.merge.lane import POSITIONS_MS, Lane
from services.merge.lane_config import LaneConfig
from services.merge.lane_record import InputRecord, LaneRecord, UnreadableRecord, decode, encode
from services.merge.safe_points import MAX_NOTES

R1 = InputDefinition(topic="m.replica.r1")


def merge(**inputs: InputDefinition) -> Desired:
    now: Desired | None = decide.put_merge(None, "m", MergeDefinition(), lambda: "id")
    for name, definition in inputs.items():
        now = decide.put_input(now, "m", name, definition, lambda name=name: f"{name}-1")  # type: ignore[misc]
    assert now is not None
    return now


def test_asking_for_what_is_there_changes_nothing() -> None:
    now = merge(r1=R1)
    assert decide.put_merge(now, "m", MergeDefinition(), lambda: "id") is now
    assert decide.put_input(now, "m", "r1", R1, lambda: "another") is now


def test_what_contradicts_what_is_there_is_a_conflict_with_a_way_out() -> None:
    now = merge(r1=R1)
    with pytest.raises(Conflict, match="delete it first"):
        decide.put_merge(now, "m", MergeDefinition(partitions=2), lambda: "id")
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


def test_a_merge_has_so_many_inputs_and_no_more() -> None:
    now = merge(**{f"r{n}": InputDefinition(topic=f"m.replica.r{n}") for n in range(MAX_INPUTS)})
    one_more = InputDefinition(topic="one.more")
    with pytest.raises(TooMany, match="detach one"):
        decide.put_input(now, "m", "one_more", one_more, lambda: "x")
    assert decide.put_input(now, "m", "r1", R1, lambda: "x") is now
    fewer = decide.delete_input(now, "m", "r1")
    assert len(decide.put_input(fewer, "m", "one_more", one_more, lambda: "x").inputs) == MAX_INPUTS


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2", "auto"])
def test_an_algorithm_that_does_not_compare_its_inputs_cannot_quarantine_who_contradicts(algorithm: Any) -> None:
    """Those that were defined so before this was refused are read, and asking for them again changes nothing."""
    properties = (Properties(insert_only=True, order="strictly increasing"),)
    definition = MergeDefinition(algorithm=algorithm, properties=properties, quarantine_diverging=True)
    with pytest.raises(UsageError, match=r"R[012], which does not compare .* say algorithm R3"):
        decide.put_merge(None, "m", definition, lambda: "id")
    there = Desired(definition=definition, algorithm="R0")
    assert decide.put_merge(there, "m", definition, lambda: "id") is there
    assert Desired.model_validate_json(there.model_dump_json()) == there
    for right in (MergeDefinition(quarantine_diverging=True), definition.model_copy(update={"algorithm": "R4"})):
        assert decide.put_merge(None, "m", right, lambda: "id").algorithm in ("R3", "R4")


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


def test_a_definition_with_fields_of_a_newer_process_is_read_and_one_of_a_higher_version_is_not() -> None:
    """Both run side by side during an upgrade. A request with a field that is not known is a typing error."""
    key, value = to_record("m", merge(r1=R1))
    assert value is not None
    newer = json.loads(value)
    for part in (newer, newer["definition"], newer["inputs"]["r1"], newer["inputs"]["r1"]["definition"]):
        part["new_field"] = {"of": "a newer process"}
    newer["definition"]["feedback"]["new_field"] = 1
    assert desired_from([control_record(key, json.dumps(newer).encode())]) == {"m": merge(r1=R1)}
    with pytest.raises(UnreadableControl, match=r"merge m has version 2, and this process knows 1: upgrade every"):
        desired_from([control_record(key, json.dumps({**newer, "v": 2}).encode())])
    with pytest.raises(ValidationError, match="new_field"):
        MergeDefinition.model_validate({"new_field": 1})


def test_the_origin_is_fixed_once_by_the_first_to_say_it() -> None:
    fixed = decide.fix_origin(merge(), "m", 1000, "feed")
    assert (fixed.origin, fixed.origin_fixed, fixed.feed) == (1000, True, "feed")
    assert decide.fix_origin(fixed, "m", 2000, "other") is fixed


def test_a_definition_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValidationError):
        MergeDefinition(partitions=0)
    with pytest.raises(ValidationError):
        InputDefinition(topic="not a topic")
    with pytest.raises(ValidationError, match="unknown policy"):
        MergeDefinition(policy="sometimes")
    with pytest.raises(ValidationError, match="a whole number of inputs"):
        MergeDefinition(policy=f"quorum({'9' * 310})")
    with pytest.raises(ValidationError, match="has no output policy"):
        MergeDefinition(algorithm="R2", policy="eager")
    with pytest.raises(ValidationError, match="merged by R3"):
        MergeDefinition(algorithm="R4", normal_form=NormalFormDefinition())


def test_auto_takes_the_cheapest_that_the_listed_properties_allow_and_a_weaker_input_is_refused() -> None:
    ordered = Properties(insert_only=True, order="non-decreasing", key=True)
    assert decide.put_merge(None, "m", MergeDefinition(), lambda: "id").algorithm == "R3"
    now = decide.put_merge(None, "m", MergeDefinition(properties=(ordered,)), lambda: "id")
    assert now.algorithm == "R2"
    assert "Every input promises" in now.reason
    fits = decide.put_input(now, "m", "r1", InputDefinition(topic="t", properties=ordered), lambda: "x")
    assert list(fits.inputs) == ["r1"]
    with pytest.raises(TooWeak, match=r"needs only inserts and stables, non-decreasing vs.*algorithm R3"):
        decide.put_input(now, "m", "r2", InputDefinition(topic="u", properties=Properties(key=True)), lambda: "x")
    for definition in (MergeDefinition(policy="eager"), MergeDefinition(normal_form=NormalFormDefinition())):
        assert decide.put_merge(None, "m", definition, lambda: "id").algorithm == "R3"


def test_orders_to_inputs_are_part_of_what_is_wanted() -> None:
    now = merge(r1=R1)
    assert decide.set_paused(now, "m", "r1", paused=True).inputs["r1"].paused
    released = decide.release(now, "m", "r1", skip_record=True, new_id=lambda: "o1").inputs["r1"].release
    assert released is not None
    assert (released.id, released.skip_record) == ("o1", True)
    told = decide.fast_forward(now, "m", "r1", 20, committed=20, new_id=lambda: "o2").inputs["r1"].fast_forward
    assert told is not None
    assert (told.id, told.before) == ("o2", 20)
    for committed in (19, None):
        with pytest.raises(TooFar, match="no further than what is committed"):
            decide.fast_forward(now, "m", "r1", 20, committed=committed, new_id=lambda: "o3")


def lane_record(**inputs: InputRecord) -> LaneRecord:
    return LaneRecord(v=1, batch=1, at_ms=5, max_stable=100, leader="r1", inputs=inputs)


def test_a_lane_record_comes_back_and_another_version_is_refused() -> None:
    record = lane_record(r1=InputRecord(attachment="x", topic="t", position=5, start=0, safe=0, own_stable=90))
    assert decode(encode(record)) == record
    with pytest.raises(UnreadableRecord, match="version 9"):
        decode(encode(record).replace(b'"v":1', b'"v":9'))
    with pytest.raises(UnreadableRecord, match="cannot be read"):
        decode(b"{}")


def lane(algorithm: Algorithm = "R3") -> Lane:
    """Return a lane that has begun to read an input without a hello."""
    lane = Lane(LaneConfig(merge="m", algorithm=algorithm))
    lane.attach("r1", merge(r1=R1).inputs["r1"], low=0, until=0)
    lane.take("r1", [0], [b'{"kind":"stable","vc":1}'])  # sought: no hello; it begins here
    lane.take("r1", [0], [b'{"kind":"stable","vc":1}'])
    return lane


def test_a_malformed_record_stops_its_input_at_its_offset() -> None:
    it = lane()
    it.begin_batch(merged_end=0, now_ms=0)
    it.take("r1", [10, 11, 12], [b'{"kind":"stable","vc":5}', b"nonsense", b'{"kind":"stable","vc":6}'])
    stop = it.inputs["r1"].stop
    assert stop is not None
    assert (stop.kind, stop.offset, stop.reason[:11]) == ("quarantined", 11, "offset 11: ")
    assert it.inputs["r1"].position == 11
    assert it.reads() == {}


def test_whatever_an_input_writes_the_lane_record_stays_small() -> None:
    """Else no broker takes it, and one bad record stops the lane for all inputs."""
    it = lane()
    it.begin_batch(merged_end=0, now_ms=0)
    value = '{"kind":"insert","payload":"%s","vs":5,"ve":9}' % ("é" * 100_000)
    hello = '{"kind":"hello","v":1,"replica":"r1","incarnation":1,"joins_at":null,"plan":"%s"}' % ("p" * 100_000)
    it.take("r1", [10, 11, 12], [hello.encode(), value.encode(), value.encode()])
    stop = it.inputs["r1"].stop
    assert stop is not None
    assert "offset 12: Insert(" in stop.reason
    prepared = it.prepare()
    assert prepared is not None
    assert len(encode(prepared.record)) < 2_000


def test_the_safe_point_of_r2_is_as_old_as_the_events_with_the_largest_vs() -> None:
    it = lane("R2")
    it.begin_batch(merged_end=7, now_ms=1_000)
    it.take("r1", [10, 11], [b'{"kind":"insert","payload":1,"vs":5,"ve":9}', b'{"kind":"stable","vc":5}'])
    it.begin_batch(merged_end=9, now_ms=50_000)
    it.take("r1", [12], [b'{"kind":"insert","payload":2,"vs":5,"ve":9}'])
    prepared = it.prepare(merged_end=9, now_ms=50_000)
    assert prepared is not None
    assert (prepared.record.merged_safe, prepared.record.safe_at_ms) == (7, 1_000)


def test_positions_alone_wait_and_what_others_see_does_not() -> None:
    it = lane()
    other = InputDefinition(topic="m.replica.r2")
    it.attach("r2", merge(r2=other).inputs["r2"], low=0, until=0)
    it.take("r2", [0], [b'{"kind":"stable","vc":1}'])  # sought
    insert = b'{"kind":"insert","payload":1,"vs":5,"ve":9}'

    def take(name: str, offset: int, value: bytes, now_ms: int) -> bool:
        it.begin_batch(merged_end=0, now_ms=now_ms)
        it.take(name, [offset], [value])
        prepared = it.prepare(now_ms=now_ms)
        if prepared is not None:
            it.committed(now_ms=now_ms)
        return prepared is not None

    assert take("r1", 10, insert, 10_000), "it puts out something"
    assert not take("r2", 0, b'{"kind":"stable","vc":1}', 10_001), "the output is as far"
    assert take("r2", 1, b'{"kind":"skip","before":1}', 10_002), "people want to know"
    assert not take("r2", 2, insert, 10_003), "the output has it"
    assert it.prepare(now_ms=10_002 + POSITIONS_MS - 1) is None
    prepared = it.prepare(now_ms=10_002 + POSITIONS_MS)
    assert prepared is not None
    assert (prepared.values, prepared.record.inputs["r2"].position) == ([], 3)


def test_notes_of_batches_are_bounded_while_a_node_lives_for_ever() -> None:
    it = lane()
    for number in range(5 * MAX_NOTES):
        it.begin_batch(merged_end=number, now_ms=number)
        if number % 10 == 3:
            it.take("r1", [number + 1], [b'{"kind":"insert","payload":%d,"vs":5,"ve":null}' % number])
        if number % 7 == 0:
            prepared = it.prepare()
            it.committed()
            if prepared is not None and number > 3:
                assert prepared.record.merged_safe <= 3
                assert prepared.record.inputs["r1"].safe <= 4
    assert len(it._safe._notes) <= MAX_NOTES
