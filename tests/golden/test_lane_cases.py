"""What the random simulation of a lane has found, each as a short case (tests/simulation/test_lane.py)."""

from collections.abc import Hashable

import pytest

from lmerge import MINUS_INFINITY, Divergence, Hello, Skip
from lmerge.errors import UsageError
from services.merge.definitions import FastForward, Release
from services.merge.lane import FRAMING_BYTES
from services.merge.lane_notes import MAX_CLAIM, MAX_HAPPENINGS, MAX_REASON, LaneNotes
from services.merge.lane_record import Stop
from tests.support.lane import MemoryLane
from tests.support.streams import INF, adj, hello, ins, skip, stb


def lane(algorithm: str = "R3", *names: str, origin: int = MINUS_INFINITY, **config: object) -> MemoryLane:
    """Return a lane with inputs attached."""
    result = MemoryLane(algorithm, None, origin, **config)
    for name in names:
        result.attach(name)
    return result


def order(it: MemoryLane, name: str, **change: object) -> None:
    """Give an order for an input."""
    it.wanted[name] = it.wanted[name].model_copy(update=change)
    it.follow()


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_an_input_with_nothing_to_refeed_is_joined_at_once(algorithm: str) -> None:
    """Else the lane looks stalled until somebody speaks."""
    it = lane(algorithm, "r1")
    it.feed("r1", ins("A", 1, 3), stb(10))
    it.commit()
    it.crash()
    it.commit()
    assert it.joined("r1")


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2"])
def test_the_safe_position_of_a_held_input_is_before_what_is_held(algorithm: str) -> None:
    """Else retention may remove what the lane has read, holds, and will have to read again."""
    it = lane(algorithm, "r1", "r2")
    it.feed("r1", ins("a", 10, 11))
    it.logs["r2"] += it.wire(hello(1, 20), ins("d", 25, 26), ins("e", 27, 28))
    it.take("r2", 1)
    it.take("r2", 3)
    it.commit()
    assert it.record is not None
    held = it.record.inputs["r2"]
    assert held.held
    assert (held.position, held.safe) == (1, 1)


def test_an_input_is_not_joined_before_its_hello_is_read() -> None:
    """The newest hello is found, and a commit comes before it is read again: else r1 may be detached, too early."""
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 12, 18), stb(15))
    it.logs["r2"] = it.wire(ins("void", 1, 2), hello(1, 20), ins("B", 25, 40))
    it.attach("r2")
    it.take("r2", 3)
    it.commit()
    assert not it.joined("r2")
    it.crash()
    it.commit()
    assert not it.joined("r2")
    it.run("r2")
    it.feed("r1", stb(20))
    it.commit()
    assert it.joined("r2")


def test_an_input_is_not_joined_before_it_has_said_anything() -> None:
    """Its first record may be a hello that says that it joins late."""
    it = lane("R3", "r1", "r2")
    it.feed("r1", ins("A", 12, 18), stb(15))
    it.commit()
    assert not it.joined("r2")
    it.feed("r2", hello(1, 20), ins("B", 25, 40))
    it.commit()
    assert not it.joined("r2")
    it.attach("r3", ins("A", 12, 18))
    it.commit()
    assert it.joined("r3")


def test_a_paused_input_is_refed() -> None:
    """It stays joined, and its entries count; nothing new of it is read."""
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 6, 20), stb(10))
    order(it, "r1", paused=True)
    it.commit()
    it.logs["r1"] += it.wire(stb(30))
    it.crash(refeed=[])
    assert it.lane.reads() == {"r1": 0}
    it.take("r1", 3)
    assert it.lane.reads() == {}
    it.commit()
    assert it.joined("r1")
    assert it.merged == [ins("A", 6, 20), stb(10)]
    order(it, "r1", paused=False)
    it.run("r1")
    it.commit()
    assert it.merged == [ins("A", 6, 20), stb(10), stb(30)]


def test_released_the_incarnation_is_read_again_from_its_hello() -> None:
    """It must not look joined before the hello is read again; and the bad record is left out for good."""
    it = lane("R3", "r1", "r2")
    it.feed("r1", ins("A", 12, 18), stb(15))
    it.feed("r2", hello(1, 20), ins("B", 25, 40), adj("no", 50, 60, 70), stb(30))
    assert it.lane.inputs["r2"].stop is not None
    order(it, "r2", release=Release(id="1", skip_record=True))
    it.commit()
    assert it.record is not None
    assert it.record.inputs["r2"].safe == 0, "a successor reads from there"
    assert not it.joined("r2")
    it.take("r2", 1)
    it.commit()
    assert not it.joined("r2")
    it.run("r2")
    it.feed("r1", stb(20))
    it.commit()
    it.crash()
    assert it.merged == [ins("A", 12, 18), stb(15), ins("B", 25, 40), stb(20), stb(30)]
    assert it.lane.inputs["r2"].stop is None
    assert it.joined("r2")


def test_a_record_that_is_left_out_is_passed_for_good() -> None:
    """Though nothing comes of it: else a successor, and whoever looks, finds the input before it."""
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 12, 18), stb(15), adj("no", 50, 60, 70))
    order(it, "r1", release=Release(id="1", skip_record=True))
    it.take("r1", 1)  # the search for its hello, as far as it has to go
    it.take("r1", 2)
    it.commit()
    it.take("r1", 3)
    it.commit()
    assert it.record is not None
    assert it.record.inputs["r1"].position == 3


def test_what_is_read_again_is_not_heard_again() -> None:
    """Else a dead replica looks alive after each take-over, and a lane that nobody carries on looks well."""
    it = lane("R3", "r1")
    it.logs["r1"] += it.wire(ins("A", 6, 20), ins("B", 7, 20))
    it.lane.take("r1", range(2), it.logs["r1"], now_ms=50)  # the search for its hello
    assert it.lane.inputs["r1"].heard_at_ms == 50
    it.lane.take("r1", range(2), it.logs["r1"], now_ms=60)
    it.commit()
    it.crash(refeed=[])
    it.lane.take("r1", [0], it.logs["r1"][:1], now_ms=70)
    assert it.lane.inputs["r1"].heard_at_ms == 60
    it.logs["r1"] += it.wire(stb(10))
    it.lane.take("r1", [1], it.logs["r1"][1:2], now_ms=80)
    assert (it.lane.inputs["r1"].heard_at_ms, it.lane.inputs["r1"].cursor) == (60, 2)
    it.commit()
    it.crash(refeed=[])
    it.lane.take("r1", range(3), it.logs["r1"], now_ms=90)
    assert it.lane.inputs["r1"].heard_at_ms == 90


def test_an_order_is_carried_out_once() -> None:
    """Also when others were given after it: an input that is stopped anew stays so."""
    it = lane("R3", "r1", "r2")
    it.feed("r1", ins("A", 12, 18), stb(15))
    it.feed("r2", adj("no", 50, 60, 70))
    order(it, "r2", release=Release(id="1", skip_record=True))
    it.run("r2")
    it.feed("r2", adj("no", 50, 60, 70))
    for number in (2, 3):
        order(it, "r2", fast_forward=FastForward(id=str(number), before=10))
        it.follow()
    assert it.lane.inputs["r2"].stop is not None
    assert it.lane.notes.signals == 2


def test_orders_for_an_input_whose_topic_is_gone() -> None:
    """A release attaches it anew; a standing order does not do so again and again; a signal beside it does no harm."""
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 12, 18), stb(15))
    it.lane.gap("r1", "the topic is gone")
    it.wanted["r1"] = it.wanted["r1"].model_copy(
        update={"release": Release(id="1", skip_record=True), "fast_forward": FastForward(id="2", before=10)}
    )
    assert it.lane.follow(it.wanted) == ["r1"]
    it.lane.attach_missing("r1", it.wanted["r1"], "the topic is gone")
    assert it.lane.follow(it.wanted) == []
    assert it.lane.inputs["r1"].stop == Stop("gap", "the topic is gone")


def test_a_hello_that_is_refused_is_where_the_input_stands() -> None:
    it = lane("R3", feed="bids")
    it.attach("r1")
    foreign = Hello(replica="r", incarnation=2, joins_at=20, feed="asks")
    it.feed("r1", ins("A", 12, 18))
    it.logs["r1"] += it.wire(ins("B", 13, 19), foreign, ins("C", 1, 2))
    it.take("r1", 4)
    stopped = it.lane.inputs["r1"]
    assert stopped.stop is not None
    assert (stopped.stop.offset, stopped.position) == (2, 2)


def test_an_input_whose_element_would_be_too_large_to_be_written_is_stopped() -> None:
    """Else every commit fails, of all inputs and for ever. What was taken before is not judged again."""
    it = lane("R3", "r1", "r2")
    it.lane.max_record_bytes = 10_000
    it.feed("r1", ins("A" * 9_000, 1, 5), ins("B", 1, 5), ins("C" * 9_990, 1, 5), ins("D", 1, 5))
    stopped = it.lane.inputs["r1"].stop
    assert stopped == Stop(
        "quarantined",
        "offset 2: its payload has 9,992 bytes, and the merged topic takes 9,488 (max.message.bytes)",
        2,
    )
    it.feed("r2", ins("A" * 9_000, 1, 5), ins("B", 1, 5), stb(3))
    it.commit()
    it.lane.max_record_bytes = 2_000
    it.crash()
    it.commit()
    assert it.merged == [ins("A" * 9_000, 1, 5), ins("B", 1, 5), stb(3)]
    assert it.joined("r2")


@pytest.mark.parametrize("normal_form", [False, True])
def test_whatever_is_put_out_of_the_largest_payload_can_be_written(*, normal_form: bool) -> None:
    it = lane("R3", "r1", "r2", normal_form=normal_form)
    it.lane.max_record_bytes = 10_000
    largest = "A" * (10_000 - FRAMING_BYTES - 2)
    begin, end = -(2**61), 2**61
    it.feed("r1", ins(largest, begin, end), stb(begin + 1))
    it.feed("r2", ins(largest, begin, end - 1), stb(end))
    assert it.lane.inputs["r1"].stop is it.lane.inputs["r2"].stop is None
    it.commit()
    assert any(b'"adjust"' in value for value in it.log) or normal_form
    overhead = 100  # of a batch with one record, for sure
    assert 10_000 - FRAMING_BYTES < max(map(len, it.log)) <= 10_000 - overhead


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("readable", [False, True])
def test_released_without_a_hello_that_was_refused_the_next_one_is_awaited(*, first: bool, readable: bool) -> None:
    """Else what follows it looks complete, or is merged into the incarnation before: C is lost, or B is there twice."""
    it = lane("R3", "r1", feed="bids")
    it.feed("r1", ins("A", 12, 18), stb(15))
    it.attach("r2")
    if not first:
        it.feed("r2", hello(1, 10), ins("A", 12, 18))
    foreign = it.wire(Hello(replica="r", incarnation=2, joins_at=20, feed="asks"))
    it.feed_wire("r2", foreign if readable else [b'{"kind": "hello","v":2,"replica":"r"}'])
    assert it.lane.inputs["r2"].stop is not None
    it.commit()
    it.crash()
    order(it, "r2", release=Release(id="1", skip_record=True))
    it.feed("r2", ins("B", 25, 40), stb(30))
    it.commit()
    assert not it.joined("r2")
    assert it.lane.inputs["r2"].seek is not None
    assert "B" not in str(it.merged)
    it.feed("r2", Hello(replica="r", incarnation=3, joins_at=15, feed="bids"), ins("C", 25, 40), stb(30))
    it.commit()
    assert it.joined("r2")
    assert it.merged[-2:] == [ins("C", 25, 40), stb(30)]


def test_behind_the_normal_form_a_merge_begins_at_the_first_cut() -> None:
    """Its inputs are complete from there on: else they are never joined (J4)."""
    it = lane("R3", origin=13, normal_form=True, cut_every_ms=10)
    it.lane.open()
    it.attach("r1", hello(1, 13), ins("A", 5, 30), ins("B", 22, 24), stb(25))
    it.commit()
    assert it.joined("r1")
    assert it.record is not None
    assert (it.record.max_stable, it.record.origin) == (25, 13)
    assert it.config.complete_from == 21


def test_behind_the_normal_form_an_attach_call_means_what_a_hello_means() -> None:
    """Complete from 9 on is complete from the cut at 10 on: else the inputs contradict each other below it."""
    it = lane("R3", "r1", normal_form=True, cut_every_ms=10)
    it.feed("r1", ins("A", 2, 30), stb(9))
    it.logs["r2"] = [b"gone", *it.wire(ins("A", 7, 30))]
    it.attach("r2", joins_at=9, low=1)
    it.run("r2")
    it.commit()
    assert not it.joined("r2")
    assert it.record is not None
    assert it.record.inputs["r2"].joins_at == 11


def test_behind_the_normal_form_without_cuts_nothing_begins_late() -> None:
    it = lane("R3", origin=13, normal_form=True)
    with pytest.raises(UsageError, match="cut_every_ms"):
        it.lane.open()
    ordered = lane("R0", origin=13)
    with pytest.raises(UsageError, match="longest_lifetime_ms"):
        ordered.lane.open()


def test_r4_compares_live_ends_only_also_where_one_moves() -> None:
    """E10 goes on: else the end that moves is taken for the one that is frozen, adj(A,2,50->5)."""
    it = lane("R4", "r1")
    it.feed("r1", ins("A", 2, 5), ins("A", 2, 50), stb(10))
    it.commit()
    it.crash()
    it.feed("r1", adj("A", 2, 50, 15), stb(20))
    it.commit()
    assert it.merged[3:] == [adj("A", 2, 50, 15), stb(20)]


@pytest.mark.parametrize(("cut_every_ms", "signals"), [(10, [21]), (None, [])])
def test_behind_the_normal_form_an_input_skips_to_a_cut(cut_every_ms: int | None, signals: list[int]) -> None:
    """Told to skip to the merged stable it would be complete from the next cut on only, and could not lead alone."""
    it = lane("R3", "r1", "r2", normal_form=True, cut_every_ms=cut_every_ms, lag_ms=5)
    it.feed("r2", ins("A", 2, 3), stb(4))
    it.feed("r1", ins("A", 2, 3), stb(26))
    order(it, "r2", fast_forward=FastForward(id="1", before=22))
    it.commit()
    assert [signal.before for signal in it.signals] == signals
    for before in signals:
        it.feed("r2", skip(before))
        it.commit()
        assert it.joined("r2")


def test_what_an_input_did_not_have_to_read_is_kept_until_its_next_hello() -> None:
    it = lane("R3", "r1", "r2")
    it.feed("r1", ins("A", 2, 3), stb(30))
    it.feed("r2", Skip(20, cuts=2, rows=40), Skip(26, cuts=5, rows=90), stb(26))
    it.commit()
    it.crash()
    assert it.lane.inputs["r2"].skip == Skip(26, cuts=5, rows=90)
    it.feed("r2", hello(2, 10), stb(27))
    assert it.lane.inputs["r2"].skip is None


def test_a_signal_is_forgotten_when_the_input_has_caught_up() -> None:
    it = lane("R3", "r1", "r2", lag_ms=5, merge_id="6f0c1b")
    it.feed("r2", stb(4))
    it.feed("r1", stb(26))
    it.commit()
    assert it.lane.inputs["r2"].signalled == 26
    it.feed("r2", stb(26))
    it.commit()
    assert it.lane.inputs["r2"].signalled is None
    it.feed("r1", stb(INF))
    it.commit()
    assert [(signal.before, signal.merge_id) for signal in it.signals] == [(26, "6f0c1b")]


def test_what_is_attached_again_in_one_change_is_read_from_its_beginning() -> None:
    """Its topic is being read, for the attachment that left: else its newest hello may be missed."""
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 12, 18), stb(15))
    del it.wanted["r1"]
    it.attach("r1")
    assert it.lane.moved == {"r1"}
    assert it.lane.reads() == {"r1": 0}


def test_records_that_come_during_a_pause_are_to_be_read_again() -> None:
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 12, 18), stb(15))
    order(it, "r1", paused=True)
    it.logs["r1"] += it.wire(stb(16))
    it.lane.take("r1", [2], it.logs["r1"][2:])
    assert it.lane.moved == {"r1"}
    order(it, "r1", paused=False)
    assert it.lane.reads() == {"r1": 2}


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2"])
def test_what_is_held_of_an_input_is_not_merged_during_a_pause(algorithm: str) -> None:
    it = lane(algorithm, "r1", "r2")
    it.feed("r1", ins("a", 10, 11))
    it.logs["r2"] += it.wire(hello(1, 20), ins("d", 25, 26), ins("e", 27, 28))
    it.take("r2", 1)
    it.take("r2", 3)
    it.lane.moved.clear()
    order(it, "r2", paused=True)
    assert it.lane.moved == {"r2"}
    it.feed("r1", stb(20))
    it.commit()
    assert it.merged == [ins("a", 10, 11), stb(20)]
    assert it.lane.reads().keys() == {"r1"}
    order(it, "r2", paused=False)
    it.run("r2")
    it.commit()
    assert it.merged == [ins("a", 10, 11), stb(20), ins("d", 25, 26), ins("e", 27, 28)]


def test_records_that_come_after_a_refeed_during_a_pause_are_to_be_read_again() -> None:
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 12, 18), stb(15))
    order(it, "r1", paused=True)
    it.commit()
    it.logs["r1"] += it.wire(stb(16))
    it.crash(refeed=[])
    it.lane.moved.clear()
    it.lane.take("r1", [0, 1, 2], it.logs["r1"])
    assert it.lane.moved == {"r1"}
    assert it.lane.inputs["r1"].cursor == 2


def test_people_are_told_once_that_an_input_came_or_went() -> None:
    it = MemoryLane("R3")
    it.attach("r1", ins("A", 6, 20), stb(10))
    it.attach("r2")
    it.commit()
    assert _told(it) == [("attached", "r1"), ("joined", "r1"), ("attached", "r2")]
    it.crash()  # the successor has both from the record: nothing new has happened to them
    it.detach("r1")
    it.commit()
    assert ("attached", "r1") not in _told(it)
    assert _told(it)[-1] == ("detached", "r1")


def test_of_what_happens_often_people_are_told_the_first_and_how_many_more_there_were() -> None:
    notes = LaneNotes()
    for _ in range(MAX_HAPPENINGS + 5):
        notes.happen("divergence", "r1", "again")
    notes.happen("divergence", "r2", "again")
    notes.happen("gap", "r1", "once")
    assert len(notes.happenings) == MAX_HAPPENINGS + 1
    assert notes.left_out == {("divergence", "r1"): 5, ("divergence", "r2"): 1}
    notes.forget_happenings()
    notes.happen("divergence", "r1", "again")
    assert (len(notes.happenings), len(notes.left_out)) == (1, 0)


def test_what_inputs_claim_about_an_event_is_kept_short() -> None:
    """Of R4 it is every end, and a lane record that no broker takes would stop the lane."""
    notes = LaneNotes()
    claims: dict[Hashable, str] = {f"r{n}": "ends at " + ", ".join(map(str, range(1_000))) for n in range(9)}
    _, text = notes.diverged(Divergence(b'"A"', 6, claims))
    (sample,) = notes.samples
    assert {len(claim) for claim in sample.claims.values()} == {MAX_CLAIM}
    assert len(text) == MAX_REASON
    assert len(notes.happenings[0].text) < MAX_REASON + 100


def _told(it: MemoryLane) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name, _ in it.lane.notes.happenings]
