"""What inputs may do wrong to a running merge, and what the merge tells them; the rest goes on."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lmerge import INFINITY, Element, reconstitute
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.kafka import delete_before, values
from tests.support.kafka_merge import KafkaMerge, wire_tdb
from tests.support.kafka_world import KafkaWorld
from tests.support.merge_service import Service, running
from tests.support.streams import adj, hello, ins, skip, stb

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"
A, B, C = b'"A"', b'"B"', b'"C"'


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(scope="module")
def service(settings: KafkaSettings) -> Iterator[Service]:
    with running(settings) as service:
        yield service


def make(settings: KafkaSettings, service: Service, *names: str, **definition: Any) -> KafkaMerge:
    """Make a merge of one lane with these inputs."""
    merge = KafkaMerge(settings, service, **definition)
    merge.make_topics(*names)
    merge.attach(*names)
    return merge


def make_two(settings: KafkaSettings, service: Service, stable: int) -> KafkaMerge:
    """Make a merge of r1 and r2, which have said the same up to a stable, and wait until that is merged."""
    merge = make(settings, service, "r1", "r2")
    for name in ("r1", "r2"):
        write(merge, name, ins(A, 1, 5), stb(stable))
    merge.wait_for_stable(stable)
    return merge


def write(merge: KafkaMerge, name: str, *what: Element | bytes) -> None:
    """Write elements, or bytes that are none, to an input."""
    records = [each if isinstance(each, bytes) else encode_batch([each])[0] for each in what]
    with TransactionalWriter(merge.settings, f"test/{merge.topic(name)}") as writer:
        writer.fence()
        with writer.transaction():
            writer.write(merge.topic(name), 0, [(None, record) for record in records])


def wait_for_position(merge: KafkaMerge, name: str, offset: int) -> None:
    """Wait until what an input says before this offset is merged."""
    merge.wait(lambda: merge.of(name)["lanes"][0]["position"] >= offset, f"{name} is read")


BROKEN: Final[dict[str, tuple[tuple[Element | bytes, ...], str]]] = {
    "no-json": ((b'{"kind":"insert",',), "truncated"),
    "no-kind": ((b'{"kind":"upsert","vs":1}',), "upsert"),
    "no-value": ((b"",), "truncated"),
    "wrong-type": ((b'{"kind":"insert","payload":"A","vs":"six","ve":7}',), "vs"),
    "backwards": ((b'{"kind":"insert","payload":"A","vs":9,"ve":7}',), "ve"),
    "unknown-event": ((adj(C, 30, 39, 38),), "Adjust"),
    "same-key": ((ins(C, 11, 12), ins(C, 11, 13)), "Insert"),
    "below-stable": ((stb(4), ins(C, 3, 9)), "Insert"),
    "stable-back": ((stb(9), stb(4)), "Stable"),
}
"""What an input may send that is no element or breaks its contract, and a word of the reason that is given."""


def test_an_input_that_breaks_its_contract_is_named_and_stopped_and_the_rest_goes_on(
    settings: KafkaSettings, service: Service
) -> None:
    merge = make(settings, service, "good", *BROKEN)
    for name, (records, _) in BROKEN.items():
        write(merge, name, ins(A, 1, 5), *records)
    for name, (records, word) in BROKEN.items():
        found = merge.wait_for(name, "gap", "quarantined")
        assert f"offset {len(records)}" in found["reason"], name
        assert word in found["reason"], name
    write(merge, "good", ins(A, 1, 5), ins(B, 12, 20), stb(30))
    merge.wait_for_stable(30)
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 5), ins(B, 12, 20)])
    merge.require_certified()
    (lane,) = merge.lanes()
    assert (lane["state"], lane["leader"], lane["may_die"]) == ("running", "good", 0)
    _, metrics = service.call("GET", "/metrics")
    for name in BROKEN:
        shown = f'{{condition="quarantined",input="{name}",lane="0",merge="{merge.name}"}} 1.0'
        assert f"lmerge_input_condition{shown}" in metrics


def test_one_record_that_is_too_large_to_be_written_stops_its_input_and_not_the_lane(
    settings: KafkaSettings, service: Service
) -> None:
    """What one topic takes, another with the same settings does; what it does not is the input's fault."""
    merge = make(settings, service, "good")
    roomy = TopicSpec(merge.topic("bad"), 1, config={"max.message.bytes": "3000000"})
    TopicAdmin(settings).ensure(roomy)
    merge.attach("bad")
    large, too_large = (b'"%b"' % (b"A" * size) for size in (1_040_000, 2_000_000))
    write(merge, "good", ins(large, 1, 5), stb(3))
    merge.wait_for_stable(3)
    write(merge, "bad", ins(large, 1, 5), ins(too_large, 6, 7), stb(30))
    found = merge.wait_for("bad", "gap", "quarantined")
    assert "offset 1: its payload has 2,000,002 bytes" in found["reason"]
    write(merge, "good", ins(B, 12, 20), stb(20))
    merge.wait_for_stable(20)
    assert reconstitute(merge.output()) == reconstitute([ins(large, 1, 5), ins(B, 12, 20)])


def test_a_running_service_exposes_what_the_page_of_metrics_promises(settings: KafkaSettings, service: Service) -> None:
    merge = make(settings, service, "r1", feedback={"lag_ms": 100})
    write(merge, "r1", ins(A, 1, 5), stb(10))
    merge.wait_for_stable(10)
    _, exposed = service.call("GET", "/metrics")
    promised = re.findall(r"^\| `(lmerge_(?!feed_|replica_)\w+)` \| (\w+) \|", METRICS.read_text(), re.MULTILINE)
    assert promised
    samples = {name if kind != "histogram" else f"{name}_count" for name, kind in promised}
    shown = set(re.findall(rf'^(\w+){{[^}}]*merge="{merge.name}"', exposed, re.MULTILINE))
    assert samples - shown == set()
    assert f'lmerge_transactions_total{{lane="0",merge="{merge.name}",outcome="committed"}}' in exposed


def test_a_released_input_is_read_again_without_the_bad_record(settings: KafkaSettings, service: Service) -> None:
    merge = make(settings, service, "good", "bad")
    write(merge, "good", ins(A, 1, 5), stb(3))
    write(merge, "bad", ins(A, 1, 5), ins(B, 12, 20), b"nonsense", ins(C, 14, 25), stb(30))
    merge.wait_for("bad", "gap", "quarantined")
    assert merge.order("good", "release")[1]["code"] == "not_quarantined"
    merge.ordered("bad", "release", {"skip_record": True})
    merge.wait_for("bad", "joined")
    merge.wait_for_stable(30)  # by the released one
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 5), ins(B, 12, 20), ins(C, 14, 25)])
    assert merge.order("bad", "release")[1]["code"] == "not_quarantined"


def test_a_released_input_waits_for_its_next_incarnation(settings: KafkaSettings, service: Service) -> None:
    merge = make(settings, service, "good", "bad")
    write(merge, "good", ins(A, 1, 5), stb(3))
    write(merge, "bad", ins(A, 1, 5), b"nonsense", ins(C, 1, 7), stb(30))
    merge.wait_for("bad", "gap", "quarantined")
    merge.ordered("bad", "release", {"skip_record": False})
    merge.wait(lambda: merge.of("bad")["conditions"] == [], "the quarantine is lifted")
    assert "waits for a hello" in merge.wait_for("bad", "gap")["reason"]
    write(merge, "bad", hello(2, 2), ins(A, 1, 5), ins(B, 12, 20), stb(40))
    found = merge.wait_for("bad", "joined")
    assert found["lanes"][0]["incarnation"] == 2
    merge.wait_for_stable(40)
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 5), ins(B, 12, 20)])
    merge.require_certified()


def test_an_input_whose_topic_is_deleted_is_a_gap_and_comes_back_when_it_is_attached_again(
    settings: KafkaSettings, service: Service
) -> None:
    merge = make_two(settings, service, 3)
    TopicAdmin(settings).delete(merge.topic("r2"))
    found = merge.wait_for("r2", "gap")
    assert merge.topic("r2") in found["reason"]
    write(merge, "r1", ins(B, 12, 20), stb(30))
    merge.wait_for_stable(30)
    merge.detach("r2")
    merge.make_topics("r2")
    merge.attach("r2")
    write(merge, "r2", hello(2, 25), ins(C, 35, 36), stb(40))
    merge.wait_for("r2", "joined")
    merge.wait_for_stable(40)
    assert merge.lanes()[0]["may_die"] == 1
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 5), ins(B, 12, 20), ins(C, 35, 36)])


def test_an_input_whose_records_are_gone_is_a_gap_until_its_next_hello(
    settings: KafkaSettings, service: Service
) -> None:
    merge = make_two(settings, service, 3)
    merge.wait_for("r2", "joined")
    merge.hold("r2")
    write(merge, "r2", ins(B, 12, 20), stb(15))
    write(merge, "r2", stb(30))
    with TailReader(settings) as reader:
        tail = reader.read_tail(merge.topic("r2"), 0)
    assert tail is not None
    delete_before(settings, merge.topic("r2"), tail.offset)
    merge.ordered("r2", "resume")
    merge.wait_for("r2", "gap")
    write(merge, "r1", ins(B, 12, 20), stb(20))
    merge.wait_for_stable(20)
    assert merge.of("r2")["membership"] == "gap"  # its stable(30) counts for nothing
    write(merge, "r2", hello(2, 18), ins(B, 12, 20), stb(40))
    merge.wait_for("r2", "joined")
    merge.wait_for_stable(40)
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 5), ins(B, 12, 20)])


def test_an_idle_input_whose_topic_retention_has_emptied_lacks_nothing(
    settings: KafkaSettings, service: Service
) -> None:
    """What was behind its last record, and is gone, is the marker of its transaction."""
    merge = make_two(settings, service, 6)
    with TailReader(settings) as reader:
        end = reader.watermarks(merge.topic("r2"), 0).end
    wait_for_position(merge, "r2", end)
    merge.hold("r2")
    delete_before(settings, merge.topic("r2"), end)
    merge.ordered("r2", "resume")
    write(merge, "r2", ins(B, 12, 20), stb(30))
    merge.wait_for_stable(30)
    assert merge.of("r2")["membership"] == "joined"


@pytest.mark.parametrize("quarantine", [False, True])
def test_an_input_that_contradicts_two_others_is_shown_and_stopped_if_so_configured(
    settings: KafkaSettings, service: Service, *, quarantine: bool
) -> None:
    merge = make(settings, service, "r1", "r2", "odd", quarantine_diverging=quarantine)
    for name, end in (("r1", 20), ("r2", 20), ("odd", 15)):
        write(merge, name, ins(A, 1, end))
        wait_for_position(merge, name, 1)
    for name in ("r1", "r2"):
        write(merge, name, stb(18))
        wait_for_position(merge, name, 3)  # behind the first transaction's marker
    write(merge, "odd", stb(18))
    merge.wait(lambda: merge.service.observed(merge.name)["divergences"] > 0, "it is seen")
    _, page = service.call("GET", f"/v1/merges/{merge.name}/divergences")
    sample = next(item for item in page["items"] if item["payload"] == '"A"')
    assert (sample["odd_one_out"], sample["vs"], sample["lane"]) == ("odd", 1, 0)
    assert set(sample["claims"]) == {"r1", "r2", "odd"}
    if quarantine:
        assert "majority" in merge.wait_for("odd", "gap", "quarantined")["reason"]
    else:
        assert merge.of("odd")["membership"] == "joined"
    write(merge, "r1", stb(30))
    merge.wait_for_stable(30)
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 20)])
    _, metrics = service.call("GET", "/metrics")
    counted = re.search(rf'^lmerge_divergences_total{{lane="0",merge="{merge.name}"}} (\S+)$', metrics, re.MULTILINE)
    assert counted is not None
    assert float(counted[1]) == merge.service.observed(merge.name)["divergences"] > 0


def signals(merge: KafkaMerge) -> list[Any]:
    """Return what the laggards were told, that is committed."""
    return [json.loads(value) for value in values(merge.settings, f"{merge.name}.feedback") if value is not None]


def test_a_laggard_is_told_to_skip_ahead_once_and_no_further_than_is_committed(
    settings: KafkaSettings, service: Service
) -> None:
    merge = make(settings, service, "fast", "slow", feedback={"lag_ms": 100, "interval_ms": 3_600_000})
    write(merge, "slow", ins(A, 1, 5), stb(10))
    write(merge, "fast", ins(A, 1, 5), ins(B, 12, 20), stb(1_000))
    merge.wait_for_stable(1_000)
    merge.wait(lambda: len(signals(merge)) == 1, "the laggard is told")
    (told,) = signals(merge)
    assert {key: told[key] for key in ("kind", "input", "partition")} == {
        "kind": "fast-forward",
        "input": "slow",
        "partition": 0,
    }
    assert 10 < told["before"] <= 1_000
    assert "lagging" in merge.of("slow")["conditions"]
    write(merge, "fast", stb(5_000))
    merge.wait_for_stable(5_000)
    write(merge, "slow", skip(told["before"]), stb(1_500))
    merge.wait(lambda: merge.of("slow")["stable"] == 1_500, "slow has skipped")
    assert len(signals(merge)) == 1  # not within the interval

    assert merge.order("slow", "fast-forward", {"before": 5_001})[1]["code"] == "too_far"
    merge.ordered("slow", "fast-forward", {"before": 4_000})
    merge.wait(lambda: len(signals(merge)) == 2, "it is told on demand")
    assert signals(merge)[1]["before"] == 4_000
    assert signals(merge)[1]["id"] != told["id"]
    write(merge, "slow", skip(4_000), stb(INFINITY))
    merge.wait_for_stable(INFINITY)
    assert reconstitute(merge.output()) == reconstitute([ins(A, 1, 5), ins(B, 12, 20)])
    merge.require_certified()


def test_a_merge_of_two_merges_is_exact(settings: KafkaSettings) -> None:
    """Four producers, two merges, and one over their merged topics; the process that runs all three is killed once."""
    with (
        running(settings) as service,
        KafkaWorld(settings, service, 3) as left,
        KafkaWorld(settings, service, 3) as right,
    ):
        top = KafkaMerge(settings, service, partitions=left.merge.partitions)
        assert left.merge.partitions == right.merge.partitions
        assert left.reference == right.reference
        for world in (left, right):
            world.begin_three()
            top.service.put(f"{top.name}/inputs/{world.merge.name}", {"topic": world.merge.merged_topic})
        for turn in range(5):
            for world in (left, right):
                world.step()
                world.act()
            if turn == 2:
                service.end(signal.SIGKILL)
                service.start()
        for world in (left, right):
            world.end()
        top.wait_for_stable(INFINITY)
        assert top.tdb() == wire_tdb(left.reference)
        top.require_certified()
        top.require_quiet()
