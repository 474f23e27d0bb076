"""The parts of the heartbeat service that need no broker."""

import json
import socket
import struct
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter

from lmerge.errors import UsageError
from lmerge.feed import CutMaker, FeedDefinition, Heartbeat, LeftOut, Row, Source
from lmerge.kafka import MissingTopic, Partition, Record, TopicDescription, TopicSpec
from lmerge.process.probes import Probes, Readiness
from services.heartbeat import owner as owner_module
from services.heartbeat.ends import AskedEnds
from services.heartbeat.ledger import Ledger
from services.heartbeat.left_out import SAMPLE_SECONDS, LeftOutRows
from services.heartbeat.metrics import Metrics
from services.heartbeat.owner import FeedOwner, Pace
from services.heartbeat.topics import MISSING_LOOKS, look, prepare

DEFINITION = FeedDefinition(
    name="f", sources=(Source(topic="a", time="kafka", disorder_ms=0),), timeout_ms=1_000, max_ahead_ms=None
)


def test_ends_are_reached_by_rows_or_by_meeting_the_end_and_only_then_time_goes_on() -> None:
    maker = CutMaker(DEFINITION, Heartbeat.start("id", {"a": (0, 0, 0)}), at_ms=0)
    maker.add([Row("a", 0, 0, 50), Row("a", 1, 0, 90)], now_ms=0, at_ms=10)
    asked = AskedEnds(2_000, {("a", 0): 2, ("a", 1): 1, ("a", 2): 0})
    assert not asked.tell(maker, {})  # offset 1 of the first may be a row
    assert not asked.tell(maker, {("a", 0): 1})
    assert maker.cut(now_ms=0).heartbeat.tau is None
    assert asked.tell(maker, {("a", 0): 2})  # it was a marker
    assert maker.cut(now_ms=0).heartbeat.tau == 90


def record(offset: int, value: bytes | None = b"{}") -> Record:
    return Record("a", 0, offset, b"key", value, (("mine", b"1"),), 0)


def left(offset: int) -> LeftOut:
    return LeftOut(Row("a", 0, offset, None), "unreadable")


class Written:
    """Takes what is written to it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def write(self, *arguments: object, last_headers: object) -> None:
        self.calls.append((*arguments, last_headers))


def test_rows_left_out_are_shown_now_and_then_and_copied_with_where_they_are_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = LeftOutRows("f", copy_bytes=1_048_588)
    rows.note([record(0), record(1, b"\xff" * 100), record(2, None)], [left(1), left(2)], at_seconds=0.0)
    rows.note([record(3)], [left(3)], at_seconds=SAMPLE_SECONDS - 1)
    rows.note([record(4)], [], at_seconds=SAMPLE_SECONDS)
    rows.note([record(5)], [left(5)], at_seconds=SAMPLE_SECONDS)
    shown = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["offset"], line["reason"], len(line["begins"])) for line in shown] == [
        (1, "unreadable", 80),
        (5, "unreadable", 2),
    ]
    written = Written()
    rows.write(written, "f.late", n=17)  # type: ignore[arg-type]
    assert [call[2] for call in written.calls] == [
        [(b"key", b"\xff" * 100)],
        [(b"key", None)],
        [(b"key", b"{}")],
        [(b"key", b"{}")],
    ]
    assert written.calls[0][3] == (
        ("mine", b"1"),
        ("lmerge-topic", b"a"),
        ("lmerge-partition", b"0"),
        ("lmerge-offset", b"1"),
        ("lmerge-reason", b"unreadable"),
        ("lmerge-heartbeat", b"17"),
    )
    assert rows.written() == 0
    rows.write(written, "f.late", n=18)  # type: ignore[arg-type]
    assert len(written.calls) == 4


def test_without_the_wish_nothing_is_copied() -> None:
    rows = LeftOutRows("f", copy_bytes=0)
    rows.note([record(1)], [left(1)], at_seconds=0.0)
    written = Written()
    rows.write(written, "f.late", n=1)  # type: ignore[arg-type]
    assert written.calls == []


def copied(rows: LeftOutRows) -> list[tuple[bytes | None, int, bool]]:
    """Give key, length of the value, and whether something is omitted, of all copies."""
    written = Written()
    rows.write(written, "f.late", n=1)  # type: ignore[arg-type]
    return [
        (key, len(value or b""), "lmerge-omitted" in dict(headers)) for _, _, [(key, value)], headers in written.calls
    ]


def test_a_copy_that_its_topic_would_not_take_has_headers_alone_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = LeftOutRows("f", copy_bytes=2_000_000)
    values = [b"x" * size for size in (1_990_000, 2_000_000, 3_000_000, 1_990_000)]
    rows.note([record(n, value) for n, value in enumerate(values)], [left(n) for n in range(4)], at_seconds=0.0)
    whole, omitted = (b"key", 1_990_000, False), (None, 0, True)
    assert copied(rows) == [whole, omitted, omitted, whole]
    assert rows.written() == 2
    assert rows.written() == 0
    shown = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["offset"]) for line in shown] == [
        ("a row does not count", 0),
        ("a copy does not fit", 1),
    ]
    assert shown[1]["bytes"] > shown[1]["limit"] == 2_000_000


def test_copies_that_would_be_one_batch_too_large_for_their_topic_are_not_all_whole() -> None:
    rows = LeftOutRows("f", copy_bytes=100_000)
    rows.note([record(n, b"x" * 60_000) for n in range(2)], [left(n) for n in range(2)], at_seconds=0.0)
    assert copied(rows) == [(b"key", 60_000, False), (None, 0, True)]
    assert rows.written() == 1
    rows.note([record(n, b"x" * 60_000) for n in range(2, 102)], [left(n) for n in range(2, 102)], at_seconds=1.0)
    assert 2 < len(copied(rows)) < 100, "there is room for some headers, and not for all"
    assert rows.written() == 99


class OneBrokerBehind:
    """Describes the topics, but for looks at which the broker that is asked does not know one."""

    def __init__(self, misses: Iterable[bool]) -> None:
        self.looks = 0
        self._misses = iter(misses)

    def describe(self, *names: str) -> dict[str, TopicDescription]:
        self.looks += 1
        if next(self._misses, False):
            raise MissingTopic("cannot describe topic a")
        config = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "1048588"}
        return {name: TopicDescription(name, f"id of {name}", 1, config) for name in names}


class Silence:
    """Reads nothing, and fails as often as it is told to."""

    def __init__(self, *failures: MissingTopic) -> None:
        self.reading: dict[Partition, int] = {}
        self.failed: dict[Partition, MissingTopic] = {}
        self._failures = list(failures)

    def add(self, offsets: Mapping[Partition, int]) -> None:
        self.reading |= offsets

    def remove(self, *partitions: Partition) -> None:
        for partition in partitions:
            self.failed.pop(partition, None)

    def poll(self, _timeout_seconds: float) -> list[Record]:
        if not self._failures:
            return []
        failure = self._failures.pop()
        self.failed = dict.fromkeys(self.reading, failure)
        self.reading = {}
        raise failure


def owner_that_sees(admin: OneBrokerBehind, reader: Silence | None = None) -> FeedOwner:
    metrics = Metrics("f")
    topics = look(OneBrokerBehind([]), DEFINITION)  # type: ignore[arg-type]
    return FeedOwner(
        DEFINITION,
        admin,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        reader or Silence(),  # type: ignore[arg-type]
        last=Heartbeat.start(topics.feed_id, {"a": (0,)}),
        topics=topics,
        pace=Pace(),
        left_out=LeftOutRows("f", copy_bytes=0),
        ledger=Ledger(DEFINITION, metrics),
        metrics=metrics,
    )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an owner look at its topics at every step."""
    monkeypatch.setattr(owner_module, "REFRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_some_looks_miss_is_not_gone() -> None:
    admin = OneBrokerBehind(([True] * (MISSING_LOOKS - 1) + [False]) * 3)
    owner = owner_that_sees(admin)
    for _ in range(3 * MISSING_LOOKS):
        owner.step()
    assert admin.looks == 3 * MISSING_LOOKS


@pytest.mark.usefixtures("impatient")
def test_a_source_that_the_reader_calls_missing_is_read_again_if_it_is_there() -> None:
    reader = Silence(MissingTopic("unknown topic or partition"))
    owner = owner_that_sees(OneBrokerBehind([True]), reader)
    owner.step()
    assert reader.reading == {}, "the look has missed it too"
    owner.step()
    assert (reader.reading, reader.failed) == ({("a", 0): 0}, {})


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_many_looks_in_a_row_miss_is_gone() -> None:
    admin = OneBrokerBehind([False] + [True] * 100)
    owner = owner_that_sees(admin)
    for _ in range(MISSING_LOOKS):
        owner.step()
    with pytest.raises(MissingTopic, match="it was deleted; the feed has ended"):
        owner.step()


def test_the_late_topic_takes_the_largest_row_of_every_source_with_the_headers_of_a_copy() -> None:
    made: list[TopicSpec] = []

    class Making(OneBrokerBehind):
        def ensure(self, *specs: TopicSpec) -> dict[str, TopicDescription]:
            made.extend(specs)
            return self.describe(*(spec.name for spec in specs))

    copying = msgspec.structs.replace(DEFINITION, copy_left_out=True)
    assert prepare(Making([]), copying, create=True).copy_bytes == 1_048_588  # type: ignore[arg-type]
    assert [(spec.name, spec.config.get("max.message.bytes")) for spec in made] == [
        ("f.heartbeats", None),
        ("f.late", str(1_048_588 + 1_024)),
    ]
    assert prepare(Making([]), DEFINITION, create=True).copy_bytes == 0  # type: ignore[arg-type]


class Kept:
    """Describes topics with their settings; one that is not there is made with those that it is asked for with."""

    def __init__(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        self._topics: dict[str, Mapping[str, str]] = dict(topics)

    def describe(self, *names: str) -> dict[str, TopicDescription]:
        defaults = {"cleanup.policy": "delete", "max.message.bytes": "1048588"}
        return {name: TopicDescription(name, f"id of {name}", 1, {**defaults, **self._topics[name]}) for name in names}

    def ensure(self, *specs: TopicSpec) -> dict[str, TopicDescription]:
        for spec in specs:
            self._topics.setdefault(spec.name, spec.config)
        return self.describe(*(spec.name for spec in specs))


TWO_SOURCES = FeedDefinition(
    name="f",
    sources=tuple(Source(topic=topic, time="kafka", disorder_ms=0) for topic in "ab"),
    max_ahead_ms=None,
    copy_left_out=True,
)


@pytest.mark.parametrize(
    ("retentions", "longest"),
    [(("7000", "60000"), "60000"), (("60000", "7000"), "60000"), (("-1", "7000"), "-1"), (("7000", "-1"), "-1")],
)
def test_a_feed_asks_for_topics_that_keep_records_as_long_as_the_source_that_keeps_them_longest(
    retentions: tuple[str, str], longest: str
) -> None:
    kept = Kept({topic: {"retention.ms": retention} for topic, retention in zip("ab", retentions, strict=True)})
    topics = prepare(kept, TWO_SOURCES, create=True)  # type: ignore[arg-type]
    assert not topics.retention_is_short
    for made in kept.describe("f.heartbeats", "f.late").values():
        found = [made.config[setting] for setting in ("cleanup.policy", "retention.ms", "retention.bytes")]
        assert found == ["delete", longest, "-1"]


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("rows", "heartbeats", "is_short"),
    [
        ("60000", "59999", True),
        ("60000", "60000", False),
        ("60000", "-1", False),
        ("-1", "60000", True),
        ("-1", "-1", False),
    ],
)
def test_heartbeats_that_expire_before_the_rows_of_a_source_are_told(
    *, rows: str, heartbeats: str, is_short: bool, create: bool
) -> None:
    """A topic that exists is left as it is. Rows of the other source live for a second."""
    retentions = {"a": "1000", "b": rows, "f.heartbeats": heartbeats, "f.late": "1000"}
    kept = Kept({topic: {"retention.ms": retention} for topic, retention in retentions.items()})
    topics = prepare(kept, TWO_SOURCES, create=create)  # type: ignore[arg-type]
    assert topics.retention_is_short == is_short


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("b", "its rows vanish, so that two replicas would read different ones"),
        ("f.heartbeats", "what a heartbeat decided must not vanish before the rows do"),
    ],
)
def test_a_compacted_source_or_heartbeats_topic_is_refused_and_the_reason_is_given(
    *, topic: str, reason: str, policy: str, create: bool
) -> None:
    configs = {name: {"retention.ms": "1000"} for name in ("a", "b", "f.heartbeats", "f.late")}
    configs[topic]["cleanup.policy"] = policy
    with pytest.raises(UsageError) as caught:
        prepare(Kept(configs), TWO_SOURCES, create=create)  # type: ignore[arg-type]
    assert (
        str(caught.value) == f"topic {topic} has cleanup.policy={policy}: {reason}; set it to delete, or copy the topic"
    )


class State:
    """What a process says of itself."""

    now = Readiness(is_ready=False, status="starting")


@pytest.fixture
def probes() -> Iterator[Probes]:
    State.now = Readiness(is_ready=False, status="starting")
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    with Probes("127.0.0.1", 0, registry=registry, readiness=lambda: State.now) as probes:
        yield probes


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  # our own
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_say_alive_ready_and_how_much(probes: Probes) -> None:
    assert get(f"{probes.url}/healthz") == (200, '{"status":"alive"}')
    assert get(f"{probes.url}/readyz") == (503, '{"status":"starting"}')
    State.now = Readiness(is_ready=True, status="standby")
    assert get(f"{probes.url}/readyz") == (200, '{"status":"standby"}')
    code, text = get(f"{probes.url}/metrics?name=x")
    assert (code, "things_total 1.0" in text) == (200, True)
    assert get(f"{probes.url}/other")[0] == 404


def test_who_does_not_wait_for_the_answer_leaves_no_trace_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    asked, left, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def readiness() -> Readiness:
        threads.append(threading.current_thread())
        asked.set()
        assert left.wait(5)
        return Readiness(is_ready=True, status="x" * 1_000_000)  # more than the system would take for one who is gone

    with Probes("127.0.0.1", 0, registry=CollectorRegistry(), readiness=readiness) as probes:
        with socket.create_connection(("127.0.0.1", int(probes.url.rpartition(":")[2]))) as client:
            client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            assert asked.wait(5)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hang up at once
        left.set()
        threads[0].join(5)
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_named(probes: Probes) -> None:
    port = int(probes.url.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"cannot listen at 127.0.0.1:{port}"):
        Probes("127.0.0.1", port, registry=CollectorRegistry(), readiness=lambda: State.now)
