"""NEXMark's auction house from a seed: rows, where they belong, and the order in which they arrive.

The benchmark's own shape: of 50 events in a row the first is a person, the next three are auctions, 46 are bids. Half
of the bids go to the *hot* auction, the first of the newest hundred; three quarters of them come from the hot bidder
and three quarters of the auctions from the hot seller, chosen alike. All others fall on the newest 100 auctions and
1,000 persons, so that neither the keys nor what there is per key grow or thin out as a run goes on.

Where we differ, so that a true answer can be computed and compared byte for byte:

- nothing refers to an auction or a person that does not exist yet in event time (the benchmark is up to 10 ids ahead);
- bids have an id: ties can be broken totally, and a row that is lost or repeated can be named;
- prices are whole cents and no floating-point function has a say in them;
- there is no padding, and no credit card.

Pure: the rows are a function of `Parameters`, without a clock. What a row says, its time and its partition depend
neither on disorder nor on skew; these only change the order. Event n has the time `start_ms + 1000 n / event_rate`, and
arrives at

    arrival = ts + delay + partition * skew_ms        0 <= delay <= disorder_ms

If a row of the same partition arrived earlier, `ts' + delay' <= ts + delay`, hence `ts' <= ts + disorder_ms`: the bound
is kept, and it is reached too, as of two rows that arrive in one millisecond the less delayed one goes first.
"""

import random
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeAlias, TypeVar
from zlib import crc32

import msgspec

from lmerge.errors import UsageError

PERSONS, AUCTIONS, BIDS = "persons", "auctions", "bids"
TOPICS: Final = (PERSONS, AUCTIONS, BIDS)

EPOCH: Final = 50
AUCTIONS_PER_EPOCH: Final = 3
BIDS_PER_EPOCH: Final = 46

HOT_GROUP: Final = 100
"""One auction, bidder and seller in so many is hot."""
HOT_AUCTION_RATIO: Final = 2
HOT_BIDDER_RATIO: Final = 4
HOT_SELLER_RATIO: Final = 4
"""A ratio of r makes a share of 1 - 1/r hot."""

ACTIVE_PERSONS: Final = 1_000
OPEN_AUCTIONS: Final = 100
FIRST_ID: Final = 1_000
CATEGORIES: Final = (10, 11, 12, 13, 14)

START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z: fixed, as a default taken from the clock would make every run another one."""

HELD_ROWS: Final = 1_000_000
"""The most rows that disorder and skew may hold back: about 350 MB."""

_OCTAVES: Final = 20  # 1 to 1,048,576 units of money; the benchmark has 1 to 1,000,000
_FIRST_NAMES: Final = ("Ada", "Ben", "Cleo", "Dara", "Emil", "Fay", "Gus", "Hana", "Ivo", "June", "Kim")
_LAST_NAMES: Final = ("Abel", "Berg", "Cruz", "Dahl", "Egan", "Frost", "Glass", "Hale", "Ivers")
_CITIES: Final = (
    *(("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR")),
    *(("Bend", "OR"), ("Redmond", "WA"), ("Seattle", "WA"), ("Kent", "WA"), ("Cheyenne", "WY")),
)
_QUALITIES: Final = ("blue", "broken", "early", "large", "old", "rare", "signed", "small", "spare", "worn")
_THINGS: Final = ("atlas", "bicycle", "camera", "chair", "clock", "lamp", "piano", "radio", "stamp", "violin")

Fields: TypeAlias = dict[str, int | str]
_Choice = TypeVar("_Choice")


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """All that the rows depend on.

    Args:
        seed: another seed, other rows.
        rows: how many, the closing rows not counted; None: no end.
        event_rate: rows per second of event time.
        start_ms: event time of the first row.
        partitions: of each topic.
        disorder_ms: how far a row may be behind the newest row before it in its partition.
        skew_ms: partition p is p times this behind partition 0.
        prefix: what the topics' names begin with.

    Raises:
        UsageError: a value that makes no sense, or more rows held back than memory should.
    """

    seed: int = 0
    rows: int | None = None
    event_rate: int = 1_000
    start_ms: int = START_MS
    partitions: int = 4
    disorder_ms: int = 0
    skew_ms: int = 0
    prefix: str = ""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("seed", self.seed, 0),  # random.Random takes a negative seed for its absolute value
            ("rows", 0 if self.rows is None else self.rows, 0),
            ("event_rate", self.event_rate, 1),
            ("start_ms", self.start_ms, 0),
            ("partitions", self.partitions, 1),
            ("disorder_ms", self.disorder_ms, 0),
            ("skew_ms", self.skew_ms, 0),
        ):
            if value < least:
                raise UsageError(f"{name} {value}: must be at least {least}")
        if (held := self.held_rows()) > HELD_ROWS:
            raise UsageError(
                f"disorder of {self.disorder_ms} ms and skew of {self.skew_ms} ms over {self.partitions} partitions "
                f"hold back {held:,} rows at {self.event_rate:,} rows/s of event time, {HELD_ROWS:,} are the most: "
                "make one of the four smaller"
            )

    @property
    def lag_ms(self) -> int:
        """The longest time between a row's event time and its arrival."""
        return self.disorder_ms + self.skew_ms * (self.partitions - 1)

    def held_rows(self) -> int:
        """Bound the rows that wait for their arrival at one time."""
        held = self.lag_ms * self.event_rate // 1_000
        return held if self.rows is None else min(held, self.rows)

    def topics(self) -> list[str]:
        """Name the topics in full."""
        return [self.prefix + topic for topic in TOPICS]


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row for a partition of a topic; its event time `ts`, in milliseconds, is its field `date_time`.

    `gc=False`: nothing in it can refer back to it, and it is made by the million.
    """

    topic: str
    partition: int
    key: bytes
    fields: Fields
    ts: int


def rows(parameters: Parameters) -> Iterator[Row]:
    """Make the rows, in the order of their arrival."""
    made = _House(parameters).rows()
    return _in_order_of_arrival(made, parameters) if parameters.lag_ms else made


def close_rows(parameters: Parameters, *, newest_ms: int, ahead_ms: int) -> list[Row]:
    """Make one row for each partition of each topic that closes every window which ends before `newest + ahead`.

    They come last, and their time is `newest + ahead + disorder`, so that whoever allows for the disorder gets there
    too. Their ids are negative: no other row refers to them, nor they to others. They alone are not in the partition
    of their key.
    """
    ts = newest_ms + ahead_ms + parameters.disorder_ms
    persons, auctions, bids = parameters.topics()
    made = []
    for partition in range(parameters.partitions):
        own = -1 - partition
        key = b"%d" % own
        made += [
            Row(persons, partition, key, _person(own, "close", "", ("", ""), ts), ts),
            Row(auctions, partition, key, _closing_auction(own, ts), ts),
            Row(bids, partition, key, _bid(own, own, own, 0, ts), ts),
        ]
    return made


def partition_of(key: bytes, partitions: int) -> int:
    """Place a key: all rows of one key are in one partition, and an auction's bids are in that of the auction."""
    return crc32(key) % partitions


def _person(person_id: int, name: str, email: str, home: tuple[str, str], ts: int) -> Fields:
    city, state = home
    return {"id": person_id, "name": name, "email": email, "city": city, "state": state, "date_time": ts}


def _auction(
    auction_id: int,
    *,
    name: str,
    description: str,
    initial_bid: int,
    reserve: int,
    seller: int,
    category: int,
    expires: int,
    ts: int,
) -> Fields:
    return {
        "id": auction_id,
        "item_name": name,
        "description": description,
        "initial_bid": initial_bid,
        "reserve": reserve,
        "seller": seller,
        "category": category,
        "expires": expires,
        "date_time": ts,
    }


def _closing_auction(own: int, ts: int) -> Fields:
    free = {"initial_bid": 0, "reserve": 0, "category": 0}
    return _auction(own, name="close", description="", seller=own, expires=ts, ts=ts, **free)


def _bid(bid_id: int, auction: int, bidder: int, price: int, ts: int) -> Fields:
    return {"id": bid_id, "auction": auction, "bidder": bidder, "price": price, "date_time": ts}


class _House:
    """Makes the rows in the order of their event time.

    Chance is `random.random` alone, scaled by one multiplication: Python promises that its sequence stays the same
    from version to version, which it does not for the other methods.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._persons, self._auctions, self._bids = parameters.topics()
        self._draw = random.Random(parameters.seed).random  # noqa: S311 - chance that can be repeated
        # By then as many auctions as are open have followed; the mean length of an auction, as in the benchmark.
        self._horizon_ms = OPEN_AUCTIONS * EPOCH * 1_000 // (AUCTIONS_PER_EPOCH * parameters.event_rate)

    def rows(self) -> Iterator[Row]:
        """Make all rows."""
        parameters = self._parameters
        start, rate, partitions = parameters.start_ms, parameters.event_rate, parameters.partitions
        for number in count() if parameters.rows is None else range(parameters.rows):
            epoch, offset = divmod(number, EPOCH)
            ts = start + number * 1_000 // rate
            if offset > AUCTIONS_PER_EPOCH:
                topic, key_id, fields = self._bids, *self._next_bid(epoch, offset, ts)
            elif offset:
                topic, key_id, fields = self._auctions, *self._next_auction(epoch, offset, ts)
            else:
                topic, key_id, fields = self._persons, *self._next_person(epoch, ts)
            key = b"%d" % key_id
            yield Row(topic, partition_of(key, partitions), key, fields, ts)

    def _next_person(self, epoch: int, ts: int) -> tuple[int, Fields]:
        first, last = self._pick(_FIRST_NAMES), self._pick(_LAST_NAMES)
        own = FIRST_ID + epoch
        email = f"{first}.{last}.{own}@example.com".lower()
        return own, _person(own, f"{first} {last}", email, self._pick(_CITIES), ts)

    def _next_auction(self, epoch: int, offset: int, ts: int) -> tuple[int, Fields]:
        own = FIRST_ID + epoch * AUCTIONS_PER_EPOCH + offset - 1
        if self._draw() * HOT_SELLER_RATIO >= 1:
            seller = epoch // HOT_GROUP * HOT_GROUP
        else:
            seller = self._recent(epoch, ACTIVE_PERSONS)
        quality, thing = self._pick(_QUALITIES), self._pick(_THINGS)
        initial_bid = self._price()
        return own, _auction(
            own,
            name=f"{quality} {thing}",
            description=f"{thing}, {quality}, {self._pick(_QUALITIES)} and {self._pick(_QUALITIES)}",
            initial_bid=initial_bid,
            reserve=initial_bid + self._price(),
            seller=FIRST_ID + seller,
            category=self._pick(CATEGORIES),
            expires=ts + 1 + int(self._draw() * max(2 * self._horizon_ms, 1)),
            ts=ts,
        )

    def _next_bid(self, epoch: int, offset: int, ts: int) -> tuple[int, Fields]:
        newest = (epoch + 1) * AUCTIONS_PER_EPOCH - 1
        if self._draw() * HOT_AUCTION_RATIO >= 1:
            auction = newest // HOT_GROUP * HOT_GROUP
        else:
            auction = self._recent(newest, OPEN_AUCTIONS)
        if self._draw() * HOT_BIDDER_RATIO >= 1:
            # The second person of the hundred, so that the hot bidder is not the hot seller; once there is one.
            bidder = min(epoch // HOT_GROUP * HOT_GROUP + 1, epoch)
        else:
            bidder = self._recent(epoch, ACTIVE_PERSONS)
        own = FIRST_ID + epoch * BIDS_PER_EPOCH + offset - AUCTIONS_PER_EPOCH - 1
        return FIRST_ID + auction, _bid(own, FIRST_ID + auction, FIRST_ID + bidder, self._price(), ts)

    def _recent(self, newest: int, most: int) -> int:
        """Choose one of the newest, up to so many."""
        oldest = max(0, newest - most + 1)
        return oldest + int(self._draw() * (newest - oldest + 1))

    def _price(self) -> int:
        """Choose a price in cents: any doubling is as likely as any other, and inside it any price.

        The benchmark takes a power of ten with a random real exponent. This is nearly the same curve by integers,
        which come out alike on every machine.
        """
        least = 100 << int(self._draw() * _OCTAVES)
        return least + int(self._draw() * least)

    def _pick(self, choices: tuple[_Choice, ...]) -> _Choice:
        return choices[int(self._draw() * len(choices))]


def _in_order_of_arrival(made: Iterator[Row], parameters: Parameters) -> Iterator[Row]:
    """Delay the rows as the top of this file says; holds those that have not arrived yet.

    A third of the rows is in time, a third is delayed by the whole bound, and a third by less. Chance of its own keeps
    the rows themselves as they are.
    """
    draw = random.Random(f"disorder of {parameters.seed}").random  # noqa: S311 - chance that can be repeated
    bound, skew = parameters.disorder_ms, parameters.skew_ms
    held: list[tuple[int, int, int, Row]] = []
    for number, row in enumerate(made):
        # Whatever comes now or later arrives at its own event time or after it.
        while held and held[0][0] < row.ts:
            yield heappop(held)[3]
        delay = max(0, min(bound, int(draw() * (3 * bound + 1)) - bound))
        heappush(held, (row.ts + delay + row.partition * skew, delay, number, row))
    while held:
        yield heappop(held)[3]
