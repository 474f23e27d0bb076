"""`check_compatible` and `CompatibilityChecker` on literal streams; every case is judged by both."""

from collections.abc import Mapping, Sequence

import pytest

from lmerge.compatibility_checker import CompatibilityChecker
from lmerge.compatible import OUTPUT, Order, check_compatible
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable
from lmerge.errors import UsageError
from lmerge.facts import Rule, StreamId, Violation

Stream = Sequence[Element]


def ins(payload: str, vs: int, ve: int) -> Element:
    return Insert(payload, vs, ve)


def adj(payload: str, vs: int, vold: int, ve: int) -> Element:
    return Adjust(payload, vs, vold, ve)


def stb(vc: int) -> Element:
    return Stable(vc)


def hello(joins_at: int = MINUS_INFINITY, incarnation: int = 1) -> Element:
    return Hello(replica="r", incarnation=incarnation, joins_at=joins_at)


def verdict(
    output: Stream,
    inputs: Mapping[StreamId, Stream] | Sequence[Stream],
    *,
    multiset: bool = False,
    origin: int | None = None,
    order: Order = Order.ANY,
) -> list[str]:
    """Return what is broken, rules and keys, at the first output element that breaks something; both must agree."""
    named: Mapping[StreamId, Stream] = inputs if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    checker = CompatibilityChecker(multiset=multiset, origin=origin, order=order)
    found = [v for stream_id, prefix in named.items() for element in prefix for v in checker.input(stream_id, element)]
    count = len(found)
    for end in range(len(output) + 1):
        found += checker.output(output[end - 1]) if end > 0 else []
        assert found == check_compatible(output[:end], named, multiset=multiset, origin=origin, order=order)
        if len(found) > count:
            break
    return [words(violation) for violation in found]


def replay(*steps: tuple[str, Element | None], origin: int | None = None) -> list[str]:
    """Return what the steps lead to: elements of inputs and of `out` in this order, None for an input that leaves."""
    prefixes: dict[str, list[Element]] = {}
    output: list[Element] = []
    found: list[Violation] = []
    checker = CompatibilityChecker(origin=origin)
    for stream_id, element in steps:
        if element is None:
            checker.leave(stream_id)
        elif stream_id == "out":
            output.append(element)
            found = checker.output(element)
            slow = check_compatible(output, prefixes, origin=origin)
            assert [words(violation) for violation in found] == [words(violation) for violation in slow]
        else:
            prefixes.setdefault(stream_id, []).append(element)
            assert checker.input(stream_id, element) == []
    return [words(violation) for violation in found]


def words(violation: Violation) -> str:
    return f"{violation.rule.name} {violation.detail.split(':')[0]}"


# The example of III-D

I1 = [ins("A", 2, 16), ins("B", 3, 10), ins("C", 4, 18), ins("D", 15, 20), stb(14)]
I2 = [ins("A", 2, 12), ins("B", 3, 10), ins("C", 4, 18), ins("E", 17, 21), stb(11)]


def test_o1_of_the_paper_says_only_what_is_certain_and_is_compatible() -> None:
    assert verdict([ins("A", 2, INFINITY), ins("B", 3, 10), ins("C", 4, INFINITY), stb(11)], [I1, I2]) == []


def test_o2_of_the_paper_says_all_that_was_seen_and_is_compatible() -> None:
    o2 = [ins("A", 2, 16), ins("B", 3, 10), ins("C", 4, 18), ins("D", 15, 20), ins("E", 17, 21), stb(14)]
    assert verdict(o2, [I1, I2]) == []


def test_o3_of_the_paper_is_incompatible_for_its_end_of_a_and_for_its_lack_of_b() -> None:
    o3 = [ins("A", 2, 12), ins("C", 4, 18), ins("D", 15, 20), stb(13)]
    assert verdict(o3, [I1, I2]) == ["C2 ('A', 2)", "C3 ('B', 3)"]


def test_a_violation_names_the_stable_that_caused_it_and_what_every_input_says() -> None:
    (violation,) = check_compatible([stb(13)], {"I1": [ins("B", 3, 10), stb(14)], "I2": [hello(5), stb(2)]})
    assert violation == Violation(Rule.C3, OUTPUT, stb(13), "('B', 3): the output has none; I1 ends at 10")


def test_a_late_joiner_is_described_with_its_join() -> None:
    inputs = {"I1": [ins("B", 3, 10), stb(14)], "I2": [hello(5), ins("B", 3, 10), stb(6)]}
    (violation,) = check_compatible([stb(13)], inputs)
    assert violation.detail.endswith("I1 ends at 10; I2 is alive at 6 (complete from 5 on)")


def test_several_events_of_a_key_are_described_together() -> None:
    output = [ins("A", 1, 3), ins("A", 1, 8), ins("A", 1, 9), stb(5)]
    (violation,) = check_compatible(output, [[stb(5)]], multiset=True)
    assert violation.detail == "('A', 1): the output ends at 3 and is alive at 5, 2 times; 0 has none"


def test_an_output_before_all_inputs_is_told_so() -> None:
    violations = check_compatible([ins("A", 1, 8), stb(5)], [[ins("A", 1, 8)]])
    assert [violation.rule for violation in violations] == [Rule.C1, Rule.C2]
    assert violations[1].detail == "('A', 1): the output is alive at 5; no input has come so far"


# C1


@pytest.mark.parametrize(("stable", "expected"), [(4, []), (7, []), (8, ["C1 Stable(8)"])])
def test_c1_the_output_may_come_as_far_as_the_furthest_input(stable: int, expected: list[str]) -> None:
    assert verdict([stb(stable)], [[stb(3)], [stb(7)]]) == expected


def test_c1_without_any_input_the_output_may_promise_nothing() -> None:
    assert verdict([ins("A", 1, 2)], []) == []
    assert verdict([stb(1)], []) == ["C1 Stable(1)"]
    assert verdict([stb(MINUS_INFINITY + 1)], []) == []  # no event can begin before that instant


def test_c1_a_closed_input_lets_the_output_close() -> None:
    assert verdict([stb(INFINITY)], [[stb(INFINITY)], [stb(2)]]) == []


# C2: what may be in the output


def test_c2_an_unfrozen_event_needs_no_support() -> None:
    assert verdict([ins("Z", 5, 6), stb(5)], [[stb(5)]]) == []


@pytest.mark.parametrize(("stable", "expected"), [(5, []), (9, []), (10, ["C1 Stable(10)", "C2 ('A', 2)"])])
def test_c2_a_half_frozen_event_follows_one_that_is_half_frozen_at_least_as_far(
    stable: int, expected: list[str]
) -> None:
    """The paper prints L_m <= L; it is L <= L_m."""
    assert verdict([ins("A", 2, INFINITY), stb(stable)], [[ins("A", 2, 16), stb(9)]]) == expected


@pytest.mark.parametrize(("stable", "expected"), [(6, []), (7, ["C2 ('A', 2)"])])
def test_c2_a_half_frozen_event_follows_a_fully_frozen_one_whose_end_it_can_still_take(
    stable: int, expected: list[str]
) -> None:
    assert verdict([ins("A", 2, INFINITY), stb(stable)], [[ins("A", 2, 6), stb(9)]]) == expected


def test_c2_a_half_frozen_event_that_no_input_has_is_refused() -> None:
    assert verdict([ins("Z", 2, 20), stb(5)], [[stb(9)], [ins("Z", 2, 20), stb(2)]]) == ["C2 ('Z', 2)"]


@pytest.mark.parametrize(("end", "expected"), [(6, []), (5, ["C2 ('A', 2)"]), (7, ["C2 ('A', 2)"])])
def test_c2_a_fully_frozen_event_needs_the_same_one_in_an_input(end: int, expected: list[str]) -> None:
    assert verdict([ins("A", 2, end), stb(9)], [[ins("A", 2, 6), stb(9)]]) == expected


def test_c2_a_fully_frozen_event_is_not_supported_by_a_half_frozen_one() -> None:
    assert verdict([ins("A", 2, 6), stb(7)], [[ins("A", 2, 9), stb(7)]]) == ["C2 ('A', 2)"]


# C3: what must be in the output


def test_c3_a_fully_frozen_event_may_be_lacking_while_it_can_be_inserted() -> None:
    assert verdict([stb(2)], [[ins("A", 2, 6), stb(9)]]) == []
    assert verdict([stb(3)], [[ins("A", 2, 6), stb(9)]]) == ["C3 ('A', 2)"]


def test_c3_a_fully_frozen_event_must_be_there_half_frozen_and_later_with_its_end() -> None:
    assert verdict([ins("A", 2, 8), stb(6), adj("A", 2, 8, 6), stb(9)], [[ins("A", 2, 6), stb(9)]]) == []
    assert verdict([ins("A", 2, 8), stb(6), adj("A", 2, 8, 7), stb(9)], [[ins("A", 2, 6), stb(9)]]) == ["C2 ('A', 2)"]


def test_c3_a_half_frozen_event_may_be_lacking_while_it_can_be_inserted() -> None:
    assert verdict([stb(2)], [[ins("A", 2, 16), stb(9)]]) == []
    assert verdict([stb(3)], [[ins("A", 2, 16), stb(9)]]) == ["C3 ('A', 2)"]


def test_c3_an_event_that_was_removed_before_the_stable_came_is_lacking() -> None:
    assert verdict([ins("A", 2, 16), adj("A", 2, 16, 2), stb(3)], [[ins("A", 2, 16), stb(9)]]) == ["C3 ('A', 2)"]


def test_c3_an_unfrozen_event_of_an_input_places_no_constraint() -> None:
    assert verdict([stb(9)], [[stb(9)], [ins("A", 2, 16), stb(2)]]) == []


def test_the_output_may_be_ahead_of_a_laggard() -> None:
    laggard = [ins("A", 2, INFINITY), stb(3)]
    leader = [ins("A", 2, 6), ins("B", 4, 5), stb(20)]
    assert verdict([ins("A", 2, 6), ins("B", 4, 5), stb(20)], [laggard, leader]) == []


def test_the_same_event_may_be_judged_more_than_once() -> None:
    inputs = [[ins("A", 2, 30), stb(9), adj("A", 2, 30, 12), stb(20)]]
    output = [ins("A", 2, 10), stb(5), adj("A", 2, 10, 14), stb(9), adj("A", 2, 14, 12), stb(13)]
    assert verdict(output, inputs) == []


# R4

TWICE = [ins("A", 1, 4), ins("A", 1, 4), ins("A", 1, 7), ins("A", 1, 12), stb(9)]


@pytest.mark.parametrize(
    ("ends", "stable", "expected"),
    [
        ([4, 4, 7, 30], 9, []),  # L = L_m: the same fully frozen events, as many half-frozen ones
        ([4, 4, 8, 30], 9, ["C2 ('A', 1)"]),  # a frozen end differs
        ([4, 4, 30, 30], 9, ["C2 ('A', 1)"]),  # too many are half frozen, too few fully frozen
        ([4, 4, 7], 9, ["C3 ('A', 1)"]),  # one is missing
        ([4, 7, 30], 9, ["C3 ('A', 1)"]),  # one of two equal ones is missing
        ([4, 4, 7, 30, 30], 9, ["C2 ('A', 1)"]),  # one too many
        ([4, 4, 9, 30], 6, []),  # L < L_m: 7 is frozen in the input, the output can still come to it
        ([4, 4, 5, 30], 6, ["C2 ('A', 1)"]),  # 5 is final
        ([4, 5, 9, 30], 6, ["C2 ('A', 1)"]),
        ([9, 9, 9, 9], 4, []),  # L <= every end: only the number counts
        ([9, 9, 9], 4, ["C3 ('A', 1)"]),
        ([9, 9, 9, 9, 9], 4, ["C2 ('A', 1)"]),
        ([], 1, []),  # nothing is frozen yet
    ],
)
def test_r4_ends_below_the_output_stable_are_exact_and_the_others_are_counted(
    ends: list[int], stable: int, expected: list[str]
) -> None:
    output = [*(ins("A", 1, ve) for ve in ends), stb(stable)]
    assert verdict(output, [TWICE], multiset=True) == expected


def test_r4_takes_from_several_inputs_what_they_know_together() -> None:
    """Neither input knows all ends from 3 to 9; where both count the same there can be no end between them."""
    early = [ins("A", 1, 4), ins("A", 1, 20), stb(6)]
    late = [hello(8), ins("A", 1, 20), stb(9)]
    for end, expected in ((20, []), (7, ["C2 ('A', 1)"])):
        output = [ins("A", 1, 4), ins("A", 1, end), stb(6)]
        violations = verdict([*output, stb(9)], [early, late], multiset=True)
        assert violations == ["C1 Stable(9)", *expected]


def test_r4_adjusts_one_of_several_equal_events() -> None:
    inputs = [[ins("A", 1, 4), ins("A", 1, 4), adj("A", 1, 4, 9), adj("A", 1, 4, 1), stb(20)]]
    assert verdict([ins("A", 1, 9), stb(20)], inputs, multiset=True) == []
    assert verdict([ins("A", 1, 4), ins("A", 1, 9), stb(20)], inputs, multiset=True) == ["C2 ('A', 1)"]


# Late joiners, origin, incarnations, inputs that left


def test_a_joiner_supports_no_stable_before_the_output_has_reached_its_join() -> None:
    """J1: r1 has come to 15 and dies, r2 is complete from 20 on."""
    r1 = [ins("X", 12, 18), stb(15)]
    r2 = [hello(20), ins("B", 25, 40), stb(26)]
    assert verdict([ins("X", 12, 18), stb(15)], [r1, r2]) == []
    assert verdict([ins("X", 12, 18), stb(16)], [r1, r2]) == ["C1 Stable(16)", "C2 ('X', 12)"]


def test_a_joiner_leads_from_its_join_on() -> None:
    r1 = [ins("X", 12, 18), ins("A", 13, 22), stb(20)]
    r2 = [hello(20), ins("A", 13, 21), ins("B", 25, 40), stb(26)]
    output = [ins("X", 12, 18), ins("A", 13, 22), stb(20), ins("B", 25, 40), adj("A", 13, 22, 21), stb(26)]
    assert verdict(output, [r1, r2]) == []
    assert verdict([*output[:4], stb(26)], [r1, r2]) == ["C2 ('A', 13)"]


def test_a_joiner_one_millisecond_ahead_is_close_enough_by_the_definition() -> None:
    """What is alive at 109 and unknown to a joiner that is complete from 110 on can only end at 109 (see J2)."""
    r1 = [ins("X", 99, 130), ins("Y", 105, 115), stb(109)]
    r2 = [hello(110), ins("Y", 105, 115), stb(112)]
    output = [ins("X", 99, 130), ins("Y", 105, 115), stb(109)]
    assert verdict([*output, adj("X", 99, 130, 109), stb(112)], [r1, r2]) == []
    assert verdict([*output, stb(112)], [r1, r2]) == ["C2 ('X', 99)"]
    assert verdict([*output, stb(112)], [r1, [hello(111), *r2[1:]]])[0] == "C1 Stable(112)"


def test_junk_below_a_join_supports_nothing_and_forbids_nothing() -> None:
    r1 = [ins("A", 2, 8), stb(30)]
    r2 = [hello(20), ins("A", 2, 9), ins("Z", 3, 10), stb(30)]
    assert verdict([ins("A", 2, 8), stb(30)], [r1, r2]) == []
    assert verdict([ins("A", 2, 8), ins("Z", 3, 10), stb(30)], [r1, r2]) == ["C2 ('Z', 3)"]


def test_a_joiner_that_has_not_come_to_its_join_says_what_will_not_be_there_later() -> None:
    r1 = [ins("A", 2, 50), ins("B", 3, 50), stb(5)]
    r2 = [hello(20), ins("B", 3, 19), stb(10)]  # lacks A: it must end before 20
    r3 = [hello(5), ins("A", 2, 9), ins("B", 3, 50), stb(30)]
    output = [ins("A", 2, 9), ins("B", 3, 40), stb(30)]
    assert verdict(output, [r1, r2, r3]) == []


def test_skip_makes_a_joiner_of_an_input_but_what_it_said_before_still_counts() -> None:
    """F2 and F3: r2 skipped to 20; r1 settled what ends before it."""
    r1 = [ins("A", 5, 8), ins("B", 10, 25), stb(20)]
    r2 = [Skip(20), ins("B", 10, 22), ins("C", 20, 40), stb(30), Skip(10)]
    output = [ins("A", 5, 8), ins("B", 10, 25), stb(20), adj("B", 10, 25, 22), ins("C", 20, 40), stb(30)]
    assert verdict(output, [r1, r2]) == []
    assert verdict(output[3:], [r2])[0].startswith("NO_SUCH_EVENT")
    assert verdict([ins("C", 20, 40), stb(30)], [r2])[0] == "C1 Stable(30)"
    assert verdict([ins("A", 5, 8), stb(7)], [[ins("A", 5, 8), stb(7), Skip(7)]]) == []


def test_joins_at_can_be_given_in_place_of_the_hello() -> None:
    inputs = {"r1": [ins("A", 5, 8), stb(20)], "r2": [hello(20), stb(30)]}
    output = [ins("A", 5, 8), stb(30)]
    assert check_compatible(output, inputs) == []
    assert [v.rule for v in check_compatible(output, inputs, joins_at={"r2": 22})] == [Rule.C1]
    checker = CompatibilityChecker()
    checker.attach("r2", joins_at=22)
    for stream_id, prefix in inputs.items():
        assert [v for element in prefix for v in checker.input(stream_id, element)] == []
    assert [v.rule for element in output for v in checker.output(element)] == [Rule.C1]


def test_with_an_origin_an_input_that_joins_there_leads_at_once() -> None:
    """J4."""
    r1 = [hello(1000), ins("A", 1005, 1010), stb(2000)]
    output = [ins("A", 1005, 1010), stb(2000)]
    assert verdict(output, [r1], origin=1000) == []
    assert verdict([hello(1000), *output], [r1]) == []
    assert verdict([hello(1000), *output], [r1], origin=0)[0] == "C1 Stable(2000)"
    assert verdict([Skip(1000), *output], [r1]) == []
    assert verdict(output, [r1])[0] == "C1 Stable(2000)"


def test_below_the_origin_inputs_and_output_may_differ() -> None:
    r1 = [hello(20), ins("X", 2, 8), ins("B", 18, 30), stb(25)]
    r2 = [ins("Y", 2, 19), ins("B", 18, 30), stb(25)]
    for junk in ([], [ins("X", 2, 8)], [ins("Z", 3, 19)]):
        assert verdict([*junk, ins("B", 18, 30), stb(25)], [r1, r2], origin=20) == []
    assert verdict([ins("Z", 3, 20), ins("B", 18, 30), stb(25)], [r1, r2], origin=20) == ["C2 ('Z', 3)"]
    assert verdict([ins("X", 2, 8), stb(25)], [r1, r2], origin=20) == ["C3 ('B', 18)"]


def test_a_stable_below_the_origin_is_found_wrong_when_junk_becomes_final() -> None:
    """J5: X is junk of r1 that would end at 8."""
    r1 = [hello(20), ins("X", 2, 50), stb(5)]
    r2 = [hello(20), ins("B", 18, 30), stb(25)]
    output = [ins("X", 2, 50), stb(5), ins("B", 18, 30)]
    assert verdict([*output, stb(25)], [r1, r2], origin=20) == ["C2 ('X', 2)"]
    assert verdict([*output, adj("X", 2, 50, 19), stb(25)], [r1, r2], origin=20) == []
    assert verdict([*output, stb(25)], [r1, r2[1:]], origin=20) == ["C2 ('X', 2)"]
    assert verdict([stb(5)], [[ins("X", 2, 50), stb(5)]], origin=20) == ["C3 ('X', 2)"]


def test_an_old_incarnation_counts_like_an_input_that_left() -> None:
    r1 = [ins("A", 1, 3), ins("B", 2, 40), stb(10), hello(10, 2), ins("B", 2, 30), stb(35)]
    assert verdict([ins("A", 1, 3), ins("B", 2, 30), stb(35)], [r1]) == []
    assert verdict([ins("B", 2, 30), stb(35)], [r1]) == ["C3 ('A', 1)"]


def test_an_input_that_left_counts_with_what_was_read_of_it() -> None:
    steps = [("r1", ins("A", 6, 20)), ("r1", ins("B", 12, 18)), ("r1", stb(10)), ("r1", None), ("out", ins("A", 6, 20))]
    assert replay(*steps, ("out", stb(10))) == []
    assert replay(*steps, ("out", stb(10)), ("out", stb(11))) == ["C1 Stable(11)", "C2 ('A', 6)"]


def test_what_the_output_took_from_an_input_that_left_still_counts_for_a_joiner() -> None:
    """As above with X alive at 109, but r1 is gone and forgotten when r2 leads."""
    steps = [("r1", ins("X", 99, 130)), ("r1", stb(109)), ("out", ins("X", 99, 130)), ("out", stb(109)), ("r1", None)]
    steps += [("r2", hello(110)), ("r2", stb(112))]
    assert replay(*steps, ("out", adj("X", 99, 130, 109)), ("out", stb(112))) == []
    assert replay(*steps, ("out", stb(112))) == ["C2 ('X', 99)"]


def test_an_input_may_come_back_under_its_name() -> None:
    checker = CompatibilityChecker()
    for element in (ins("A", 6, 20), stb(10)):
        checker.input("r1", element)
    assert [checker.output(element) for element in (ins("A", 6, 20), stb(10))] == [[], []]
    checker.leave("r1")
    checker.attach("r1", joins_at=10)
    for element in (ins("A", 6, 15), stb(20)):
        assert checker.input("r1", element) == []
    assert [words(violation) for violation in checker.output(stb(14))] == []
    assert [words(violation) for violation in checker.output(stb(20))] == ["C2 ('A', 6)"]


def test_a_second_attach_or_a_leave_of_nobody_is_a_usage_error() -> None:
    checker = CompatibilityChecker()
    checker.attach("r1")
    with pytest.raises(UsageError, match="r1 is attached already"):
        checker.attach("r1")
    with pytest.raises(UsageError, match="r2 is not attached"):
        checker.leave("r2")


def test_only_the_last_incarnation_of_an_output_is_judged() -> None:
    output = [ins("Z", 1, 3), stb(10), hello(20, 2), ins("A", 25, 30), stb(40)]
    inputs = [[hello(20), ins("A", 25, 30), stb(40)]]
    assert check_compatible(output, inputs) == []
    checker = CompatibilityChecker()
    checker.output(output[0])
    with pytest.raises(UsageError, match="another checker"):
        checker.output(output[2])


# Inputs that contradict one another


def test_an_event_that_one_input_lacks_may_be_there_or_not() -> None:
    inputs = [[ins("A", 2, 6), stb(9)], [stb(9)]]
    assert verdict([ins("A", 2, 6), stb(9)], inputs) == []
    assert verdict([stb(9)], inputs) == []


def test_an_event_on_whose_end_inputs_differ_must_be_there_and_only_once() -> None:
    inputs = [[ins("A", 2, 6), stb(9)], [ins("A", 2, 7), stb(9)]]
    assert verdict([ins("A", 2, 6), stb(9)], inputs) == []
    assert verdict([stb(9)], inputs) == ["C3 ('A', 2)"]
    assert verdict([ins("A", 2, 6), ins("A", 2, 7), stb(9)], inputs, multiset=True) == ["C2 ('A', 2)"]


def test_a_contradiction_about_one_key_leaves_the_others_judged() -> None:
    inputs = [[ins("A", 2, 6), ins("B", 3, 4), stb(9)], [ins("B", 3, 4), stb(9)]]
    assert verdict([stb(9)], inputs) == ["C3 ('B', 3)"]


def test_below_the_origin_the_output_may_have_more_than_contradicting_inputs() -> None:
    inputs = [[ins("A", 2, 25), stb(30)], [ins("A", 2, 26), stb(30)]]
    assert verdict([ins("A", 2, 50), ins("A", 2, 50), stb(5)], inputs, multiset=True, origin=20) == []


A_UNTIL_10: list[tuple[str, Element | None]] = [
    ("r1", ins("A", 2, 50)),
    ("r1", stb(10)),
    ("out", ins("A", 2, 50)),
    ("out", stb(10)),
]


def test_a_half_frozen_event_that_the_new_leader_lacks_stays_without_reproach() -> None:
    """Trap 6."""
    assert replay(*A_UNTIL_10, ("r2", stb(30)), ("out", stb(30))) == []


def test_a_contradiction_is_remembered_when_the_input_that_made_it_has_left() -> None:
    """r2 lacks A, which r1 and the output have; what r3 says then cannot put the output in the wrong."""
    steps = [*A_UNTIL_10, ("r2", stb(15)), ("out", stb(15)), ("r1", None), ("r2", None)]
    assert replay(*steps, ("r3", ins("A", 2, 30)), ("r3", stb(60)), ("out", stb(60))) == []


def test_a_joiner_that_left_before_its_join_is_remembered_up_to_there() -> None:
    """r2 lacks A, so A ends before 20; r3 contradicts it."""
    steps = [("r2", hello(20)), ("r2", stb(5)), *A_UNTIL_10, ("r2", None), ("r3", ins("A", 2, 30)), ("r3", stb(40))]
    assert replay(*steps, ("out", adj("A", 2, 50, 25)), ("out", stb(40))) == []


def test_an_input_that_left_below_the_origin_is_remembered_up_to_there() -> None:
    """r1 lacks X, so X ends before 20; r2 contradicts it."""
    steps = [("r1", stb(5)), ("out", ins("X", 2, 50)), ("out", stb(5)), ("r1", None)]
    steps += [("r2", ins("X", 2, 50)), ("r2", stb(25)), ("out", adj("X", 2, 50, 22))]
    assert replay(*steps, ("out", stb(25)), origin=20) == []


# Contracts of single streams


@pytest.mark.parametrize(
    ("element", "rule"),
    [
        (ins("B", 4, 9), Rule.STABLE),
        (ins("A", 4, 9), Rule.STABLE),
        (adj("A", 2, 4, 6), Rule.STABLE),
        (adj("C", 3, 9, 4), Rule.STABLE),
        (stb(4), Rule.STABLE),
        (adj("C", 3, 8, 9), Rule.NO_SUCH_EVENT),
        (adj("Z", 3, 8, 9), Rule.NO_SUCH_EVENT),
        (ins("D", 6, 9), Rule.DUPLICATE),
    ],
)
def test_an_element_that_breaks_its_own_stream_is_named(element: Element, rule: Rule) -> None:
    stream = [ins("A", 2, 4), ins("C", 3, 9), ins("D", 6, 8), stb(5), element]
    for violations in (check_compatible([], {"r1": stream}), check_compatible(stream, {"r1": stream[:-1]})):
        assert [(violation.rule, violation.element) for violation in violations] == [(rule, element)]
    assert len(verdict([], {"r1": stream})) == 1
    assert len(verdict(stream, {"r1": stream[:-1]})) == 1
    assert check_compatible([], {"r1": stream})[0].stream_id == "r1"
    assert check_compatible(stream, {"r1": stream[:-1]})[0].stream_id == OUTPUT


def test_r4_allows_a_second_event_with_the_same_payload_and_vs() -> None:
    stream = [ins("D", 6, 8), ins("D", 6, 8), stb(7)]
    assert verdict(stream, [stream], multiset=True) == []
    assert verdict([], [stream]) == [f"DUPLICATE {stream[1]} comes while an event with its payload and vs is there"]


def test_after_a_removal_the_event_may_come_again() -> None:
    stream = [ins("D", 6, 8), adj("D", 6, 8, 6), ins("D", 6, 9), stb(10)]
    assert verdict(stream, [stream]) == []


def test_what_follows_an_illegal_element_does_not_count_until_the_next_hello() -> None:
    broken = [stb(5), ins("A", 2, 9), stb(9), Skip(9), ins("B", 20, 30)]
    assert verdict([stb(5)], [broken])[0].startswith("STABLE")
    assert verdict([stb(6)], [broken])[1] == "C1 Stable(6)"
    assert len(verdict([stb(9)], [[*broken, hello(), stb(9)]])) == 1
    checker = CompatibilityChecker()
    checker.input("r1", stb(5))
    assert [len(checker.output(element)) for element in (stb(5), stb(4), stb(99))] == [0, 1, 0]
    assert len(check_compatible([stb(5), stb(4), stb(99)], [[stb(5)]])) == 1


# Ordered streams


def test_the_order_of_a_stream_counts_as_stables() -> None:
    """E6b with R0: r2 joins at 20, which r1 has reached by its order alone."""
    r1 = [ins("a", 10, 11), ins("b", 19, 21)]
    r2 = [hello(20), ins("b", 19, 21), ins("c", 25, 26), stb(27)]
    output = [ins("a", 10, 11), ins("b", 19, 21), ins("c", 25, 26), stb(27)]
    assert verdict(output, [r1, r2], order=Order.STRICTLY_BY_VS) == []
    assert verdict(output, [r1, [hello(21), *r2[1:]]], order=Order.BY_VS)[0] == "C1 Stable(25)"
    assert verdict(output, [r1, r2])[0] == "C1 Stable(27)"


def test_a_stable_that_says_less_than_the_order_is_legal_unless_it_goes_back() -> None:
    stream = [ins("a", 10, 12), stb(9), stb(10), ins("b", 11, 12), stb(20)]
    assert verdict(stream, [stream], order=Order.STRICTLY_BY_VS) == []
    assert len(verdict([], [[*stream[:3], stb(9)]], order=Order.STRICTLY_BY_VS)) == 1


def test_an_ordered_output_that_went_past_an_event_lacks_it() -> None:
    r1 = [ins("a", 10, 11), ins("b", 12, 13), ins("c", 15, 16)]
    assert "C3 ('b', 12)" in verdict([ins("a", 10, 11), ins("c", 15, 16)], [r1], order=Order.BY_VS)
    assert len(verdict([], [[ins("b", 12, 13), ins("a", 10, 11)]], order=Order.BY_VS)) == 1


# What the checker keeps


def test_the_checker_keeps_what_is_final_in_an_input_until_the_output_has_it() -> None:
    stream = [*(ins("A", n, n + 1) for n in range(150)), stb(1_000)]
    assert verdict([ins("A", 0, 2), *stream[1:]], [stream]) == ["C2 ('A', 0)"]


def test_the_checker_forgets_what_is_final() -> None:
    checker = CompatibilityChecker()
    checker.attach("laggard")
    for n in range(2_000):
        event = ins("A", 10 * n, 10 * n + 5)
        for stream_id in ("r1", "r2"):
            assert checker.input(stream_id, event) == []
            assert checker.input(stream_id, stb(10 * n)) == []
        assert checker.output(event) == []
        assert checker.output(stb(10 * n)) == []
        if n % 7 == 0:
            assert checker.input("laggard", ins("A", n, n + 2)) == []
            assert checker.input("laggard", stb(n)) == []
            checker.attach(n)
            checker.input(n, stb(10 * n))
            checker.leave(n)
    assert len(checker._open) <= 2
    assert len(checker._due) <= 4
    assert len(checker._times) <= 4
    assert checker._past == []
    assert all(len(stream.ends) <= 300 for stream in (checker._output, *checker._inputs.values()))
