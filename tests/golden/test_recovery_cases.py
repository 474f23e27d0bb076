"""The worked cases E1 to E25 and J1 to J5 of recovery-and-sink, by their own elements, and F1 to F6.

They run against the lane that production runs. Each docstring says what the mistake would put out. E11a to E11c are
about carried nodes, which are to come. E15, in which two processes have the lane, is on a real broker too
(tests/integration/test_merge_faults.py).
"""

import pytest

from lmerge import Element, OutputPolicy, reconstitute
from lmerge.elements import MINUS_INFINITY
from replicas.skipping import Told
from services.merge.definitions import Attachment, InputDefinition
from services.merge.lane_config import LaneConfig
from tests.support.lane import MemoryLane, elements_of
from tests.support.lane_owner import Broker, Owner, Refused, recover
from tests.support.memory_log import Log
from tests.support.streams import INF, adj, hello, ins, skip, stb


def lane(algorithm: str = "R3", *names: str, policy: str = "", origin: int = MINUS_INFINITY) -> MemoryLane:
    """Return a lane with inputs attached; r1 and r2 if none are named."""
    result = MemoryLane(algorithm, OutputPolicy.parse(policy) if policy else None, origin)
    for name in names or ("r1", "r2"):
        result.attach(name)
    return result


def check(result: MemoryLane, *expected: Element) -> None:
    """Require the output, that it is legal, and that no input was accused."""
    result.commit()
    assert result.merged == list(expected)
    reconstitute(result.merged)
    assert not result.lane.notes.divergences
    assert not [each.stop for each in result.lane.inputs.values() if each.stop]


def test_e1_the_safe_point_lies_before_the_batch_that_made_the_node() -> None:
    """Else: adj(A,6,20->6) stable(10)."""
    it = lane()
    it.feed("r1", ins("A", 6, 20))
    it.commit()
    it.crash()
    it.feed("r1", stb(10))
    check(it, ins("A", 6, 20), stb(10))


def test_e2_the_merged_stable_is_stored_and_not_read_from_the_suffix() -> None:
    """Else: ins(A,1,3) after stable(10)."""
    it = lane()
    it.feed("r1", ins("A", 1, 3), stb(10))
    it.commit()
    it.feed("r1", ins("B", 12, 20))
    it.commit()
    it.crash()
    it.feed("r2", ins("A", 1, 3))
    check(it, ins("A", 1, 3), stb(10), ins("B", 12, 20))
    assert it.lane.inputs["r2"].dropped == {"frozen": 1}


def test_e3_loaded_nodes_keep_their_stamp_through_a_second_crash() -> None:
    """Else: A stays infinite."""
    it = lane()
    it.feed("r1", ins("A", 6, INF))
    it.commit()
    it.crash()
    it.feed("r2", ins("C", 40, 50))
    it.commit()
    it.crash()
    it.feed("r1", adj("A", 6, INF, 20), stb(30))
    check(it, ins("A", 6, INF), ins("C", 40, 50), adj("A", 6, INF, 20), stb(30))


def test_e4_r1_stores_its_counts() -> None:
    """Else: c is taken for r1's first and dropped."""
    it = lane("R1")
    it.feed("r1", ins("a", 5, 9), ins("b", 5, 9))
    it.commit()
    it.crash()
    it.feed("r1", ins("c", 5, 9))
    check(it, ins("a", 5, 9), ins("b", 5, 9), ins("c", 5, 9))


def test_e5_r1_counts_what_it_put_out_itself() -> None:
    """Else, with the maximum over attached inputs: a b c again."""
    it = lane("R1")
    abc = [ins("a", 5, 9), ins("b", 5, 9), ins("c", 5, 9)]
    it.feed("r1", *abc)
    it.commit()
    it.detach("r1")
    it.feed("r2", *abc)
    check(it, *abc)


def test_e6_r0_does_not_use_a_joiner() -> None:
    """Else: max_vs = 25, and 12 and 15 are lost."""
    it = lane("R0")
    it.feed("r1", ins("a", 10, 11))
    it.feed("r2", hello(1, 20), ins("d", 25, 26))
    assert it.lane.inputs["r2"].backlog.offsets, "it is held"
    it.feed("r1", ins("b", 12, 13), ins("c", 15, 16), stb(20), ins("d", 25, 26))
    it.run("r2")
    check(it, ins("a", 10, 11), ins("b", 12, 13), ins("c", 15, 16), stb(20), ins("d", 25, 26))


def test_e6b_r0_holds_a_joiner_and_does_not_drop_it() -> None:
    """Else: 25 is lost."""
    it = lane("R0")
    it.feed("r1", ins("a", 10, 11))
    it.feed("r2", hello(1, 20), ins("d", 25, 26))
    it.feed("r1", stb(20))
    it.detach("r1")
    it.feed("r2", ins("e", 27, 28))
    check(it, ins("a", 10, 11), stb(20), ins("d", 25, 26), ins("e", 27, 28))


def test_e7_joins_at_is_stored() -> None:
    """Else r2 leads: adj(A,12,18->12)."""
    it = lane()
    it.feed("r2", hello(1, 20))
    it.commit()
    it.feed("r1", ins("A", 12, 18))
    it.feed("r2", ins("B", 25, 40))
    it.commit()
    it.crash()
    it.feed("r2", stb(26))
    check(it, ins("A", 12, 18), ins("B", 25, 40))
    it.feed("r1", stb(20))
    check(it, ins("A", 12, 18), ins("B", 25, 40), stb(20), stb(26))


def e8() -> MemoryLane:
    """Return the lane of E8 and E18 as it is committed."""
    it = lane()
    it.feed("r2", hello(1, 20), ins("A", 6, 20), ins("B", 25, 40), stb(INF))
    it.feed("r1", ins("A", 6, 20))
    it.commit()
    return it


def test_e8_an_input_that_is_being_refed_does_not_lead() -> None:
    """Else, joined by ms = 22 and leading without entries: adj(B,25,40->25)."""
    it = e8()
    it.crash(refeed=["r1"])
    it.feed("r1", stb(22))
    assert it.output[-1] == stb(22)
    it.refeed("r2")
    check(it, ins("A", 6, 20), ins("B", 25, 40), stb(22), stb(INF))


def test_e9_the_safe_point_is_by_nodes_not_by_what_was_put_out() -> None:
    """Else A is unknown and lost."""
    it = lane(policy="half_frozen")
    it.feed("r1", ins("A", 6, 20))
    it.feed("r2", ins("A", 6, 20))
    it.commit()
    it.crash()
    it.feed("r1", stb(10))
    check(it, ins("A", 6, 20), stb(10))


def test_e10a_r4_compares_live_ends_only_after_a_recovery() -> None:
    """Else: ins(A,2,5) after stable(10)."""
    it = lane("R4")
    it.feed("r1", ins("A", 2, 5), ins("A", 2, 50), stb(10))
    it.commit()
    it.crash()
    it.feed("r1", stb(20))
    check(it, ins("A", 2, 5), ins("A", 2, 50), stb(10), stb(20))


def test_e10b_r4_compares_live_ends_only_with_a_late_joiner() -> None:
    """Else: adj(A,2,5->2) after stable(10)."""
    it = lane("R4")
    it.feed("r1", ins("A", 2, 5), ins("A", 2, 50), stb(10))
    it.feed("r2", hello(1, 8), ins("A", 2, 50), stb(20))
    check(it, ins("A", 2, 5), ins("A", 2, 50), stb(10), stb(20))


def test_e12_an_input_attached_later_is_refed_from_its_start() -> None:
    """Else A and B are removed."""
    it = lane("R3", "r1")
    it.feed("r1", ins("A", 6, INF))
    it.commit()
    it.attach("r2", ins("A", 6, INF), ins("B", 8, 30))
    it.commit()
    it.crash()
    it.feed("r2", stb(20))
    check(it, ins("A", 6, INF), ins("B", 8, 30), stb(20))


def test_e13_an_older_incarnation_is_not_refed() -> None:
    """Else A is there twice."""
    it = lane("R4", "r1")
    it.feed("r1", ins("A", 6, 30), ins("A", 6, 40), stb(1), hello(2), ins("A", 6, 30))
    it.commit()
    it.crash()
    it.feed("r1", ins("A", 6, 40), stb(INF))
    check(it, ins("A", 6, 30), ins("A", 6, 40), stb(1), stb(INF))


def test_e14_refeeding_checks_no_contract() -> None:
    """Else ins(A,6,30), judged by the own stable 15, is a false accusation."""
    it = lane()
    it.feed("r1", ins("A", 6, 30), stb(10), ins("B", 12, 20), stb(15))
    it.commit()
    it.crash()
    check(it, ins("A", 6, 30), stb(10), ins("B", 12, 20), stb(15))


class TwoProcesses:
    """E15 as far as that the first process has A committed and B in an open transaction."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.config = LaneConfig(merge="m", algorithm="R3")
        self.wanted = {"r1": Attachment(attachment="r1/1", definition=InputDefinition(topic="r1"))}
        self.broker.topics["r1"] = Log()
        self.first = Owner.take_over(self.broker, self.config, self.wanted)
        self.first_refused = False
        self.say(self.first, ins("A", 6, 30))
        self.first.commit()
        self.say(self.first, ins("B", 7, 31))
        assert self.first.prepare() is not None
        assert self.merged == [ins("A", 6, 30)]

    @property
    def merged(self) -> list[Element]:
        """What is committed."""
        return elements_of(self.broker.merged.read(0)[1])

    def say(self, owner: Owner, element: Element) -> None:
        """Let r1 say something, and a process take all there is."""
        self.broker.topics["r1"].append(MemoryLane.wire(element))
        while owner.poll({"r1": 9}):
            pass

    def commit_first(self) -> None:
        """Let the first process try to commit."""
        try:
            self.first.commit()
        except Refused:
            self.first_refused = True

    def go_on(self, second: Owner) -> list[Element]:
        """Let the second process go on, and return what is committed in the end."""
        self.say(second, stb(40))
        second.commit()
        return self.merged


def test_e15_whoever_takes_over_fences_first_and_then_reads() -> None:
    """Else, as the first process commits between the two: ins(B,7,31) twice."""
    it = TwoProcesses()
    second = Owner.take_over(it.broker, it.config, it.wanted, meanwhile=it.commit_first)
    assert it.go_on(second) == [ins("A", 6, 30), ins("B", 7, 31), stb(40)]
    assert it.first_refused


def test_e15_whoever_reads_first_puts_out_again_what_is_committed_before_it_fences() -> None:
    """The mistake itself."""
    it = TwoProcesses()
    read = recover(it.broker, it.config, it.wanted)
    it.commit_first()
    second = Owner(it.broker, it.broker.fence(), read)
    second.follow(it.wanted)
    assert it.go_on(second) == [ins("A", 6, 30), ins("B", 7, 31), ins("B", 7, 31), stb(40)]
    assert not it.first_refused


def test_e16_a_joiners_elements_count_before_it_is_joined() -> None:
    """Else: adj(A,22,30->22)."""
    it = lane()
    it.feed("r2", hello(1, 20), ins("A", 22, 30))
    it.feed("r1", ins("A", 22, 30), stb(20))
    it.detach("r1")
    it.feed("r2", stb(25))
    check(it, ins("A", 22, 30), stb(20), stb(25))


def test_e17_a_joiners_stable_is_remembered() -> None:
    """Else stuck at 20."""
    it = lane()
    it.feed("r2", hello(1, 20), ins("A", 6, 30), stb(INF))
    it.feed("r1", ins("A", 6, 30), stb(20))
    check(it, ins("A", 6, 30), stb(20), stb(INF))


def test_e18_the_refeed_cursor_is_not_committed_as_the_position() -> None:
    """Else, with P(r2) = 2 and own stable inf: adj(B,25,40->25)."""
    it = e8()
    it.crash(refeed=["r1"])
    it.refeed("r2", upto=2)
    it.commit()
    it.crash(refeed=["r1"])
    it.refeed("r2", upto=2)
    it.feed("r1", stb(22))
    assert it.output[-1] == stb(22)
    it.refeed("r2")
    check(it, ins("A", 6, 20), ins("B", 25, 40), stb(22), stb(INF))


def test_e19_refeeding_is_silent_under_eager() -> None:
    """Else: adj(29->40) adj(40->29) again."""
    it = lane(policy="eager")
    it.feed("r1", ins("A", 6, 20), adj("A", 6, 20, 40), adj("A", 6, 40, 29))
    it.commit()
    before = list(it.merged)
    it.crash()
    check(it, *before)


def test_e20_an_adjust_of_a_dead_event_in_the_suffix_is_ignored() -> None:
    """Else recovery fails."""
    it = lane()
    it.feed("r1", ins("A", 1, 20))
    it.commit()
    it.feed("r1", ins("B", 5, 100))
    it.commit()
    it.feed("r1", adj("A", 1, 20, 15), stb(30))
    it.commit()
    it.crash()
    it.feed("r1", stb(40))
    check(it, ins("A", 1, 20), ins("B", 5, 100), adj("A", 1, 20, 15), stb(30), stb(40))


def test_e21_joined_is_shown_from_the_committed_state_only() -> None:
    """Else r1 is detached too early and A's fate is unknown to all that remain."""
    it = lane()
    it.feed("r1", ins("A", 12, 18))
    it.commit()
    it.feed("r2", hello(1, 20), ins("B", 25, 40), stb(INF))
    it.commit()
    it.feed("r1", stb(20))
    assert not it.joined("r2")
    it.crash()
    assert not it.joined("r2")
    it.run("r1")
    it.commit()
    assert it.joined("r2")


def test_e22_an_aborted_transaction_is_a_crash() -> None:
    """Else, with the memory kept: stable(10) without A."""
    it = lane()
    it.commit()
    it.feed("r1", ins("A", 6, 20))
    it.crash()
    it.feed("r1", stb(10))
    check(it, ins("A", 6, 20), stb(10))


def test_e24_r0_drops_an_insert_below_its_own_stable() -> None:
    """Else: ins(x,7,8) after stable(10)."""
    it = lane("R0")
    it.feed("r1", ins("a", 5, 6), stb(10))
    it.feed("r2", ins("x", 7, 8))
    check(it, ins("a", 5, 6), stb(10))
    assert it.lane.inputs["r2"].dropped == {"late_insert": 1}


def test_e25_nodes_made_during_a_refeed_carry_the_refeed_cursor() -> None:
    """Else r2's entry is lost in the second crash, and N with it."""
    it = lane(policy="half_frozen")
    it.feed("r2", ins("N", 6, 20))
    it.commit()
    it.crash(refeed=["r1"])
    it.feed("r1", ins("N", 6, 20))
    it.refeed("r2")
    it.commit()
    it.crash()
    it.feed("r2", stb(10))
    check(it, ins("N", 6, 20), stb(10))


def test_j1_a_stream_that_has_not_joined_does_not_lead() -> None:
    """The merged stable is 15 < 20: the lane stalls, and nothing is wrong."""
    it = lane()
    it.feed("r1", ins("X", 12, 18), stb(15))
    it.feed("r2", hello(1, 20), stb(30))
    it.detach("r1")
    check(it, ins("X", 12, 18), stb(15))


def test_j2_a_joins_at_that_is_one_too_small_is_reported_and_makes_nothing_illegal() -> None:
    """Window 10, t0 = 100: X ends at J = 109 and is alive at ms = 109. J = 110 is right."""
    it = lane()
    it.feed("r1", ins("X", 99, 109), ins("Y", 105, 115), stb(109))
    it.feed("r2", hello(1, 109), ins("Y", 105, 115), stb(112))
    it.commit()
    assert it.merged == [ins("X", 99, 109), ins("Y", 105, 115), stb(109), stb(112)]
    assert [sample.claims for sample in it.lane.notes.samples] == [{"r1": "alive at 109", "r2": "gone"}]

    right = lane()
    right.feed("r1", ins("X", 99, 109), ins("Y", 105, 115), stb(109))
    right.feed("r2", hello(1, 110), ins("Y", 105, 115), stb(112))
    check(right, ins("X", 99, 109), ins("Y", 105, 115), stb(109))


def test_j3_equal_snapshots_are_not_enough_to_join() -> None:
    """With J = T the event (cnt5,105,150) stays for ever; with J = T + longest lifetime + 1 r2 waits."""
    it = lane()
    it.feed("r1", ins("cnt5", 105, 150), stb(110))
    it.detach("r1")
    it.feed("r2", hello(1, 109), ins("cnt4", 105, 109), ins("cnt5", 109, 115), stb(120))
    wrong = reconstitute(it.output)
    assert wrong.snapshot(117) == {"cnt5": 1}  # true is: nothing

    right = lane()
    right.feed("r1", ins("cnt5", 105, 150), stb(110))
    right.feed("r2", hello(1, 109 + 46), ins("cnt4", 105, 109), ins("cnt5", 109, 115), stb(120))
    right.feed("r1", adj("cnt5", 105, 150, 115), stb(160))
    check(
        right,
        ins("cnt5", 105, 150),
        stb(110),
        adj("cnt5", 105, 150, 115),
        stb(160),
    )


def test_j4_a_merge_whose_first_replica_started_cold_begins_at_its_origin() -> None:
    """Without `origin` it never begins."""
    for origin, expected in ((MINUS_INFINITY, []), (1000, [stb(2000)])):
        it = lane("R3", "r1", origin=origin)
        it.feed("r1", hello(1, 1000), ins("A", 1005, 1010), stb(2000))
        check(it, ins("A", 1005, 1010), *expected)


def test_j5_no_stable_below_the_origin_is_taken() -> None:
    """Else X, which is junk, is half frozen and stays (2,50) for ever."""
    it = lane(origin=20)
    it.feed("r1", hello(1, 20))
    it.feed("r2", hello(1, 20))
    it.feed("r1", ins("X", 2, 50), stb(5))
    it.detach("r1")
    it.feed("r2", ins("B", 18, 30), stb(25))
    check(it, ins("X", 2, 50), ins("B", 18, 30), adj("X", 2, 50, 2), stb(25))


def test_f1_a_skip_beyond_the_merged_stable_makes_the_stream_wait() -> None:
    """Without the skip record: adj(B,10,14->10) stable(30), and B is lost."""
    it = lane()
    it.feed("r1", ins("A", 5, 8), stb(6), ins("B", 10, 14))
    it.feed("r2", skip(20), ins("C", 20, 40), stb(30))
    check(it, ins("A", 5, 8), stb(6), ins("B", 10, 14), ins("C", 20, 40))


def test_f2_a_skip_within_the_merged_stable_changes_nothing() -> None:
    it = lane()
    it.feed("r1", ins("A", 5, 8), ins("B", 10, 25), stb(20))
    it.detach("r1")
    it.feed("r2", skip(20), ins("B", 10, 22), ins("C", 20, 40), stb(30))
    check(it, ins("A", 5, 8), ins("B", 10, 25), stb(20), ins("C", 20, 40), adj("B", 10, 25, 22), stb(30))


def test_f3_a_new_merge_over_the_same_topics_needs_the_skip_record() -> None:
    """Without it A is lost."""
    it = lane()
    it.feed("r2", skip(20), ins("B", 10, 22), ins("C", 20, 40), stb(30))
    it.feed("r1", ins("A", 5, 8), ins("B", 10, 25), stb(20))
    check(it, ins("B", 10, 22), ins("C", 20, 40), ins("A", 5, 8), stb(20), stb(30))


def test_f4_r4_needs_what_was_skipped_to_be_closed() -> None:
    """Left open: adj(A,2,70->65), end {5,65}. Closed before the skip: {5,80}."""
    it = lane("R4")
    it.feed("r1", ins("A", 2, 5), ins("A", 2, 70), stb(20))
    it.detach("r1")
    it.feed("r2", ins("A", 2, 65), ins("A", 2, 80), adj("A", 2, 65, 2), skip(20), stb(90))
    check(it, ins("A", 2, 5), ins("A", 2, 70), stb(20), adj("A", 2, 70, 80), stb(90))


def test_f5_a_row_that_may_reach_several_lanes_is_dropped_below_the_minimum_of_them_only() -> None:
    """Lane 0 is at 100, lane 1 at 10, and r1 dies. By lane 0's word alone the rows of (B,20,60) in lane 1 are lost."""
    lanes = [MemoryLane("R3", partition=number, lag_ms=5) for number in range(2)]
    told = Told("r2", lanes=2)
    for it, reached in zip(lanes, (100, 10), strict=True):
        it.attach("r1", stb(reached))
        it.attach("r2", stb(1))
        it.commit()
        for signal in it.signals:
            told.hear(signal)
        it.detach("r1")
    assert [signal.before for it in lanes for signal in it.signals] == [100, 10]
    assert told.before == 10
    lanes[1].feed("r2", skip(told.before), ins("B", 20, 60), stb(70))
    check(lanes[1], stb(10), ins("B", 20, 60), stb(70))


def test_f6_a_signal_is_written_with_the_stable_that_it_rests_on_or_not_at_all() -> None:
    """Sent at once, r2 would have skipped (10,50), which nobody has any more once r1 is detached."""
    it = MemoryLane("R3", lag_ms=5)
    it.attach("r1", stb(10))
    it.attach("r2", stb(5))
    it.commit()
    it.feed("r1", ins("A", 10, 50), stb(50))
    assert it.prepare() is not None
    it.crash()
    it.detach("r1")
    it.commit()
    assert it.signals == []
    it.feed("r2", ins("A", 10, 50), stb(60))
    check(it, stb(10), ins("A", 10, 50), stb(60))


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2", "R3", "R4"])
def test_with_no_input_left_the_output_stalls_and_goes_on_when_one_comes_back(algorithm: str) -> None:
    it = lane(algorithm, "r1")
    it.feed("r1", ins("A", 5, 8), stb(6))
    it.detach("r1")
    it.commit()
    assert it.merged == [ins("A", 5, 8), stb(6)]
    it.attach("r9", ins("A", 5, 8), ins("B", 7, 9), stb(20))
    check(it, ins("A", 5, 8), stb(6), ins("B", 7, 9), stb(20))
