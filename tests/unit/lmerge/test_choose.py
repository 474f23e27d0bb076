import pytest

from lmerge import UsageError
from lmerge.choose import choose
from lmerge.properties import Order, StreamProperties

R0, R1, R2, R3, R4 = (
    StreamProperties.r0(),
    StreamProperties.r1("rank"),
    StreamProperties.r2(),
    StreamProperties.r3(),
    StreamProperties.r4(),
)


@pytest.mark.parametrize(("properties", "algorithm"), [(R0, "R0"), (R1, "R1"), (R2, "R2"), (R3, "R3"), (R4, "R4")])
def test_each_restriction_chooses_its_algorithm(properties: StreamProperties, algorithm: str) -> None:
    assert choose(properties).algorithm == algorithm
    assert choose(properties, properties, R0).algorithm == algorithm


def test_one_weak_input_decides_for_all() -> None:
    assert choose(R0, R0, R3).algorithm == "R3"
    assert choose(R1, R2).algorithm == "R4"


def test_a_key_that_is_implied_is_used() -> None:
    assert choose(StreamProperties(order=Order.STRICTLY_INCREASING)).algorithm == "R3"


def test_the_cheapest_algorithm_needs_no_excuse() -> None:
    assert choose(R0).reason == "Every input promises only inserts and stables, strictly increasing vs."


def test_the_reason_names_what_cheaper_algorithms_need_and_which_input_lacks_it() -> None:
    assert choose(R2, R0, names=["r1", "r2"]).reason == (
        "Every input promises only inserts and stables, non-decreasing vs, (payload, vs) as a key. "
        "R0 would need strictly increasing vs (not promised by r1). "
        "R1 would need one order among equal vs (not promised by r1)."
    )


def test_inputs_without_names_are_numbered_from_one() -> None:
    assert "R3 would need (payload, vs) as a key (not promised by input 2)." in choose(R2, R4).reason
    assert choose(R2, R4).reason.startswith("R4 needs no promise. R0 would need")


def test_different_orders_among_ties_are_not_taken_for_one() -> None:
    keyed = StreamProperties(insert_only=True, order=Order.NON_DECREASING, tie_order="payload", key=True)
    ranked = StreamProperties(insert_only=True, order=Order.NON_DECREASING, tie_order="rank", key=True)
    choice = choose(keyed, ranked, R0)
    assert choice.algorithm == "R2"
    assert "R1 would need one order among equal vs (they differ: input 1: payload, input 2: rank)" in choice.reason


def test_there_must_be_an_input_and_a_name_for_each() -> None:
    with pytest.raises(UsageError, match="at least one"):
        choose()
    with pytest.raises(UsageError, match="1 names for 2 inputs"):
        choose(R0, R0, names=["r1"])
