"""What a shard of an early plan says in a batch: right, legal, the same in every replay, and taken back if told so."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from lmerge import TDB, Adjust, Event, Insert, Stable
from lmerge.errors import IllegalElement, UsageError
from replicas.operators import Function, Mode, UnusableState, average, count, maximum, minimum, top, total
from replicas.shard import HeartbeatRow, Recipe, Row, Said, advance
from replicas.windows import Windows

SLIDING = Windows(width_ms=10, slide_ms=5)
TUMBLING = Windows(width_ms=10, slide_ms=10)
DISORDER = 7


class Shard:
    """A shard that is saved and loaded between batches, as Spark does."""

    def __init__(self, recipe: Recipe, windows: Windows) -> None:
        self._recipe = recipe
        self._windows = windows
        self.state: bytes | None = None

    def take(self, rows: Iterable[Row], heartbeat: HeartbeatRow) -> list[Said]:
        said, self.state = advance(self._recipe.operator(self._windows), self.state, rows, heartbeat)
        return said


def batches(rng: random.Random, *, rows: int, size: int) -> list[tuple[list[Row], HeartbeatRow]]:
    """Make batches of rows with few prices and groups; tau follows the newest row by the bound on disorder."""
    made: list[tuple[list[Row], HeartbeatRow]] = []
    newest = tau = 50
    for offset in range(rows):
        if not offset % size:
            made.append(([], HeartbeatRow(tau)))
        ts = max(newest + rng.randrange(-DISORDER, 4), tau + 1)
        newest, tau = max(newest, ts), max(tau, newest - DISORDER)
        price = rng.randrange(4)
        made[-1][0].append(Row(rng.randrange(3), offset, ts, (rng.randrange(3),), (price, -offset)))
        made[-1] = (made[-1][0], HeartbeatRow(tau))
    return [*made, ([], HeartbeatRow(newest + 100))]


def apply(tdb: TDB, said: Sequence[Said]) -> None:
    assert [one.sequence for one in said] == sorted(one.sequence for one in said)
    for one in said:
        insert = one.vold is None
        tdb.apply(Insert(one.payload, one.vs, one.ve) if insert else Adjust(one.payload, one.vs, one.vold or 0, one.ve))


def windows_of(ts: int, windows: Windows) -> Iterable[int]:
    last = ts // windows.slide_ms * windows.slide_ms
    return (start for start in range(last, ts - windows.width_ms, -windows.slide_ms))


def truth(rows: Iterable[Row], windows: Windows, answers: Callable[[list[Any]], Iterable[tuple[Any, ...]]]) -> TDB:
    """Compute by hand: `answers` from the values of a window and group to the columns of its answers."""
    values: defaultdict[tuple[int, Any], list[Any]] = defaultdict(list)
    for row in rows:
        for start in windows_of(row.ts, windows):
            values[start, row.group].append(row.value)
    return TDB(
        Event((*group, *answer), start, start + windows.width_ms)
        for (start, group), some in values.items()
        for answer in answers(some)
    )


def best_three(values: list[Any]) -> Iterable[tuple[Any, ...]]:
    return [(rank, *value) for rank, value in enumerate(sorted(values, reverse=True)[:3], 1)]


FUNCTIONS: list[tuple[Function, Callable[[list[Any]], Iterable[tuple[Any, ...]]]]] = [
    (count(), lambda values: [(len(values),)]),
    (maximum(), lambda values: [max(values)]),
    (minimum(), lambda values: [min(values)]),
    (top(3), best_three),
    (total(), lambda values: [(sum(price for price, _ in values),)]),
]


@pytest.mark.parametrize("windows", [SLIDING, TUMBLING])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("function", "answers"), FUNCTIONS)
def test_a_shard_is_legal_promises_what_the_sink_does_and_ends_in_the_truth(
    function: Function, answers: Callable[[list[Any]], Iterable[tuple[Any, ...]]], mode: Mode, windows: Windows
) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        shard, tdb, rows = Shard(Recipe(function, mode), windows), TDB(), []
        for some, heartbeat in batches(rng, rows=60, size=rng.choice([1, 5, 20])):
            apply(tdb, shard.take(some, heartbeat))
            assert heartbeat.tau is not None
            tdb.apply(Stable(windows.first_open(heartbeat.tau + 1)))
            rows += some
        assert tdb == truth(rows, windows, answers)


def test_what_a_shard_says_and_keeps_is_a_function_of_the_set_of_rows() -> None:
    """As in S4: a tie of two bids, in the other order."""
    for function, _ in FUNCTIONS:
        shards = [Shard(Recipe(function, Mode.EAGER), SLIDING) for _ in range(2)]
        for some, heartbeat in batches(random.Random(3), rows=60, size=9):
            first, second = (
                shard.take(order, heartbeat) for shard, order in zip(shards, (some, some[::-1]), strict=True)
            )
            assert first == second
            assert shards[0].state == shards[1].state


def rows_at(*times: int) -> list[Row]:
    return [Row(0, number, ts, (7,), ()) for number, ts in enumerate(times)]


@pytest.mark.parametrize("mode", [Mode.EAGER, Mode.ORDERED])
def test_f4_what_is_skipped_is_taken_back_before_the_skip_and_once(mode: Mode) -> None:
    shard = Shard(Recipe(count(), mode), Windows(width_ms=10, slide_ms=10))
    shard.take(rows_at(101, 105), HeartbeatRow(tau=100))
    said = shard.take(rows_at(106, 113, 131), HeartbeatRow(tau=129, before=120))
    end = 110 if mode is Mode.EAGER else 2**63 - 1
    assert said[0] == Said(-1, end, 100, 100, (7, 2))
    assert [one.sequence for one in said[1:]] == [*range(len(said) - 1)]
    assert all(one.vs >= 110 for one in said[1:])
    assert not [one for one in shard.take([], HeartbeatRow(tau=129, before=120)) if one.sequence < 0]


def test_a_cold_start_says_nothing_of_what_it_cannot_know() -> None:
    shard = Shard(Recipe(count(), Mode.EAGER), Windows(width_ms=10, slide_ms=10))
    said = shard.take(rows_at(101, 119, 121), HeartbeatRow(tau=None, before=125))
    assert said == [Said(0, None, 120, 130, (7, 1))]


def test_a_row_that_was_ruled_out_is_refused() -> None:
    shard = Shard(Recipe(count(), Mode.EAGER), SLIDING)
    shard.take([], HeartbeatRow(tau=100))
    with pytest.raises(IllegalElement, match=r"comes after Stable\(101\)"):
        shard.take(rows_at(100), HeartbeatRow(tau=100))


def test_a_state_of_another_program_or_plan_is_refused_with_a_way_out() -> None:
    shard = Shard(Recipe(count(), Mode.EAGER), SLIDING)
    shard.take(rows_at(101), HeartbeatRow(tau=100))
    good = shard.state
    assert good is not None
    frame = msgspec.msgpack.decode(good)
    damaged = msgspec.msgpack.encode([*frame[:4], frame[4][:-1] + b"?"])
    later = msgspec.msgpack.encode([frame[0], frame[1] + 1, *frame[2:]])
    for state, recipe, said in [
        (damaged, Recipe(count(), Mode.EAGER), "damaged, the checksum of its content is wrong"),
        (later, Recipe(count(), Mode.EAGER), "version [2], this program reads 1"),
        (good, Recipe(count(), Mode.ORDERED), "the plan has changed"),
        (b"pickle", Recipe(count(), Mode.EAGER), "damaged or foreign bytes"),
    ]:
        with pytest.raises(UnusableState) as caught:
            advance(recipe.operator(SLIDING), state, [], HeartbeatRow())
        assert said in str(caught.value)
        assert "window aggregate(10 every 5 from 0, count, eager)" in str(caught.value)
        assert str(caught.value).endswith("move the replica's directory away to let it begin a new incarnation")


@pytest.mark.parametrize(
    ("function", "values", "said"),
    [
        (count(), 1, "count counts rows and looks at no value: leave `of` out"),
        (maximum(), 0, "max needs a value: say `of` what"),
        (average(), 2, "average 2 of 0 takes one value, not 2"),
    ],
)
def test_a_function_of_too_many_or_too_few_values_is_refused(function: Function, values: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Recipe(function, Mode.EAGER).check(values)


def test_the_text_of_a_recipe_tells_functions_and_modes_apart() -> None:
    texts = Counter(Recipe(function, mode).text for function, _ in FUNCTIONS for mode in Mode)
    assert set(texts.values()) == {1}
