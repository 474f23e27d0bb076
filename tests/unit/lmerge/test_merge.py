"""The interface that all algorithms share, and what each does with inputs that break their contract."""

from collections.abc import Hashable

import msgspec
import pytest

from lmerge import (
    MINUS_INFINITY,
    TDB,
    Divergence,
    Dropped,
    DropReason,
    Element,
    Event,
    Fact,
    Held,
    Insert,
    Joined,
    MergeState,
    NodeState,
    Rule,
    StreamState,
    UsageError,
    Violation,
    create,
    reconstitute,
)
from tests.support.streams import INF, adj, hello, ins, merge_of, skip, stb

ALL = ["R0", "R1", "R2", "R3", "R4"]


@pytest.mark.parametrize("algorithm", ALL)
def test_streams_are_attached_once_and_detached_when_attached(algorithm: str) -> None:
    merge = merge_of(algorithm)
    with pytest.raises(UsageError, match="'r1' is attached already"):
        merge.attach("r1")
    with pytest.raises(UsageError, match="'r9' is not attached"):
        merge.detach("r9")
    with pytest.raises(UsageError, match="'r9' is not attached"):
        merge.process("r9", [])
    merge.detach("r1")
    with pytest.raises(UsageError, match="'r1' is not attached"):
        merge.consumed("r1")
    merge.attach("r1", joins_at=50)
    assert merge.consumed("r1") == 0
    assert not merge.is_joined("r1")
    assert merge.is_joined("r2")
    assert merge.origin == MINUS_INFINITY


@pytest.mark.parametrize("algorithm", ALL)
def test_an_element_that_its_own_stable_rules_out_stops_its_stream_and_nothing_else(algorithm: str) -> None:
    merge = merge_of(algorithm)
    output = merge.process("r1", [ins("A", 5, 8), stb(10), ins("B", 9, 12), ins("C", 20, 30)])
    assert output == [ins("A", 5, 8), stb(10)]
    assert merge.consumed("r1") == 2
    assert merge.take_facts() == [
        Violation(Rule.STABLE, "r1", ins("B", 9, 12), "Insert('B', 9, 12) comes after Stable(10)")
    ]
    assert merge.process("r1", [stb(9)]) == []
    assert [fact.rule for fact in merge.take_facts() if isinstance(fact, Violation)] == [Rule.STABLE]
    assert merge.process("r2", [ins("C", 20, 30), stb(25)]) == [ins("C", 20, 30), stb(25)]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
@pytest.mark.parametrize("broken", [adj("A", 5, 9, 20), adj("A", 5, 20, 9), adj("A", 5, 20, 5)])
def test_an_adjust_below_its_own_stable_is_a_violation(algorithm: str, broken: Element) -> None:
    merge = merge_of(algorithm)
    merge.process("r1", [ins("A", 5, 20), stb(10), broken])
    assert [(fact.rule, fact.element) for fact in merge.take_facts() if isinstance(fact, Violation)] == [
        (Rule.STABLE, broken)
    ]


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2"])
def test_insert_only_algorithms_report_an_adjust(algorithm: str) -> None:
    merge = merge_of(algorithm)
    assert merge.process("r1", [ins("A", 5, 8), adj("A", 5, 8, 9)]) == [ins("A", 5, 8)]
    (fact,) = merge.take_facts()
    assert isinstance(fact, Violation)
    assert (fact.rule, fact.stream_id, fact.element) == (Rule.INSERT_ONLY, "r1", adj("A", 5, 8, 9))
    assert str(fact).startswith("r1: an adjust in a stream declared insert-only: Adjust('A', 5, 8, 9)")


@pytest.mark.parametrize(
    ("algorithm", "stream", "legal"),
    [
        ("R0", [ins("A", 5, 8), ins("B", 5, 9)], False),
        ("R0", [ins("A", 5, 8), ins("B", 4, 9)], False),
        ("R1", [ins("A", 5, 8), ins("A", 5, 8)], True),
        ("R1", [ins("A", 5, 8), ins("B", 4, 9)], False),
        ("R2", [ins("A", 5, 8), ins("B", 5, 9)], True),
        ("R2", [ins("A", 5, 8), ins("B", 4, 9)], False),
    ],
)
def test_a_stream_that_breaks_the_declared_order_is_reported(
    algorithm: str, stream: list[Element], legal: bool
) -> None:
    merge = merge_of(algorithm)
    output = merge.process("r1", stream)
    broken = [fact for fact in merge.take_facts() if isinstance(fact, Violation)]
    assert output == (stream if legal else stream[:1])
    assert [(fact.rule, fact.element) for fact in broken] == ([] if legal else [(Rule.ORDERED, stream[1])])


@pytest.mark.parametrize(("algorithm", "legal"), [("R1", True), ("R2", False), ("R3", False), ("R4", True)])
def test_a_second_event_with_the_same_payload_and_vs_breaks_the_key_of_r2_and_r3(algorithm: str, legal: bool) -> None:
    merge = merge_of(algorithm)
    twice: list[Element] = [ins("A", 5, 8), ins("A", 5, 8)]
    assert merge.process("r1", twice) == (twice if legal else twice[:1])
    broken = [fact for fact in merge.take_facts() if isinstance(fact, Violation)]
    assert [fact.rule for fact in broken] == ([] if legal else [Rule.DUPLICATE])
    assert merge.process("r2", [ins("A", 5, 8)]) == []


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_an_adjust_of_an_event_that_does_not_exist_is_reported_where_it_can_be_known(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.process("r1", [ins("A", 5, 8), ins("B", 15, 30), stb(10)])
    merge.process("r2", [adj("A", 5, 8, 9)])  # A is settled: r2 may have had it
    assert merge.take_facts() == [Dropped("r2", DropReason.FROZEN, 1)]
    for unknown in (adj("X", 20, 30, 25), adj("B", 15, 30, 25)):  # not there at all; not there in r2
        merge.process("r2", [unknown])
        assert [(f.rule, f.element) for f in merge.take_facts() if isinstance(f, Violation)] == [
            (Rule.NO_SUCH_EVENT, unknown)
        ]
    merge.process("r1", [adj("B", 15, 31, 25)])  # with another end than it has
    assert [fact.rule for fact in merge.take_facts() if isinstance(fact, Violation)] == [Rule.NO_SUCH_EVENT]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_what_comes_after_its_event_was_settled_is_dropped_and_counted(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.process("r1", [ins("A", 5, 8), stb(10)])
    assert merge.process("r2", [ins("A", 5, 8), ins("X", 6, 9), stb(10)]) == []
    assert Dropped("r2", DropReason.FROZEN, 2) in merge.take_facts()
    assert merge.stats().dropped == {DropReason.FROZEN: 2}


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_an_event_that_the_leading_stream_lacks_is_taken_back_and_counted_as_missing(algorithm: str) -> None:
    merge = merge_of(algorithm)
    assert merge.process("r1", [ins("A", 5, 8), ins("B", 6, 20)]) == [ins("A", 5, 8), ins("B", 6, 20)]
    assert merge.process("r2", [ins("B", 6, 20), stb(10)]) == [adj("A", 5, 8, 5), stb(10)]
    assert merge.stats().missing == 1
    assert merge.stats().leader == "r2"


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_half_frozen_event_that_a_later_leader_lacks_is_kept(algorithm: str) -> None:
    """Trap 6: removing it would break the output's own promise."""
    merge = merge_of(algorithm)
    output = merge.process("r1", [ins("A", 5, 20), stb(10)])
    output += merge.process("r2", [stb(15), stb(30)])
    assert output == [ins("A", 5, 20), stb(10), stb(15), stb(30)]
    assert merge.stats().kept == 1
    assert merge.stats().divergences == 1
    assert merge.stats().nodes == 0
    reported = [fact for fact in merge.take_facts() if isinstance(fact, Divergence)]
    assert [(fact.payload, fact.vs, set(fact.claims)) for fact in reported] == [("A", 5, {"r1", "r2"})]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_half_frozen_event_that_a_later_leader_ended_too_early_is_kept(algorithm: str) -> None:
    merge = merge_of(algorithm)
    output = merge.process("r1", [ins("A", 5, 40), stb(15)])
    output += merge.process("r2", [ins("A", 5, 12), stb(20)])
    assert output == [ins("A", 5, 40), stb(15), stb(20)]
    assert merge.process("r1", [adj("A", 5, 40, 30), stb(50)]) == [adj("A", 5, 40, 30), stb(50)]
    assert any(isinstance(fact, Divergence) for fact in merge.take_facts())
    reconstitute([*output, adj("A", 5, 40, 30), stb(50)])


def test_r4_keeps_a_half_frozen_event_that_it_has_too_few_of() -> None:
    merge = merge_of("R4")
    output = merge.process("r1", [ins("A", 5, 40), stb(15)])
    output += merge.process("r2", [ins("A", 5, 20), ins("A", 5, 40), stb(30)])
    reconstitute(output)
    assert output == [ins("A", 5, 40), stb(15), stb(30)]
    assert merge.stats().kept == 1


def test_r4_makes_counts_agree_when_a_key_is_half_frozen() -> None:
    """IV-E, AdjustOutputCount and AdjustOutput: r2 has three events of the key, r1 had two others."""
    merge = merge_of("R4")
    output = merge.process("r1", [ins("A", 5, 7), ins("A", 5, 50)])
    output += merge.process("r2", [ins("A", 5, 9), ins("A", 5, 9), ins("A", 5, 60)])
    assert output == [ins("A", 5, 7), ins("A", 5, 50), ins("A", 5, 60)]
    output += merge.process("r2", [stb(20)])
    assert output[3:] == [adj("A", 5, 7, 9), adj("A", 5, 50, 9), stb(20)]
    output += merge.process("r2", [stb(INF)])
    assert reconstitute(output) == TDB([Event("A", 5, 9), Event("A", 5, 9), Event("A", 5, 60)])


def test_r4_puts_out_an_event_that_only_the_leading_stream_has_one_more_of() -> None:
    """r2 had a second one taken back before r1 led: counts fell behind."""
    merge = merge_of("R4")
    output = merge.process("r2", [ins("A", 5, 30), adj("A", 5, 30, 5)])
    output += merge.process("r1", [ins("A", 5, 30), ins("A", 5, 31)])
    output += merge.process("r1", [stb(10)])
    assert reconstitute(output) == TDB([Event("A", 5, 30), Event("A", 5, 31)])


@pytest.mark.parametrize("algorithm", ALL)
def test_a_joiner_does_not_lead_before_the_output_has_reached_its_start(algorithm: str) -> None:
    merge = merge_of(algorithm)
    output = merge.process("r2", [hello(1, 20), stb(20), ins("B", 25, 40), stb(30)])
    facts = merge.take_facts()
    assert not merge.is_joined("r2")
    assert not any(isinstance(element, type(stb(1))) for element in output)
    held = [fact for fact in facts if isinstance(fact, Held)]
    assert held == ([] if algorithm in ("R3", "R4") else [Held("r2", ins("B", 25, 40))])
    output += merge.process("r1", [ins("A", 19, 22), stb(20)])
    assert [fact.stream_id for fact in merge.take_facts() if isinstance(fact, Joined)] == ["r2"]
    rest: list[Element] = [] if algorithm in ("R3", "R4") else [ins("B", 25, 40), stb(30)]
    output += merge.process("r2", rest)
    assert reconstitute(output) == TDB([Event("A", 19, 22), Event("B", 25, 40)])
    assert output[-1] == stb(30)


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2"])
def test_a_joiners_elements_below_its_start_are_skipped_by_r0_to_r2(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.process("r2", [hello(1, 20), ins("junk", 12, 13), stb(15)])
    assert Dropped("r2", DropReason.BEFORE_JOIN, 1) in merge.take_facts()
    assert merge.max_stable == MINUS_INFINITY


def test_r0_to_r2_put_out_nothing_below_the_origin() -> None:
    merge = create("R0", origin=20)
    merge.attach("r1", joins_at=20)
    output = merge.process("r1", [ins("x", 15, 16), stb(17), ins("A", 21, 22), stb(22)])
    assert output == [ins("A", 21, 22), stb(22)]


@pytest.mark.parametrize("algorithm", ALL)
def test_a_stream_that_leads_and_begins_anew_no_longer_leads(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.process("r1", [ins("A", 5, 8), stb(10)])
    assert merge.stats().leader == "r1"
    merge.process("r1", [hello(2, 5), ins("A", 5, 8)])
    assert merge.stats().leader is None
    assert merge.is_joined("r1")


def test_a_skip_beyond_the_output_makes_a_stream_wait_again() -> None:
    merge = merge_of("R3")
    merge.process("r1", [stb(10), skip(10)])
    assert merge.is_joined("r1")
    merge.process("r1", [skip(20)])
    assert not merge.is_joined("r1")
    assert merge.process("r1", [stb(30)]) == []


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_what_is_dead_does_not_come_back_in_a_recovery(algorithm: str) -> None:
    """The suffix of the merged topic, and that of an input, may hold events that are settled."""
    merge = create(algorithm)
    state = MergeState(
        max_stable=10,
        streams={"r1": StreamState(own_stable=10)},
        nodes=(NodeState(2, "dead", (5,)), NodeState(3, "A", (5, 50) if algorithm == "R4" else (50,))),
    )
    if algorithm == "R3":
        state = msgspec.structs.replace(state, nodes=state.nodes[1:])
    merge.load(state)
    dead: list[Element] = [ins("dead", 2, 5), adj("dead", 2, 5, 6), adj("unknown", 3, 60, 50)]
    live: list[Element] = [ins("A", 3, 60), adj("A", 3, 60, 50), ins("not put out", 20, 30)]
    merge.refeed("r1", [*dead, *live, stb(9)], done=True)
    assert merge.stats().nodes == 2
    output = merge.process("r1", [adj("A", 3, 50, 40), stb(70)])
    assert output == [ins("not put out", 20, 30), adj("A", 3, 50, 40), stb(70)]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_attaching_a_stream_does_not_swallow_the_stable_of_one_that_was_refed(algorithm: str) -> None:
    """E17 after a recovery: r2 may lead once it is re-fed, and has said more than the output has."""
    merge = create(algorithm)
    kept: dict[Hashable, StreamState] = {
        "r1": StreamState(own_stable=22),
        "r2": StreamState(joins_at=20, own_stable=INF),
    }
    merge.load(MergeState(max_stable=22, streams=kept))
    for stream in ("r1", "r2"):
        merge.refeed(stream, [], done=True)
    merge.attach("r3")
    assert merge.process("r1", []) == [stb(INF)]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_stream_that_left_does_not_hide_a_divergence(algorithm: str) -> None:
    merge = merge_of(algorithm, "r1", "r2", "r3")
    for stream in ("r1", "r2"):
        merge.process(stream, [ins("A", 6, 20)])
    merge.process("r1", [stb(10)])
    merge.process("r3", [stb(12)])
    merge.detach("r1")
    merge.take_facts()
    merge.process("r2", [stb(25)])
    assert [fact.vs for fact in merge.take_facts() if isinstance(fact, Divergence)] == [6]


def test_r3_reports_what_a_laggard_makes_final_and_the_output_knows_better() -> None:
    """The event lives on in the output, so no leading stable will ever touch it."""
    merge = merge_of("R3")
    merge.process("r1", [ins("A", 6, INF), stb(30)])
    merge.process("r2", [ins("A", 6, 12), stb(15)])
    reported = [fact for fact in merge.take_facts() if isinstance(fact, Divergence)]
    assert [fact.claims for fact in reported] == [{"r1": "alive at 30", "r2": "ends at 12"}]
    merge.process("r2", [stb(16)])
    assert merge.stats().divergences == 1


def test_r4_does_not_keep_what_is_final() -> None:
    """A key with one open event and many that have ended holds the open one only, in every stream."""
    merge = merge_of("R4")
    for stream in ("r1", "r2"):
        merge.process(stream, [ins("A", 5, 50_000), *(ins("A", 5, 6 + n) for n in range(500)), stb(1000)])
    merge.process("r1", [stb(1001)])
    (node,) = merge._index.nodes.values()  # type: ignore[attr-defined]
    assert node.out == 50_000
    assert all(ends == 50_000 for ends in node.claims().values())
    assert merge.process("r2", [adj("A", 5, 50_000, 2000), stb(3000)]) == [adj("A", 5, 50_000, 2000), stb(3000)]


def test_r4_follows_a_laggard_whose_events_end_below_what_is_kept() -> None:
    """r2 is behind: it may still move an end that the output has settled, to one that lives."""
    merge = merge_of("R4")
    output = merge.process("r1", [ins("A", 5, 8), ins("A", 5, 60), stb(20)])
    output += merge.process("r2", [ins("A", 5, 7), ins("A", 5, 9), adj("A", 5, 9, 60), adj("A", 5, 7, 8), stb(30)])
    output += merge.process("r2", [adj("A", 5, 60, 40), stb(INF)])
    assert not [fact for fact in merge.take_facts() if isinstance(fact, Violation | Divergence)]
    assert reconstitute(output) == TDB([Event("A", 5, 8), Event("A", 5, 40)])


def test_a_state_is_loaded_into_a_new_merge_only() -> None:
    merge = merge_of("R3")
    with pytest.raises(UsageError, match="a new merge only"):
        merge.load(MergeState())


def test_batch_numbers_never_fall() -> None:
    merge = merge_of("R3")
    merge.begin_batch(5)
    with pytest.raises(UsageError, match="batch 3 comes after batch 5"):
        merge.begin_batch(3)


def test_facts_that_nobody_takes_are_counted_and_not_kept() -> None:
    merge = merge_of("R3")
    merge.process("r1", [stb(10)])
    for _ in range(10_001):
        merge.process("r2", [ins("A", 5, 8)])
    assert len(merge.take_facts()) == 10_000
    assert merge.stats().facts_lost == 1


@pytest.mark.parametrize("algorithm", ["R0", "R2"])
def test_a_stream_is_held_to_its_order_after_a_recovery(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.process("r1", [ins("A", 10, 12)])
    successor = create(algorithm)
    successor.load(merge.dump())
    successor.process("r1", [ins("B", 7, 9)])
    assert [fact.rule for fact in successor.take_facts() if isinstance(fact, Violation)] == [Rule.ORDERED]


def test_a_leader_that_has_to_wait_no_longer_leads() -> None:
    merge = merge_of("R3")
    merge.process("r1", [stb(10), skip(20)])
    assert merge.stats().leader is None


@pytest.mark.parametrize("algorithm", ALL)
def test_stats_count_what_came_and_went(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.process("r1", [ins("A", 5, 8), stb(6)])
    merge.process("r2", [ins("A", 5, 8), stb(6)])
    stats = merge.stats()
    assert (stats.inserts_in, stats.adjusts_in, stats.stables_in) == (2, 0, 2)
    assert (stats.inserts_out, stats.adjusts_out, stats.stables_out) == (1, 0, 1)
    assert stats.nodes == (0 if algorithm in ("R0", "R1") else 1)


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2"])
def test_ordered_algorithms_need_no_refeeding(algorithm: str) -> None:
    merge = merge_of(algorithm)
    merge.begin_batch(7)
    merge.process("r1", [ins("A", 5, 8)])
    assert merge.oldest_batch is None
    successor = create(algorithm)
    successor.load(merge.dump())
    successor.refeed("r1", [ins("A", 5, 8)], done=True)
    assert successor.process("r2", [ins("A", 5, 8), ins("B", 6, 9)]) == [ins("B", 6, 9)]


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_dump_holds_all_that_a_successor_needs_beside_the_inputs(algorithm: str) -> None:
    said: list[Element] = [ins("A", 5, 30), ins("B", 6, 40), stb(10), ins("C", 12, 50)]
    merge = merge_of(algorithm)
    merge.process("r1", said)
    successor = create(algorithm)
    successor.load(merge.dump())
    for name, again in (("r1", said), ("r2", list[Element]())):
        successor.refeed(name, again, done=True)
    rest: list[Element] = [adj("B", 6, 40, 35), stb(60)]
    assert successor.process("r1", rest) == merge.process("r1", rest) == [adj("B", 6, 40, 35), stb(60)]


def test_r4_finds_a_laggards_end_that_the_output_has_left() -> None:
    """The leader moves an event from 50 to 12: the laggard's 50 is indexed by itself from then on."""
    merge = merge_of("R4")
    for name in ("r1", "r2"):
        merge.process(name, [ins("A", 2, 50), ins("A", 2, 60), stb(10)])
    assert merge.process("r1", [adj("A", 2, 50, 12), stb(20)]) == [adj("A", 2, 50, 12), stb(20)]
    merge._index.check_invariants()  # type: ignore[attr-defined]
    assert merge.process("r2", [adj("A", 2, 50, 12), stb(30)]) == [stb(30)]
    assert not [fact for fact in merge.take_facts() if isinstance(fact, Divergence | Violation)]


def test_the_oldest_batch_is_that_of_the_oldest_live_node() -> None:
    for algorithm in ("R3", "R4"):
        merge = merge_of(algorithm)
        assert merge.oldest_batch is None
        for number, element in enumerate([ins("A", 5, 8), ins("B", 6, 30), ins("C", 7, 9)], 1):
            merge.begin_batch(number)
            merge.process("r1", [element])
        assert merge.oldest_batch == 1
        merge.process("r1", [stb(10)])
        assert merge.oldest_batch == 2
        merge.process("r1", [stb(40)])
        assert merge.oldest_batch is None


def test_facts_are_taken_once() -> None:
    merge = create("R3")
    merge.attach("r1")
    facts: list[Fact] = merge.take_facts()
    assert facts == [Joined("r1", MINUS_INFINITY)]
    assert merge.take_facts() == []


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown algorithm 'R5'"):
        create("R5")


@pytest.mark.parametrize("algorithm", ["R0", "R3"])
def test_what_is_no_kind_of_element_is_refused(algorithm: str) -> None:
    """Not taken for an insert by one loop and for something else by another: that would never end."""

    class Own(Insert, frozen=True):
        pass

    with pytest.raises(UsageError, match="Own is no kind of element"):
        merge_of(algorithm).process("r1", [Own("A", 5, 10)])


def test_r4_says_nothing_where_only_what_is_settled_differs() -> None:
    """r2 has an event more, from before it joined, which the output has frozen without it."""
    merge = create("R4")
    merge.attach("r1")
    merge.attach("r2", joins_at=8)
    assert merge.process("r1", [ins("A", 2, 20), stb(3)]) == [ins("A", 2, 20), stb(3)]
    merge.process("r2", [ins("A", 2, 5), ins("A", 2, 20)])
    assert merge.process("r1", [stb(10)])[-1] == stb(10)
    assert merge.process("r2", [stb(30)]) == [stb(30)]
