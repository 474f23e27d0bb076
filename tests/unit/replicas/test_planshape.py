"""What is read off a plan's text."""

import pytest

from lmerge.errors import UsageError
from replicas.planshape import plan_hash, require_repeatable, require_watermark_above_filters

RIGHT = """\
~Aggregate [window#962, auction#950L], [auction#950L, count(1) AS count#958L]
+- ~Project [auction#950L, event_time#951-T31ms]
   +- ~Filter (NOT _control#952 AND (_barrier#956 >= 0))
      +- ~Project [auction#950L, SPARK_PARTITION_ID() AS _barrier#956]
         +- ~EventTimeWatermark e26f11ce-a8e8-4445-aa6a-658cb6429991, event_time#951: timestamp, 3660000 days
            +- ~StreamingRelationV2 x.PythonDataSourceV2@3481272a, cuts, [spec={"max_cuts":7}], [auction#950L]
"""

WRONG = """\
~Aggregate [auction#950L], [auction#950L, count(1) AS count#958L]
+- ~EventTimeWatermark e26f11ce-a8e8-4445-aa6a-658cb6429991, event_time#951: timestamp, 3660000 days
   +- ~Project [auction#950L]
      +- ~Filter NOT _control#952
         +- ~StreamingRelationV2 cuts
"""

JOIN = """\
~Join Inner, (a#1 = b#2)
:- ~Filter (a#1 > 0)
:  +- ~EventTimeWatermark e26f11ce-a8e8-4445-aa6a-658cb6429991, t#3: timestamp, 3660000 days
:     +- ~StreamingRelationV2 left
+- ~Filter (b#2 > 0)
   +- ~EventTimeWatermark e26f11ce-a8e8-4445-aa6a-658cb6429992, t#4: timestamp, 3660000 days
      +- ~StreamingRelationV2 right
"""


@pytest.mark.parametrize("plan", [RIGHT, JOIN])
def test_filters_above_the_watermark_of_their_branch_are_fine(plan: str) -> None:
    require_watermark_above_filters(plan)


@pytest.mark.parametrize(
    "plan",
    [
        WRONG,
        JOIN.replace("StreamingRelationV2 right", "Filter (b#2 > 0)"),
        JOIN.replace(":     +- ~S", ":     +- ~Filter S"),
    ],
)
def test_a_filter_below_a_watermark_is_refused(plan: str) -> None:
    with pytest.raises(UsageError, match="below the watermark"):
        require_watermark_above_filters(plan)


@pytest.mark.parametrize(
    ("column", "depends"),
    [
        ("first(price#1L, false)", "the order of rows"),
        ("(price#1 + rand(77))", "chance"),
        ("now()", "the clock"),
        ("current_date(Some(UTC))", "the clock"),
        ("max_by(bidder#1L, price#2L)", "the order of rows"),
        ("mode(price#2L, None)", "the order of rows"),
        ("listagg(name#3, ,, None)", "the order of rows"),
        ("percentile_approx(price#2L, 0.5, 10000, 0, 0)", "the order of rows"),
        ("collect_list(price#2L, 0, 0)", "the order of rows"),
        ("my_sort_array(collect_list(price#2L, 0, 0))", "the order of rows"),
        ("sort_array(transform(collect_set(price#2L, 0, 0), lambda), true)", "the order of rows"),
    ],
)
def test_a_function_of_more_than_the_rows_is_refused(column: str, depends: str) -> None:
    with pytest.raises(UsageError, match=f"depends on {depends}"):
        require_repeatable(RIGHT.replace("count(1)", column))


@pytest.mark.parametrize(
    "column",
    [
        *("count(1)", "my_first(price#1L)", "max(first#7L)", "brand(x#1)", "`first(x)`#7"),
        "sort_array(collect_list(price#2L, 0, 0), true)",
        "slice(sort_array(flatten(collect_list(best#2, 0, 0)), false), 1, 3)",
    ],
)
def test_other_functions_are_fine(column: str) -> None:
    require_repeatable(RIGHT.replace("count(1)", column))


def test_the_hash_knows_common_table_expressions_by_their_order_not_their_number() -> None:
    plan = "~WithCTE\n:- ~CTERelationDef 3, false\n:- ~CTERelationDef 4, false\n+- ~CTERelationRef {}, true, [a#3]"
    assert plan_hash(plan.format(4), []) == plan_hash(plan.format(4).replace(" 4", " 9"), [])
    assert plan_hash(plan.format(4), []) != plan_hash(plan.format(3), [])


def test_the_hash_is_the_same_in_another_run() -> None:
    again = (
        RIGHT.replace("#95", "#213")
        .replace("3481272a", "1abc00d2")
        .replace("e26f11ce", "00000000")
        .replace('"max_cuts":7', '"max_cuts":1000')
    )
    assert again != RIGHT
    assert plan_hash(again, ["hot_items"]) == plan_hash(RIGHT, ["hot_items"])


@pytest.mark.parametrize(
    ("old", "new"), [("_barrier#956 >= 0", "_barrier#956 >= 1"), ("count(1)", "count(2)"), ("window#962, ", "")]
)
def test_another_filter_aggregate_or_group_key_has_another_hash(old: str, new: str) -> None:
    assert plan_hash(RIGHT.replace(old, new), []) != plan_hash(RIGHT, [])


def test_columns_that_change_places_have_another_hash() -> None:
    assert plan_hash("[a#1, b#2] sum(a#1)", []) != plan_hash("[a#1, b#2] sum(b#2)", [])


def test_what_the_plan_does_not_say_is_in_the_hash_too() -> None:
    assert plan_hash(RIGHT, ["auction", 4]) != plan_hash(RIGHT, ["auction", 8])
