"""What the paper says that LMerge puts out, and what breaks simpler merges, by the paper's own numbers."""

from collections.abc import Sequence

import pytest

from lmerge import TDB, Adjust, Divergence, Element, Event, IllegalElement, OutputPolicy, create, reconstitute
from lmerge.normal_form import NormalForm
from tests.golden.test_paper_examples import PHY1, PHY2, TABLE_I
from tests.support.streams import INF, adj, ins, stb

# Example 2, Table II: the rows are instants of system time.
TABLE_II: list[tuple[str, Element]] = [
    ("In1", ins("A", 6, 10)),
    ("In2", ins("A", 6, 12)),
    ("In2", ins("B", 7, 14)),
    ("In1", adj("A", 6, 10, 15)),
    ("In2", adj("A", 6, 12, 15)),
    ("In2", stb(16)),
]
OUT1: list[Element] = [ins("A", 6, 10), adj("A", 6, 10, 12), ins("B", 7, 14), adj("A", 6, 12, 15), stb(16)]
OUT2: list[Element] = [ins("A", 6, 15), ins("B", 7, 14), stb(16)]
OUT3: list[Element] = [ins("A", 6, 10), ins("B", 7, 14), adj("A", 6, 10, 15), stb(16)]


def run(algorithm: str, schedule: Sequence[tuple[str, Element]], policy: str = "") -> list[Element]:
    """Feed a schedule element by element and return the output."""
    merge = create(algorithm, policy=OutputPolicy.parse(policy) if policy else None)
    for name in dict.fromkeys(name for name, _ in schedule):
        merge.attach(name)
    return [out for name, element in schedule for out in merge.process(name, [element])]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("eager", OUT1), ("fully_frozen", OUT2), ("first,lazy", OUT3)],
    ids=["Out1", "Out2", "Out3"],
)
def test_three_policies_give_the_three_outputs_of_table_ii(policy: str, expected: list[Element]) -> None:
    assert run("R3", TABLE_II, policy) == expected


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
@pytest.mark.parametrize("order", ["Phy1 first", "Phy2 first", "in turn"])
def test_table_i_merges_to_its_tdb_in_any_order(algorithm: str, order: str) -> None:
    one = [("Phy1", element) for element in PHY1]
    two = [("Phy2", element) for element in PHY2]
    schedules = {
        "Phy1 first": one + two,
        "Phy2 first": two + one,
        "in turn": [entry for pair in zip(two, one, strict=True) for entry in pair],
    }
    assert reconstitute(run(algorithm, schedules[order])) == TABLE_I


def test_a_stable_is_not_passed_on_before_the_output_can_bear_it() -> None:
    """Section I-B 2: after two elements of Phy2, f(11) of Phy1 would freeze A at 7 and keep B from ending at 10."""
    schedule = [("Phy2", element) for element in PHY2[:2]] + [("Phy1", element) for element in PHY1[:4]]
    output = run("R3", schedule)
    assert output == [ins("A", 6, 7), ins("B", 8, 15), adj("A", 6, 7, 12), adj("B", 8, 15, 10), stb(11)]


def _counting_merge(schedule: Sequence[tuple[str, Element]]) -> list[Element]:
    """The trivial merge of section I: follow the stream with the largest count."""
    counts: dict[str, int] = {}
    output: list[Element] = []
    for name, element in schedule:
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > len(output):
            output.append(element)
    return output


A, B, C = ins("A", 1, 2), ins("B", 2, 3), ins("C", 3, 4)


@pytest.mark.parametrize(
    ("schedule", "wrong"),
    [
        # r2 failed and re-attaches: it produces B again and misses nothing that follows.
        ([("r1", A), ("r1", B), ("r2", A), ("r2", B), ("r2", B), ("r2", C), ("r1", C)], [A, B, B, C]),
        # r2 failed and restarts past B: what it sends next is taken for what it missed.
        ([("r1", A), ("r2", A), ("r2", C), ("r1", B), ("r1", C)], [A, C, C]),
    ],
    ids=["re-produced", "gap"],
)
def test_a_failure_breaks_a_counting_merge_and_not_r3(
    schedule: list[tuple[str, Element]], wrong: list[Element]
) -> None:
    """Section I-B 4. A stream that comes back is a new incarnation to LMerge: here, another stream."""
    assert _counting_merge(schedule) == wrong
    seen: dict[str, set[Element]] = {}
    named = []
    for name, element in schedule:
        incarnation = f"{name}'" if element in seen.get(name, set()) else name
        seen.setdefault(incarnation, set()).add(element)
        named.append((incarnation, element))
    assert reconstitute(run("R3", [*named, ("r1", stb(INF))])) == TDB(
        [Event("A", 1, 2), Event("B", 2, 3), Event("C", 3, 4)]
    )


# The Q4 replicas of notes/seed-002, 1.4: one coalesces, one does not; equal at every instant, different as TDBs.
Q4_A: list[Element] = [ins("i1", 0, 3), ins("i2", 3, 9), ins("i2", 9, 10), ins("i2", 10, 13), ins("i3", 13, 19)]
Q4_B: list[Element] = [ins("i1", 0, 3), ins("i2", 3, 13), ins("i3", 13, 19)]


def test_p06_raw_merging_of_the_two_q4_replicas_is_reported() -> None:
    """Trap 1, one way: they are not mutually consistent, the merge says so, and its output stays legal."""
    merge = create("R3")
    for name in "AB":
        merge.attach(name)
    output = merge.process("A", Q4_A) + merge.process("B", Q4_B)
    output += merge.process("A", [stb(11)]) + merge.process("B", [stb(25)])
    reported = [fact for fact in merge.take_facts() if isinstance(fact, Divergence)]
    assert [(fact.payload, fact.vs, fact.claims) for fact in reported] == [
        ("i2", 10, {"A": "alive at 11", "B": "gone"})
    ]
    reconstitute(output)  # legal
    assert reconstitute(output).snapshot(11) == {"i2": 1}  # kept, not lost


def test_p06_the_printed_algorithm_breaks_its_own_promise_on_them() -> None:
    """What R3 would put out if it followed B: the contract checker refuses it."""
    with pytest.raises(IllegalElement):
        reconstitute([ins("i2", 10, 13), stb(11), adj("i2", 10, 13, 10)])


def test_p06_through_the_normal_form_the_two_q4_replicas_merge_right() -> None:
    """Trap 1, the other way."""
    merge = create("R3")
    forms = {"A": NormalForm(), "B": NormalForm()}
    for name in forms:
        merge.attach(name)
    output: list[Element] = []
    for name, elements in (("A", Q4_A), ("B", Q4_B), ("A", [stb(11)]), ("B", [stb(25)])):
        for element in elements:
            output += merge.process(name, forms[name].process(element))
    assert reconstitute(output) == TDB([Event(("i1", 1), 0, 3), Event(("i2", 1), 3, 13), Event(("i3", 1), 13, 19)])
    assert not any(isinstance(element, Adjust) for element in output)
    assert not [fact for fact in merge.take_facts() if isinstance(fact, Divergence)]


def test_theorem_1_as_printed_is_false() -> None:
    """Design, invariant 7: one insert in, two adjusts out, though the theorem allows as many as there were inserts."""
    stream: list[Element] = [ins("A", 6, 10), adj("A", 6, 10, 20), stb(15), adj("A", 6, 20, 30), stb(25)]
    output = run("R3", [("r1", element) for element in stream])
    assert output == [ins("A", 6, 10), adj("A", 6, 10, 20), stb(15), adj("A", 6, 20, 30), stb(25)]
