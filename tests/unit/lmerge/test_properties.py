import pytest

from lmerge import Hello, IllegalElement, UsageError
from lmerge import properties as p
from lmerge.properties import BY_END_AND_PAYLOAD, BY_RANK, LOG_ORDER, Order, Results, StreamProperties, Window

R0, R1, R2, R3, R4 = (
    StreamProperties.r0(),
    StreamProperties.r1(LOG_ORDER),
    StreamProperties.r2(),
    StreamProperties.r3(),
    StreamProperties.r4(),
)
UNORDERED_INSERTS = StreamProperties(insert_only=True, key=True)


def test_strictly_increasing_vs_imply_a_key_and_leave_no_ties() -> None:
    contradictory = StreamProperties(insert_only=True, order=Order.STRICTLY_INCREASING, key=False)
    assert contradictory == StreamProperties(insert_only=True, order=Order.STRICTLY_INCREASING, key=True) == R0
    assert StreamProperties(order=Order.STRICTLY_INCREASING, tie_order="rank").tie_order is None
    assert R0.ties_ordered
    assert R0.ordered


def test_restrictions_promise_what_the_paper_says() -> None:
    assert StreamProperties(insert_only=True, order=Order.NON_DECREASING, tie_order=LOG_ORDER) == R1
    assert not R1.key
    assert StreamProperties(insert_only=True, order=Order.NON_DECREASING, key=True) == R2
    assert not R2.ties_ordered
    assert StreamProperties(key=True) == R3
    assert StreamProperties() == R4
    assert not R4.ordered


def test_an_order_among_ties_needs_a_name() -> None:
    with pytest.raises(UsageError, match="needs a name"):
        StreamProperties.r1("")


def test_a_dict_holds_the_promises_that_are_made() -> None:
    assert R4.to_dict() == {}
    assert R1.to_dict() == {"insert_only": True, "order": "non-decreasing", "tie_order": "log order"}
    assert R0.to_dict() == {"insert_only": True, "order": "strictly increasing", "key": True}


def test_a_missing_key_is_a_promise_not_made() -> None:
    assert StreamProperties.from_dict({}) == R4
    assert StreamProperties.from_dict({"order": "strictly increasing", "insert_only": True}) == R0
    assert StreamProperties.from_dict({"tie_order": None}) == R4


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        ({"insertonly": True}, "insertonly"),
        ({"insert_only": 1}, "insert_only"),
        ({"order": "ascending"}, "ascending"),
        ({"tie_order": 3}, "tie_order"),
        ({"tie_order": ""}, "name"),
        ({"key": "yes"}, "key"),
    ],
)
def test_what_cannot_be_understood_is_refused(plain: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        StreamProperties.from_dict(plain)


def test_a_meet_has_the_weakest_of_each_promise() -> None:
    assert p.meet(R0, R2) == R2
    assert p.meet(R1, R2) == StreamProperties(insert_only=True, order=Order.NON_DECREASING)
    assert p.meet(R2, R3) == R3
    assert p.meet(R0, R1, R2, R3) == R4
    assert p.meet(R2) == R2


def test_two_orders_among_ties_are_none_but_a_stream_without_ties_has_any() -> None:
    assert p.meet(R1, R1).tie_order == LOG_ORDER
    assert p.meet(R1, R0).tie_order == LOG_ORDER
    assert p.meet(R1, StreamProperties.r1("rank")).tie_order is None
    assert p.meet(R0, R0) == R0


def test_a_source_of_one_log_has_its_order_and_a_source_of_several_has_none() -> None:
    assert p.source(order=Order.NON_DECREASING, one_log=True) == R1
    assert p.source(order=Order.STRICTLY_INCREASING, one_log=True) == R0
    assert p.source(order=Order.STRICTLY_INCREASING) == StreamProperties(insert_only=True)
    assert p.source(key=True) == UNORDERED_INSERTS


@pytest.mark.parametrize("properties", [R0, R1, R2, R3, R4])
def test_a_filter_keeps_all_promises(properties: StreamProperties) -> None:
    assert p.after_filter(properties) == properties


def test_a_map_keeps_the_key_if_it_is_injective_and_the_tie_order_if_told() -> None:
    assert p.after_map(R2, injective=True) == R2
    assert p.after_map(R2) == StreamProperties(insert_only=True, order=Order.NON_DECREASING)
    assert p.after_map(R1, keeps_tie_order=True) == R1
    assert p.after_map(R1).tie_order is None
    assert p.after_map(R0) == R0  # no two events share a vs, whatever their payloads become


@pytest.mark.parametrize(
    ("window", "before", "after"),
    [
        (Window.RANGE, R0, R0),
        (Window.RANGE, R1, R1),
        (Window.RANGE, R2, R2),
        (Window.RANGE, R3, R3),
        (Window.TUMBLING, R0, StreamProperties.r1("vs")),
        (Window.TUMBLING, R1, StreamProperties.r1("vs, then log order")),
        (Window.TUMBLING, R2, StreamProperties(insert_only=True, order=Order.NON_DECREASING)),
        (Window.TUMBLING, R3, R4),
        (Window.SLIDING, R0, StreamProperties(insert_only=True, tie_order="vs")),
        (Window.SLIDING, R1, StreamProperties(insert_only=True, tie_order="vs, then log order")),
        (Window.SLIDING, StreamProperties(tie_order=LOG_ORDER), R4),
    ],
)
def test_windows_that_move_starts_lose_the_key_and_some_order(
    window: Window, before: StreamProperties, after: StreamProperties
) -> None:
    assert p.after_window(before, window, keeps_tie_order=True) == after


def test_a_window_forgets_a_tie_order_that_may_speak_of_ends() -> None:
    cleansed = p.after_cleanse(R3)
    assert p.after_window(cleansed, Window.RANGE) == R2
    assert p.after_window(cleansed, Window.TUMBLING).tie_order is None


@pytest.mark.parametrize(
    ("results", "properties", "settled"),
    [
        (Results.EARLY, R0, False),
        (Results.ON_TIME, R2, True),
        (Results.ON_TIME, UNORDERED_INSERTS, False),
        (Results.ON_TIME, StreamProperties(order=Order.NON_DECREASING), False),
        (Results.FINAL, R4, True),
    ],
)
def test_results_are_settled_when_final_or_on_time_over_ordered_inserts(
    results: Results, properties: StreamProperties, settled: bool
) -> None:
    assert results.settled(properties) is settled
    assert p.after_aggregate(properties, results) == (R0 if settled else R3)
    assert p.after_grouped_aggregate(properties, results, common_bounds=True) == (R2 if settled else R3)
    own_bounds = p.after_grouped_aggregate(properties, results, common_bounds=False)
    assert own_bounds == (UNORDERED_INSERTS if settled else R3)
    assert p.after_top_k(properties, results) == (StreamProperties.r1(BY_RANK) if settled else R4)


def test_a_top_k_has_a_key_if_the_payload_holds_the_rank() -> None:
    assert p.after_top_k(R4, Results.FINAL, ranking="price", rank_in_payload=True) == StreamProperties(
        insert_only=True, order=Order.NON_DECREASING, tie_order="price", key=True
    )
    assert p.after_top_k(R4, Results.EARLY, rank_in_payload=True) == R3


def test_a_union_keeps_order_if_it_merges_and_the_key_if_payloads_differ() -> None:
    assert p.after_union(R0, R2, merged=True, disjoint=True) == R2
    assert p.after_union(R2, R2, disjoint=True) == UNORDERED_INSERTS
    assert p.after_union(R2, R2, merged=True) == StreamProperties(insert_only=True, order=Order.NON_DECREASING)
    assert p.after_union(R3, R3, merged=True, disjoint=True) == R3


def test_a_join_has_no_key_for_the_keys_of_its_inputs() -> None:
    assert p.after_join(R2, R2) == StreamProperties(insert_only=True)
    assert p.after_join(R0, R2, merged=True) == StreamProperties(insert_only=True, order=Order.NON_DECREASING)
    assert p.after_join(R4, R4, one_at_a_time=True) == R3


def test_a_join_of_revised_streams_has_no_order_since_a_longer_event_meets_old_ones() -> None:
    revised = StreamProperties(order=Order.NON_DECREASING)
    assert p.after_join(revised, R2, merged=True) == R4


def test_cleansing_makes_r1_of_anything_and_r0_where_every_vs_comes_once() -> None:
    assert p.after_cleanse(R4) == StreamProperties.r1(BY_END_AND_PAYLOAD)
    assert p.after_cleanse(R3).key
    assert p.after_cleanse(StreamProperties(order=Order.STRICTLY_INCREASING)) == R0
    assert p.after_cleanse(R4, tie_order="mine") == StreamProperties.r1("mine")


def test_a_normal_form_has_a_key_and_adjusts() -> None:
    for properties in (R0, R4):
        assert p.after_normal_form(properties) == StreamProperties(order=Order.NON_DECREASING, key=True)


def test_a_hello_declares_what_the_operator_makes_of_the_properties() -> None:
    hello = Hello(replica="r", incarnation=2, joins_at=5, feed="f", plan="q", properties={"key": True})
    declared = p.declare(hello, p.after_cleanse)
    assert declared.properties == {**R1.to_dict(), "tie_order": BY_END_AND_PAYLOAD, "key": True}
    assert (declared.replica, declared.incarnation, declared.joins_at, declared.plan) == ("r", 2, 5, "q")


def test_a_hello_with_unknown_properties_is_illegal() -> None:
    with pytest.raises(IllegalElement, match="sorted"):
        p.declare(Hello(replica="r", incarnation=0, properties={"sorted": True}), p.after_filter)
