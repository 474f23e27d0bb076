"""The six examples of paper 000, IV-G: from a plan's properties to the algorithm."""

import pytest

from lmerge import properties as p
from lmerge.choose import Algorithm, choose
from lmerge.properties import LOG_ORDER, Order, Results, StreamProperties, Window

ORDERED = p.source(order=Order.NON_DECREASING, one_log=True)
DISORDERED = p.source()


@pytest.mark.parametrize(
    ("declared", "algorithm"),
    [
        ({"insert_only": True, "order": "strictly increasing"}, "R0"),
        ({"insert_only": True, "order": "non-decreasing", "tie_order": "log order"}, "R1"),
        ({"insert_only": True, "order": "non-decreasing", "key": True}, "R2"),
        ({"insert_only": True, "key": True}, "R3"),
        ({"order": "non-decreasing", "key": True}, "R3"),
        ({"insert_only": True, "order": "non-decreasing"}, "R4"),
        ({}, "R4"),
    ],
)
def test_example_1_properties_that_streams_publish_choose_the_algorithm(
    declared: dict[str, object], algorithm: Algorithm
) -> None:
    properties = StreamProperties.from_dict(declared)
    assert choose(properties, properties).algorithm == algorithm


def test_example_2_an_operator_that_enforces_order_leads_to_r1() -> None:
    assert choose(DISORDERED).algorithm == "R4"
    assert choose(p.after_cleanse(DISORDERED)).algorithm == "R1"


def test_example_3_a_windowed_count_over_an_ordered_stream_leads_to_r0() -> None:
    windowed = p.after_window(ORDERED, Window.TUMBLING)
    assert choose(p.after_aggregate(ORDERED, Results.ON_TIME)).algorithm == "R0"
    assert choose(p.after_aggregate(windowed, Results.ON_TIME)).algorithm == "R0"


def test_example_4_a_top_k_over_a_sliding_window_of_an_ordered_stream_leads_to_r1() -> None:
    assert choose(p.after_top_k(ORDERED, Results.ON_TIME)).algorithm == "R1"


def test_example_5_a_grouped_count_over_an_ordered_stream_leads_to_r2() -> None:
    assert choose(p.after_grouped_aggregate(ORDERED, Results.ON_TIME, common_bounds=True)).algorithm == "R2"


def test_example_6_a_grouped_count_over_a_disordered_stream_leads_to_r3() -> None:
    assert choose(p.after_grouped_aggregate(DISORDERED, Results.ON_TIME, common_bounds=True)).algorithm == "R3"


def test_trap_7_order_does_not_compose_over_groups_with_bounds_of_their_own() -> None:
    final = p.after_grouped_aggregate(DISORDERED, Results.FINAL, common_bounds=True)
    own_bounds = p.after_grouped_aggregate(ORDERED, Results.FINAL, common_bounds=False)
    assert choose(final).algorithm == "R2"
    assert choose(own_bounds).algorithm == "R3"
    assert choose(p.after_cleanse(own_bounds)).algorithm == "R1"


def test_p_30_scalar_aggregates_are_r0_grouped_ones_r2_unions_r4_and_normal_forms_r3() -> None:
    union = p.after_union(ORDERED, ORDERED, merged=True)
    assert choose(p.after_aggregate(ORDERED, Results.FINAL)).algorithm == "R0"
    assert choose(p.after_grouped_aggregate(ORDERED, Results.FINAL, common_bounds=True)).algorithm == "R2"
    assert choose(union).algorithm == "R4"
    assert choose(p.after_normal_form(union)).algorithm == "R3"


def test_a_plan_folds_its_operators_from_the_source_on() -> None:
    properties = p.after_filter(ORDERED)
    assert properties.tie_order == LOG_ORDER
    properties = p.after_map(properties, keeps_tie_order=True)
    assert choose(properties).algorithm == "R1"
    assert choose(p.after_map(properties)).algorithm == "R4"
