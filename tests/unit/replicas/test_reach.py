"""How far a row reaches into the results, read off the plan."""

import pytest

from replicas.queries import category_prices, hot_items, top_bids
from replicas.reach import infer_reach_ms
from replicas.shape import Expression, Node

SECOND = 1_000_000
TS, WINDOW, PANE_TIME, VE, OTHER = 1, 2, 3, 9, 11


def column(number: int) -> Expression:
    return Expression("column", number=number)


def number(value: int) -> Expression:
    return Expression("number", number=value)


def start_of(time: Expression, slide_s: int, back_s: int = 0) -> Expression:
    """Spark's own: (time - (time mod slide)) - back."""
    begin = Expression("subtract", (time, Expression("modulo", number=slide_s * SECOND)))
    return Expression("subtract", (begin, number(back_s * SECOND)))


def window_of(time: Expression, width_s: int, slide_s: int, back_s: int = 0) -> Expression:
    begin = start_of(time, slide_s, back_s)
    return Expression("struct", (begin, Expression("add", (begin, number(width_s * SECOND)))))


def source(ts: int = TS, *further: int) -> Node:
    read = Node(kind="StreamingRelationV2", columns=(ts, *further))
    watermark = Node(kind="EventTimeWatermark", inputs=(read,), columns=(ts, *further), event_time=ts)
    return Node(kind="Filter", inputs=(watermark,), columns=(ts, *further))


def select(below: Node, **made: Expression) -> Node:
    places = {"ve": VE, "window": WINDOW, "pane_time": PANE_TIME}
    values = {places[name]: (value,) for name, value in made.items()}
    return Node(kind="Project", inputs=(below,), columns=tuple(values), values=values)


def millis(time: Expression) -> Expression:
    return Expression("millis", (time,))


def field(of: Expression, place: int) -> Expression:
    return Expression("field", (of,), place)


def aggregate(below: Node) -> Node:
    return Node(kind="Aggregate", inputs=(below,), columns=(WINDOW,), copies={WINDOW: WINDOW}, windows=1)


def windowed(below: Node, time: int, width_s: int, slide_s: int) -> Node:
    """Group by windows over a column."""
    ways = tuple(window_of(column(time), width_s, slide_s, back) for back in (0, width_s - slide_s))
    return aggregate(Node(kind="Expand", inputs=(below,), columns=(WINDOW,), values={WINDOW: ways}))


def end_of_window(below: Node) -> Node:
    return select(below, ve=millis(field(column(WINDOW), 1)))


def instant(below: Node, time: Expression, plus_ms: int = 1) -> Node:
    return select(below, ve=Expression("add", (millis(time), number(plus_ms))))


def panes(length_s: int) -> Node:
    """Panes, and the time inside of each that stands for it: its end less a microsecond."""
    time = Expression("subtract", (field(column(WINDOW), 1), number(1)))
    return select(windowed(source(), TS, length_s, length_s), pane_time=time)


def deduplicated(*keys: int) -> Node:
    return Node(kind="Deduplicate", inputs=(source(TS, 5),), columns=(TS, 5), keys=keys)


JOIN = Node(kind="Join", inputs=(source(TS), source(OTHER)), columns=(TS, OTHER), join="Inner", range_ms=20_000)


@pytest.mark.parametrize(
    ("plan", "reach_ms"),
    [
        (instant(source(), column(TS)), 1),
        (instant(source(), column(TS), plus_ms=3_600_001), 3_600_001),
        (end_of_window(windowed(source(), TS, 10, 10)), 10_000),
        (end_of_window(windowed(source(), TS, 10, 2)), 10_000),
        (end_of_window(windowed(source(), TS, 60, 10)), 60_000),
        (end_of_window(windowed(panes(2), PANE_TIME, 10, 2)), 11_999),
        (instant(JOIN, Expression("greatest", (column(TS), column(OTHER)))), 20_001),
        (end_of_window(windowed(JOIN, TS, 10, 10)), 30_000),
        (instant(deduplicated(5, TS), column(TS)), 1),
        (Node(kind="Union", inputs=(instant(source(), column(TS)),) * 2, columns=(VE,)), 1),
        (
            Node(
                kind="Union",
                inputs=(instant(source(), column(TS)), instant(source(), column(TS), plus_ms=9)),
                columns=(VE,),
            ),
            9,
        ),
    ],
)
def test_a_row_reaches_as_far_as_the_ends_that_are_made_of_its_time(plan: Node, reach_ms: int) -> None:
    assert infer_reach_ms(plan, 0) == reach_ms


def test_a_lifetime_of_the_declared_length_that_begins_with_the_end_of_a_longer_window_reaches_further() -> None:
    later = Expression("add", (millis(field(column(WINDOW), 1)), number(10_000)))
    assert infer_reach_ms(select(windowed(source(), TS, 60, 10), ve=later), 0) == 70_000


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(instant(deduplicated(5), column(TS)), id="an old row hides a new one"),
        pytest.param(instant(source(TS, 5), column(5)), id="a field of the row"),
        pytest.param(select(source(), ve=column(TS)), id="no milliseconds"),
        pytest.param(select(aggregate(source()), ve=millis(column(5))), id="what an aggregate computes"),
        pytest.param(
            instant(source(), Expression("subtract", (number(0), column(TS)))), id="what goes against the time"
        ),
        pytest.param(
            instant(source(TS, 5), Expression("greatest", (column(TS), column(5)))), id="the greatest of a field"
        ),
        pytest.param(
            Node(kind="Union", inputs=(instant(source(), column(TS)), source()), columns=(VE,)), id="half of a union"
        ),
        pytest.param(Node(kind="Sort", inputs=(instant(source(), column(TS)),), columns=(VE,)), id="unknown shape"),
    ],
)
def test_what_is_not_known_to_be_near_the_time_of_its_rows_has_no_reach(plan: Node) -> None:
    assert infer_reach_ms(plan, 0) is None


def test_plans_of_panes_inside_of_their_windows_state_a_reach_that_is_shorter_than_what_is_inferred() -> None:
    for query, plan, reach_ms in (
        (hot_items.QUERY, "panes", 10_000),
        (top_bids.QUERY, "panes", 10_000),
        (category_prices.QUERY, "by_auction", 30_000),
    ):
        stated = query.plan(plan).reach_ms
        assert stated is not None
        assert stated(query.windows) == reach_ms
