"""What a plan promises, inferred from its operators; how Spark's own plans read is tested with the shipped queries."""

import pytest

from lmerge.choose import choose
from lmerge.errors import UsageError
from lmerge.properties import BY_RANK, Order, StreamProperties
from replicas.checkpoint import BatchOffsets
from replicas.progress import AT_ONCE, AT_WATERMARK, Progress
from replicas.query import Plan, Query
from replicas.result import require_result
from replicas.shape import Node, UnknownShape, infer, require_order_free
from replicas.windows import INSTANTS, Windows

SOURCE = Node(
    kind="Filter",
    columns=(1, 2),
    inputs=(Node(kind="EventTimeWatermark", columns=(1, 2), inputs=(Node(kind="StreamingRelationV2"),)),),
)


def count(below: Node, *groups: int | None, windows: int = 1) -> Node:
    columns = (*(group for group in groups if group is not None), 9)
    return Node(kind="Aggregate", inputs=(below,), columns=columns, windows=windows, groups=groups)


def select(below: Node, *kept: int) -> Node:
    return Node(kind="Project", inputs=(below,), columns=kept, copies={column + 100: column for column in kept})


def join(left: Node, right: Node, kind: str = "Inner", range_ms: int | None = 20) -> Node:
    return Node(kind="Join", inputs=(left, right), join=kind, range_ms=range_ms)


def algorithm(plan: Node, rank: str | None = None) -> str:
    return choose(infer(plan, rank=rank).properties).algorithm


def test_a_plan_without_state_promises_inserts_and_is_complete_at_once() -> None:
    assert infer(select(SOURCE, 1), rank=None) == (StreamProperties(insert_only=True), AT_ONCE)
    assert algorithm(select(SOURCE, 1)) == "R4"


def test_one_result_per_window_is_r0_whatever_is_projected() -> None:
    assert infer(count(SOURCE), rank=None) == (StreamProperties.r0(), AT_WATERMARK)
    assert algorithm(select(count(SOURCE))) == "R0"


def test_a_result_per_group_is_r2_as_long_as_every_group_is_in_the_result() -> None:
    assert algorithm(count(SOURCE, 1, 2)) == "R2"
    assert algorithm(select(count(SOURCE, 1, 2), 2, 1, 9)) == "R2"
    assert algorithm(select(select(count(SOURCE, 1), 1, 9), 101)) == "R2"
    assert algorithm(select(count(SOURCE, 1, 2), 1, 9)) == "R4", "results of two groups may be equal"
    assert algorithm(count(SOURCE, 1, None)) == "R4"


def test_a_second_aggregate_makes_a_key_of_its_own() -> None:
    assert algorithm(count(select(count(SOURCE, 1, 2), 9), 109)) == "R2"
    assert algorithm(count(select(count(SOURCE, 1, 2), 9))) == "R0"


def test_exploded_results_are_r1_if_the_query_has_a_rank_that_the_sink_sorts_by() -> None:
    top = Node(kind="Generate", inputs=(count(SOURCE),))
    assert algorithm(top) == "R4"
    assert algorithm(select(top), rank="rank") == "R1"
    assert infer(top, rank="rank").properties.tie_order == BY_RANK
    assert infer(top, rank="rank").properties.order is Order.NON_DECREASING


def test_a_rank_orders_nothing_where_results_come_in_any_order() -> None:
    assert infer(join(SOURCE, SOURCE), rank="rank").properties == StreamProperties(insert_only=True)


def test_a_join_is_complete_at_once_and_delays_the_windows_above_it() -> None:
    joined = join(SOURCE, select(SOURCE, 1), range_ms=20)
    assert infer(joined, rank=None) == (StreamProperties(insert_only=True), Progress(at_once=True, delay_ms=20))
    assert infer(count(select(joined, 1), 101), rank=None) == (StreamProperties.r2(), Progress(delay_ms=20))
    assert infer(count(count(joined, 1), 1), rank=None).progress == Progress(delay_ms=20)


def test_a_union_of_sources_is_as_they_are() -> None:
    both = Node(kind="Union", inputs=(SOURCE, SOURCE))
    assert infer(both, rank=None) == (StreamProperties(insert_only=True), AT_ONCE)
    assert algorithm(count(both, 1)) == "R2"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Node(kind="Sort", inputs=(SOURCE,)), "the operator Sort is none of Aggregate"),
        (count(SOURCE, 1, windows=0), "an aggregate by 0 windows"),
        (count(SOURCE, windows=2), "an aggregate by 2 windows"),
        (join(SOURCE, SOURCE, kind="LeftOuter"), "a join of type LeftOuter"),
        (join(SOURCE, SOURCE, range_ms=None), "without bounds on time"),
        (join(count(SOURCE, 1), SOURCE), "a join of aggregates or of joins"),
        (join(join(SOURCE, SOURCE), SOURCE), "a join of aggregates or of joins"),
        (
            Node(kind="Union", inputs=(SOURCE, count(SOURCE, 1))),
            "a union of inputs that are complete at different times",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_a_reason(plan: Node, said: str) -> None:
    with pytest.raises(UnknownShape, match=said):
        infer(count(plan) if plan.kind == "Sort" else plan, rank=None)


def test_sums_of_floats_and_deduplications_that_choose_a_row_are_refused_wherever_they_are() -> None:
    require_order_free(count(Node(kind="Deduplicate", inputs=(SOURCE,), columns=(1, 2), keys=(2, 1)), 1))
    with pytest.raises(UsageError, match="the function avg adds up floats"):
        require_order_free(select(Node(kind="Aggregate", inputs=(SOURCE,), windows=1, inexact=("avg",))))
    with pytest.raises(UsageError, match="keeps columns that are no keys"):
        require_order_free(count(Node(kind="Deduplicate", inputs=(SOURCE,), columns=(1, 2), keys=(1,)), 1))


def test_results_at_the_watermark_wait_for_joins_and_before_a_heartbeat_nothing_is_complete() -> None:
    def at(watermark: int) -> BatchOffsets:
        return BatchOffsets(watermark=watermark, sources=[])

    assert [AT_WATERMARK.complete(at(watermark)) for watermark in (0, 70)] == [0, 70]
    assert [Progress(delay_ms=20).complete(at(watermark)) for watermark in (0, 10, 70)] == [0, 0, 50]


def test_results_at_once_are_complete_to_the_smallest_tau_of_all_sources() -> None:
    def of(*taus: int | None) -> BatchOffsets:
        return BatchOffsets(watermark=5, sources=[{"tau": tau} for tau in taus])

    assert AT_ONCE.complete(of(95, 90)) == 91
    assert AT_ONCE.complete(of(95, None)) == 0
    assert AT_ONCE.complete(BatchOffsets(watermark=5, sources=[{"tau": 95}, None])) == 0
    assert INSTANTS.first_open(91) == 91, "stable(tau + 1)"


QUERY = Query(
    name="q",
    sources={"bids": {"auction": int}},
    key=("auction",),
    rank="rank",
    plans={"p": Plan(build=lambda sources, _windows: sources["bids"])},
)
RESULT = {"auction": "bigint", "rank": "int", "average": "decimal(20,2)", "vs": "bigint", "ve": "bigint"}


def test_a_result_of_exact_columns_is_taken() -> None:
    require_result(QUERY, "q.sql:7", RESULT | {"tags": "array<struct<name:string>>", "open": "boolean"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vs": None}, "needs a column vs of type bigint, milliseconds, not none; for a window it is unix_millis"),
        ({"ve": "timestamp"}, "needs a column ve of type bigint, milliseconds, not timestamp"),
        ({"auction": None}, "has no column auction, which the query names as key"),
        ({"rank": None}, "has no column rank, which the query names as rank"),
        ({"average": "double"}, "column average is double: a sum of floats depends on the order"),
        ({"average": "array<float>"}, "column average is array<float>"),
        ({"opened": "timestamp"}, "column opened is timestamp, which JSON has not"),
    ],
)
def test_a_result_that_cannot_be_is_refused_with_the_place_of_its_plan(
    change: dict[str, str | None], said: str
) -> None:
    columns = {name: kind for name, kind in (RESULT | change).items() if kind is not None}
    with pytest.raises(UsageError) as caught:
        require_result(QUERY, "q.sql:7", columns)
    assert str(caught.value).startswith("q.sql:7: ")
    assert said in str(caught.value)


def test_only_operators_have_the_columns_of_operators() -> None:
    columns = RESULT | {"_vold": "bigint"}
    require_result(QUERY, "q.py:7", columns, hosted=True)
    with pytest.raises(UsageError, match=r"q\.py:7: a column cannot be named _vold"):
        require_result(QUERY, "q.py:7", columns)


def test_a_result_that_says_nothing_is_refused() -> None:
    silent = Query(name="q", sources=QUERY.sources, plans=QUERY.plans)
    with pytest.raises(UsageError, match="no column but vs and ve"):
        require_result(silent, "q.sql:7", {"vs": "bigint", "ve": "bigint"})


def test_windows_that_tumble_go_on_to_do_so_and_instants_have_no_length() -> None:
    tumbling, sliding = Windows(width_ms=10, slide_ms=10), Windows(width_ms=10, slide_ms=5)
    assert tumbling.resized(width_ms=20, slide_ms=None) == Windows(width_ms=20, slide_ms=20)
    assert sliding.resized(width_ms=20, slide_ms=None) == Windows(width_ms=20, slide_ms=5)
    assert sliding.resized(width_ms=None, slide_ms=2) == Windows(width_ms=10, slide_ms=2)
    assert INSTANTS.resized(width_ms=None, slide_ms=None) == INSTANTS
    with pytest.raises(UsageError, match="tumble"):
        tumbling.resized(width_ms=None, slide_ms=5)
    with pytest.raises(UsageError, match="has no windows"):
        INSTANTS.resized(width_ms=5, slide_ms=None)
