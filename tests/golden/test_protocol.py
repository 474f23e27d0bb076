"""docs/protocol.md does not drift: every example on the page goes through the code, and comes out as the page says."""

import hashlib
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError

from lmerge import Event, LMergeError, Stable, reconstitute
from lmerge.canonical import canonical
from lmerge.codec import decode, encode
from lmerge.elements import Hello, Skip
from lmerge.feed import FeedDefinition, Heartbeat, Source
from lmerge.kafka import Record
from lmerge.properties import StreamProperties
from lmerge.signals import Signal
from replicas.state import Tag
from services.merge import lane_record
from services.merge.control_topic import desired_from
from services.merge.definitions import Changed, Desired
from services.merge.lane import Lane
from tests.support.lane import MemoryLane

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
FEED = "9a0c364e6a3b6ea5e8e9f1d2c3b4a596"


def blocks() -> list[tuple[str, list[str]]]:
    """Return the fenced blocks of the page: what each is, and its lines."""
    found = re.findall(r"^```([^\n]+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [(info.removeprefix("json ").strip(), text.splitlines()) for info, text in found]


def lines(kind: str) -> list[str]:
    """Return the lines of all blocks of a kind."""
    return [line for each, text in blocks() if each == kind for line in text]


def accept_element(value: bytes) -> None:
    decode(value)


def round_trip_element(value: bytes) -> None:
    element = decode(value)
    assert encode(element) == value
    if isinstance(element, Hello):
        StreamProperties.from_dict(element.properties)


def round_trip_heartbeat(value: bytes) -> None:
    assert Heartbeat.decode(value).encode() == value


def round_trip_signal(value: bytes) -> None:
    assert Signal.decode(value).encode() == value


def round_trip_lane_record(value: bytes) -> None:
    record = lane_record.decode(value)
    assert lane_record.decode(lane_record.encode(record)) == record
    assert set(msgspec.json.decode(value)) <= {*lane_record.LaneRecord.__struct_fields__}


def round_trip_desired(value: bytes) -> None:
    desired = desired_from([Record("lmerge.control", 0, 0, b"merge/active", value, (), 0)])["active"]
    assert desired.model_dump_json().encode() == value


def accept_audit(value: bytes) -> None:
    entry = msgspec.json.decode(value)
    assert entry.keys() == {"merge", *Changed.model_fields, "wanted"}
    Changed.model_validate({name: entry[name] for name in Changed.model_fields})
    if entry["wanted"] is not None:
        Desired.model_validate(entry["wanted"])


def round_trip_feed_id(value: bytes) -> None:
    version, sources, heartbeats = msgspec.json.decode(value)
    assert version == 1
    definition = FeedDefinition(
        name="auction", sources=tuple(Source(topic=s[0], time=s[1], unit=s[2], disorder_ms=0) for s in sources)
    )
    ids = {s[0]: s[3] for s in sources} | {"auction.heartbeats": heartbeats}
    assert definition.feed_id(ids) == hashlib.sha256(value).hexdigest()[:32]


def check_placement(value: bytes) -> None:
    key, crc, *rest = value.split()
    assert zlib.crc32(key) == int(crc)
    assert canonical(key) == key
    for count, lane in re.findall(rb"of (\d+): (\d+)", b" ".join(rest)):
        assert int(crc) % int(count) == int(lane)


def check_canonical(value: bytes) -> None:
    given, expected = re.split(rb"\s{3,}", value)
    assert canonical(given) == expected


ACCEPTED: dict[str, Callable[[bytes], None]] = {
    "element": round_trip_element,
    "element-accepted": accept_element,
    "heartbeat": round_trip_heartbeat,
    "signal": round_trip_signal,
    "lane-record": round_trip_lane_record,
    "desired": round_trip_desired,
    "audit": accept_audit,
    "feed-id": round_trip_feed_id,
    "placement": check_placement,
    "canonical": check_canonical,
    "merged": round_trip_element,
}
REFUSED: dict[str, Callable[[bytes], object]] = {
    "element-refused": decode,
    "heartbeat-refused": Heartbeat.decode,
    "lane-record-refused": lane_record.decode,
}
WORKED = {"replica-topic 0", "replica-topic 1"}


def test_every_block_of_the_page_is_tested() -> None:
    kinds = {kind for kind, _ in blocks()}
    assert kinds == {*ACCEPTED, *REFUSED, *WORKED}
    assert PAGE.count("```") == 2 * len(blocks())


@pytest.mark.parametrize(("kind", "line"), [(kind, line) for kind in ACCEPTED for line in lines(kind)])
def test_an_example_is_what_the_page_says(kind: str, line: str) -> None:
    ACCEPTED[kind](line.encode())


@pytest.mark.parametrize(("kind", "line"), [(kind, line) for kind in REFUSED for line in lines(kind)])
def test_an_example_that_is_marked_as_refused_is_refused(kind: str, line: str) -> None:
    with pytest.raises((LMergeError, ValidationError)):
        REFUSED[kind](line.encode())


def test_a_tombstone_is_no_element() -> None:
    with pytest.raises(LMergeError, match="tombstone"):
        decode(None)


def test_the_heartbeats_of_the_page_follow_each_other() -> None:
    zero, one = (Heartbeat.decode(line.encode()) for line in lines("heartbeat"))
    one.require_follows(zero)


# -- the worked example


def topic(partition: int) -> list[tuple[int, bytes, Tag | None]]:
    """Return the records of a partition of the worked example: offset, value, header."""
    records = []
    for line in lines(f"replica-topic {partition}"):
        offset, value, *header = re.split(r"\s{4,}", line)
        records.append((int(offset), value.encode(), Tag.decode(header[0].encode()) if header else None))
    return records


def values(partition: int) -> list[bytes]:
    return [value for _, value, _ in topic(partition)]


@pytest.mark.parametrize("partition", [0, 1])
def test_the_worked_topic_is_laid_out_as_a_replica_writes_it(partition: int) -> None:
    expected = 0
    tags = []
    for offset, value, tag in topic(partition):
        round_trip_element(value)
        assert offset == expected
        expected += 1 if tag is None else 2  # the last record of a transaction is followed by its marker
        tags += [] if tag is None else [tag]
        element = decode(value)
        if not isinstance(element, Hello | Stable | Skip):
            assert zlib.crc32(element.payload) % 2 == partition  # type: ignore[arg-type]
    assert tags == [Tag(1, -1), Tag(1, 0), Tag(1, 1), Tag(1, 2), Tag(2, -1), Tag(2, 0), Tag(2, 1)]


def test_the_worked_topic_is_legal_and_means_what_the_page_says() -> None:
    elements = [decode(value) for value in values(0)]
    first = reconstitute(elements[:10])
    seven, nine, five = Event(b'{"auction":7}', 6, 20), Event(b'{"auction":9}', 8, 10), Event(b'{"auction":5}', 13, 30)
    assert sorted(map(repr, first)) == sorted(map(repr, [seven, nine, five]))
    assert sorted(map(repr, reconstitute(elements))) == sorted(map(repr, [seven, five]))
    reconstitute(decode(value) for value in values(1))


def test_the_lane_merges_the_worked_example_as_the_page_says() -> None:
    second = [text for kind, text in blocks() if kind == "element"][1]
    lane = MemoryLane("R3", feed=FEED)
    lane.config = msgspec.structs.replace(lane.config, merge="active")
    lane.lane = Lane(lane.config)
    lane.lane.open()
    for name, records in (("r1", values(0)), ("r2", [line.encode() for line in second])):
        lane.attach(name)
        lane.logs[name] += records
        if name == "r1":
            lane.run(name)
            lane.commit()
            assert not lane.joined("r1")
            assert lane.record is not None
            assert lane.record.max_stable == 15
        else:
            lane.run(name)
    lane.commit()
    assert lane.log == [line.encode() for line in lines("merged")]
    assert lane.joined("r1")
