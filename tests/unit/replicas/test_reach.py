"""How far a row reaches into the results, read off the plan."""

import pytest

from replicas.queries import category_prices, hot_items, top_bids
from replicas.reach import infer_reach_ms
from replicas.shape import Node
from replicas.windows import INSTANTS, Windows

TUMBLING = Windows(width_ms=10_000, slide_ms=10_000)
SOURCE = Node(kind="StreamingRelationV2")
JOIN = Node(kind="Join", inputs=(SOURCE, SOURCE), join="Inner", range_ms=20_001)


def aggregate(below: Node) -> Node:
    return Node(kind="Aggregate", inputs=(Node(kind="Filter", inputs=(below,)),), windows=1)


@pytest.mark.parametrize(
    ("plan", "windows", "reach_ms"),
    [
        (SOURCE, INSTANTS, 1),
        (aggregate(SOURCE), TUMBLING, 10_000),
        (aggregate(SOURCE), Windows(width_ms=10_000, slide_ms=2_000), 10_000),
        (JOIN, INSTANTS, 20_002),
        (aggregate(JOIN), TUMBLING, 30_001),
        (aggregate(aggregate(SOURCE)), TUMBLING, None),
        (Node(kind="Union", inputs=(SOURCE, aggregate(aggregate(SOURCE)))), TUMBLING, None),
        (Node(kind="Sort", inputs=(SOURCE,)), TUMBLING, None),
    ],
)
def test_a_row_reaches_as_far_as_its_window_and_the_range_of_a_join(
    plan: Node, windows: Windows, reach_ms: int | None
) -> None:
    assert infer_reach_ms(plan, windows) == reach_ms


def test_plans_that_aggregate_twice_state_their_reach() -> None:
    for query, plan, reach_ms in (
        (hot_items.QUERY, "panes", 10_000),
        (top_bids.QUERY, "panes", 10_000),
        (category_prices.QUERY, "by_auction", 30_000),
    ):
        stated = query.plan(plan).reach_ms
        assert stated is not None
        assert stated(query.windows) == reach_ms
