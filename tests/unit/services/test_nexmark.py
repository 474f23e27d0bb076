"""The NEXMark rows: what they say, where they go and in which order, from the seed alone."""

import hashlib
from collections import Counter
from itertools import islice
from typing import Any

import msgspec
import pytest

from lmerge.errors import UsageError
from services.workload.nexmark import (
    AUCTIONS,
    BIDS,
    CATEGORIES,
    HELD_ROWS,
    PERSONS,
    START_MS,
    TOPICS,
    Parameters,
    Row,
    close_rows,
    partition_of,
    rows,
)

KEYS = {
    PERSONS: ["id", "name", "email", "city", "state", "date_time"],
    AUCTIONS: [
        "id",
        "item_name",
        "description",
        "initial_bid",
        "reserve",
        "seller",
        "category",
        "expires",
        "date_time",
    ],
    BIDS: ["id", "auction", "bidder", "price", "date_time"],
}
DISORDERED = Parameters(seed=7, rows=5_000, event_rate=2_000, partitions=3, disorder_ms=250, skew_ms=700)
# Of all rows, in order: another number means that the same seed no longer gives the rows that it gave.
GOLDEN = "6bfd64b871a041d426ecc4ae7035156ce20656698003ee1f0ffa833029e50498"


def made(**parameters: Any) -> list[Row]:
    return list(rows(Parameters(**parameters)))


def of(topic: str, all_rows: list[Row]) -> list[dict[str, Any]]:
    return [row.fields for row in all_rows if row.topic == topic]


@pytest.fixture(scope="module")
def many() -> list[Row]:
    return made(seed=1, rows=100_000)


def test_of_every_fifty_rows_one_is_a_person_three_are_auctions_and_the_rest_bids(many: list[Row]) -> None:
    for first in range(0, len(many), 50):
        assert [row.topic for row in many[first : first + 50]] == [PERSONS] + 3 * [AUCTIONS] + 46 * [BIDS]


def test_ids_are_consecutive_and_fields_have_one_order(many: list[Row]) -> None:
    for topic in TOPICS:
        fields = of(topic, many)
        assert [row["id"] for row in fields] == list(range(1_000, 1_000 + len(fields)))
        assert {tuple(row) for row in fields} == {tuple(KEYS[topic])}


def test_event_time_advances_by_the_event_rate_alone() -> None:
    slow = made(rows=3, event_rate=2, start_ms=10)
    assert [row.ts for row in slow] == [row.fields["date_time"] for row in slow] == [10, 510, 1_010]
    fast = made(rows=60_000, event_rate=30_000)
    assert [row.ts - START_MS for row in fast] == [number // 30 for number in range(60_000)]


def test_half_of_the_bids_go_to_the_hot_auction_and_three_quarters_come_from_the_hot_bidder(many: list[Row]) -> None:
    newest_auction = newest_person = 0
    hits: Counter[str] = Counter()
    for row in many:
        if row.topic == PERSONS:
            newest_person = int(row.fields["id"]) - 1_000
        elif row.topic == AUCTIONS:
            newest_auction = int(row.fields["id"]) - 1_000
            hits["seller"] += row.fields["seller"] == 1_000 + newest_person // 100 * 100
        else:
            hits["auction"] += row.fields["auction"] == 1_000 + newest_auction // 100 * 100
            hits["bidder"] += row.fields["bidder"] == 1_001 + newest_person // 100 * 100
    # Chance adds to the shares: one in a hundred of the other bids goes to the hot auction too.
    assert 0.50 <= hits["auction"] / 92_000 <= 0.51
    assert 0.74 <= hits["bidder"] / 92_000 <= 0.76
    assert 0.74 <= hits["seller"] / 6_000 <= 0.77


def test_bids_and_auctions_refer_to_what_exists_and_is_recent(many: list[Row]) -> None:
    persons, auctions = 1_000, 1_000  # the next ids
    for row in many:
        if row.topic == PERSONS:
            persons += 1
        elif row.topic == AUCTIONS:
            auctions += 1
            assert persons - 1_100 <= row.fields["seller"] < persons  # type: ignore[operator]
        else:
            assert max(1_000, auctions - 100) <= row.fields["auction"] < auctions  # type: ignore[operator]
            assert max(1_000, persons - 1_100) <= row.fields["bidder"] < persons  # type: ignore[operator]


def test_prices_are_whole_cents_and_any_size_is_as_likely_as_any_other(many: list[Row]) -> None:
    prices = [bid["price"] for bid in of(BIDS, many)]
    assert {type(price) for price in prices} == {int}
    assert min(prices) >= 100
    assert max(prices) < 100 << 20
    sizes = Counter((price // 100).bit_length() for price in prices)
    assert sorted(sizes) == list(range(1, 21))
    assert max(sizes.values()) < 1.1 * min(sizes.values())


def test_auctions_have_a_category_a_reserve_above_the_first_bid_and_an_end(many: list[Row]) -> None:
    auctions = of(AUCTIONS, many)
    categories = Counter(auction["category"] for auction in auctions)
    assert sorted(categories) == list(CATEGORIES)
    assert max(categories.values()) < 1.2 * min(categories.values())
    assert all(auction["reserve"] > auction["initial_bid"] >= 100 for auction in auctions)
    lengths = [auction["expires"] - auction["date_time"] for auction in auctions]
    assert min(lengths) > 0
    # As many auctions as are open at a time, 100, begin in 1,666 ms.
    assert 1_600 < sum(lengths) / len(lengths) < 1_730


def test_a_key_has_one_partition_and_bids_are_with_their_auction(many: list[Row]) -> None:
    for row in many:
        name = "auction" if row.topic == BIDS else "id"
        assert row.key == str(row.fields[name]).encode()
        assert row.partition == partition_of(row.key, 4)
    for topic in TOPICS:
        filled = Counter(row.partition for row in many if row.topic == topic)
        assert sorted(filled) == [0, 1, 2, 3]
        assert min(filled.values()) > 0.2 * filled.total()


def test_the_same_seed_gives_the_same_rows_byte_for_byte() -> None:
    digest = hashlib.sha256()
    for row in rows(DISORDERED):
        digest.update(b"%s/%d %s %d " % (row.topic.encode(), row.partition, row.key, row.ts))
        digest.update(msgspec.json.encode(row.fields) + b"\n")
    assert digest.hexdigest() == GOLDEN


def test_another_seed_gives_other_rows() -> None:
    assert made(seed=1, rows=100) != made(seed=2, rows=100)


def test_a_run_without_an_end_begins_like_a_short_one() -> None:
    assert list(islice(rows(Parameters(seed=3)), 200)) == made(seed=3, rows=200)


def test_disorder_and_skew_change_the_order_of_the_rows_and_nothing_else() -> None:
    plain = list(rows(msgspec.structs.replace(DISORDERED, disorder_ms=0, skew_ms=0)))
    shuffled = list(rows(DISORDERED))
    assert shuffled != plain
    assert sorted(shuffled, key=lambda row: (row.ts, row.topic, row.fields["id"])) == sorted(
        plain, key=lambda row: (row.ts, row.topic, row.fields["id"])
    )


def disorder(all_rows: list[Row]) -> dict[tuple[str, int], int]:
    """How far a row is behind the newest one before it, at most, for each partition of each topic."""
    newest: dict[tuple[str, int], int] = {}
    worst: Counter[tuple[str, int]] = Counter()
    for row in all_rows:
        place = (row.topic, row.partition)
        newest[place] = max(newest.get(place, row.ts), row.ts)
        worst[place] = max(worst[place], newest[place] - row.ts)
    return dict(worst)


@pytest.mark.parametrize("skew_ms", [0, 3_000])
def test_the_disorder_bound_is_kept_in_every_partition_and_reached(skew_ms: int) -> None:
    worst = disorder(made(rows=50_000, partitions=2, disorder_ms=40, skew_ms=skew_ms))
    assert len(worst) == 6
    assert all(distance <= 40 for distance in worst.values())
    assert worst[BIDS, 0] == worst[BIDS, 1] == 40


def test_without_disorder_every_partition_is_in_order_however_skewed() -> None:
    assert set(disorder(made(rows=20_000, skew_ms=3_000)).values()) == {0}


def test_partition_p_runs_p_times_the_skew_behind_partition_0() -> None:
    arrived = made(rows=20_000, skew_ms=3_000)
    clock = [row.ts + 3_000 * row.partition for row in arrived]
    assert clock == sorted(clock)
    steady = [row for row in arrived if row.topic == BIDS][8_000:9_000]
    newest = [max(row.ts for row in steady if row.partition == partition) for partition in range(4)]
    for partition in (1, 2, 3):
        # Up to the gaps between the rows of one partition.
        assert newest[0] - newest[partition] == pytest.approx(3_000 * partition, abs=100)


def test_closing_rows_are_ahead_of_all_others_in_every_partition() -> None:
    parameters = Parameters(partitions=3, disorder_ms=50, prefix="x.")
    closing = close_rows(parameters, newest_ms=1_000, ahead_ms=60_000)
    assert sorted((row.topic, row.partition) for row in closing) == [
        (f"x.{topic}", partition) for topic in sorted(TOPICS) for partition in range(3)
    ]
    assert {row.ts for row in closing} == {row.fields["date_time"] for row in closing} == {61_050}
    for topic in TOPICS:
        assert {tuple(fields) for fields in of(f"x.{topic}", closing)} == {tuple(KEYS[topic])}
    assert [bid["auction"] for bid in of("x.bids", closing)] == [auction["id"] for auction in of("x.auctions", closing)]
    assert all(int(row.fields["id"]) < 0 for row in closing)


@pytest.mark.parametrize("name", ["seed", "rows", "event_rate", "partitions", "disorder_ms", "skew_ms", "start_ms"])
def test_a_negative_parameter_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} -1: must be at least"):
        Parameters(**{name: -1})  # type: ignore[arg-type]


def test_more_rows_held_back_than_fit_into_memory_are_refused() -> None:
    skew = HELD_ROWS // 3
    assert Parameters(skew_ms=skew).held_rows() == 3 * skew
    with pytest.raises(UsageError, match=r"hold back 1,000,002 rows"):
        Parameters(skew_ms=skew + 1)
    assert Parameters(skew_ms=10**9, rows=500).held_rows() == 500
