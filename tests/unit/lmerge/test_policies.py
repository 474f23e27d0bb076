import pytest

from lmerge import Adjusts, Element, Inserts, OutputPolicy, Quorum, UsageError, create
from tests.support.streams import INF, adj, ins, stb


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", OutputPolicy()),
        ("first, lazy, max", OutputPolicy()),
        ("leading", OutputPolicy(inserts=Inserts.LEADING)),
        ("half_frozen,eager", OutputPolicy(inserts=Inserts.HALF_FROZEN, adjusts=Adjusts.EAGER)),
        ("fully_frozen", OutputPolicy(inserts=Inserts.FULLY_FROZEN)),
        ("quorum(2)", OutputPolicy(inserts=Quorum(2))),
        ("quorum(0.5),lagging(5000)", OutputPolicy(inserts=Quorum(0.5), lag=5000)),
    ],
)
def test_a_policy_is_written_as_names(text: str, policy: OutputPolicy) -> None:
    assert OutputPolicy.parse(text) == policy


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "unknown policy 'soon'"),
        ("lagging(-5)", "unknown policy"),
        ("first,leading", "contradicts"),
        ("eager,lazy", "contradicts"),
        ("quorum(0)", "a whole number of inputs, or a fraction"),
        ("quorum(.)", "unknown policy"),
        ("quorum(1.2.3)", "unknown policy"),
        ("quorum(1.5)", "a whole number of inputs, or a fraction"),
        pytest.param(f"quorum({'9' * 310})", "a whole number of inputs, or a fraction", id="quorum of infinity"),
        pytest.param(f"lagging({'9' * 5_000})", "unknown policy", id="more digits than Python reads"),
        ("fully_frozen,eager", "never adjusted"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        OutputPolicy.parse(text)


def test_a_stable_cannot_run_ahead() -> None:
    with pytest.raises(UsageError, match="ahead of the inputs"):
        OutputPolicy(lag=-1)


@pytest.mark.parametrize("algorithm", ["R0", "R1", "R2", "R4"])
def test_policies_other_than_the_default_are_r3s(algorithm: str) -> None:
    create(algorithm, policy=OutputPolicy())
    with pytest.raises(UsageError, match=f"{algorithm} has no output policy but the default"):
        create(algorithm, policy=OutputPolicy.parse("eager"))


@pytest.mark.parametrize(("share", "attached", "needed"), [(2, 3, 2), (2, 1, 1), (0.5, 3, 2), (0.5, 4, 2), (0.1, 5, 1)])
def test_a_quorum_is_a_number_or_a_fraction_of_the_attached_inputs(share: float, attached: int, needed: int) -> None:
    assert Quorum(share).needed(attached) == needed


SCHEDULE: list[tuple[str, Element]] = [
    ("a", ins("A", 6, 10)),
    ("b", ins("A", 6, 12)),
    ("b", stb(5)),
    ("b", ins("B", 7, 14)),
    ("a", ins("B", 7, 14)),
    ("a", adj("A", 6, 10, 6)),
    ("a", ins("A", 6, 13)),
    ("b", stb(8)),
    ("b", adj("A", 6, 12, 13)),
    ("b", stb(20)),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # What the first stream says goes out; b's stable 20 finds the end 10 wrong.
        ("first", [ins("A", 6, 10), stb(5), ins("B", 7, 14), stb(8), adj("A", 6, 10, 13), stb(20)]),
        # b leads from its first stable on: its B goes out at once, A when it is half frozen.
        ("leading", [stb(5), ins("B", 7, 14), ins("A", 6, 12), stb(8), adj("A", 6, 12, 13), stb(20)]),
        # Nothing goes out before a stable has passed its start.
        ("half_frozen", [stb(5), ins("A", 6, 12), ins("B", 7, 14), stb(8), adj("A", 6, 12, 13), stb(20)]),
        # Only what is final, so the stable waits for A's start.
        ("fully_frozen", [stb(5), stb(6), ins("A", 6, 13), ins("B", 7, 14), stb(20)]),
        # Both streams must have it.
        ("quorum(2)", [ins("A", 6, 12), stb(5), ins("B", 7, 14), stb(8), adj("A", 6, 12, 13), stb(20)]),
        # Every change at once, the removal by a and its second insert too.
        (
            "eager",
            [
                *(ins("A", 6, 10), adj("A", 6, 10, 12), stb(5), ins("B", 7, 14), adj("A", 6, 12, 6), ins("A", 6, 13)),
                *(stb(8), stb(20)),
            ],
        ),
        # Two behind: what b says before stable 20 decides.
        ("lagging(2)", [ins("A", 6, 10), stb(3), ins("B", 7, 14), stb(6), adj("A", 6, 10, 13), stb(18)]),
    ],
)
def test_each_policy_puts_out_what_it_promises(policy: str, expected: list[Element]) -> None:
    merge = create("R3", policy=OutputPolicy.parse(policy))
    for stream in "ab":
        merge.attach(stream)
    output = [out for stream, element in SCHEDULE for out in merge.process(stream, [element])]
    assert output == expected


def test_an_event_that_never_ends_is_final_when_the_stream_is() -> None:
    merge = create("R3", policy=OutputPolicy.parse("fully_frozen"))
    merge.attach("a")
    assert merge.process("a", [ins("A", 6, INF), ins("B", 7, 9), stb(20)]) == [stb(6)]
    assert merge.process("a", [stb(INF)]) == [ins("A", 6, INF), ins("B", 7, 9), stb(INF)]


def test_nothing_is_put_out_below_the_origin_before_a_stable_has_passed_it() -> None:
    """Else x would be put out twice: it is forgotten, and no stable says so."""
    merge = create("R3", policy=OutputPolicy.parse("fully_frozen"), origin=20)
    for stream in "ab":
        merge.attach(stream, joins_at=20)
    both: list[Element] = [ins("x", 2, 4), ins("y", 5, 100)]
    assert merge.process("a", [*both, stb(25)]) == []
    assert merge.process("b", [*both, stb(101)]) == [*both, stb(101)]


def test_a_policy_is_made_of_policies() -> None:
    with pytest.raises(UsageError, match=r"OutputPolicy\.parse"):
        OutputPolicy(inserts="first")  # type: ignore[arg-type]


def test_an_end_that_lags_behind_infinity_is_infinity() -> None:
    merge = create("R3", policy=OutputPolicy.parse("lagging(5)"))
    merge.attach("a")
    assert merge.process("a", [stb(INF)]) == [stb(INF)]


def test_a_final_event_that_the_leading_stream_lacks_is_missing() -> None:
    merge = create("R3", policy=OutputPolicy.parse("fully_frozen"))
    for stream in "ab":
        merge.attach(stream)
    assert merge.process("a", [ins("A", 6, 9)]) == []
    assert merge.process("b", [stb(20)]) == [stb(20)]
    assert merge.stats().missing == 1
