"""R0 to R4 in the service: physically different streams of one TDB are merged while inputs come, go, pause and die."""

import random
import signal
from collections.abc import Iterator

import pytest

from lmerge import INFINITY, TDB, Event, Hello, StreamProperties
from lmerge.canonical import payload
from lmerge.kafka import KafkaSettings
from lmerge.normal_form import json_pair
from tests.support import presentations
from tests.support.kafka_merge import KafkaMerge, wire_tdb
from tests.support.kafka_world import ALGORITHMS, PROMISES, KafkaWorld
from tests.support.logical import events, on_the_wire, present
from tests.support.merge_service import Service, running
from tests.support.producer import Producer
from tests.support.streams import ins, stb


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(scope="module")
def service(settings: KafkaSettings) -> Iterator[Service]:
    with running(settings) as service:
        yield service


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `seed` as many values as the size asks for; the seed is the test's id."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(100 if metafunc.config.getoption("--long") else len(ALGORITHMS)))


def test_the_merged_topic_is_right_while_inputs_come_and_go(
    settings: KafkaSettings, service: Service, seed: int, *, long: bool
) -> None:
    """The algorithm is chosen by what the definition lists; each seed plays one of the five."""
    with KafkaWorld(settings, service, seed) as world:
        world.run(acts=60 if long else 15)


def test_an_input_that_promises_too_little_is_refused_with_the_way_out(
    settings: KafkaSettings, service: Service
) -> None:
    merge = KafkaMerge(settings, service, properties=[PROMISES["R0"], PROMISES["R2"]])
    assert merge.view["desired"]["algorithm"] == "R2"
    assert "R0 would need" in merge.view["desired"]["reason"]
    merge.make_topics("r1", "r2", "r3")
    merge.attach("r1", properties=PROMISES["R0"])
    status, answer = service.call(
        "PUT", f"/v1/merges/{merge.name}/inputs/r2", {"topic": merge.topic("r2"), "properties": PROMISES["R3"]}
    )
    assert (status, answer["code"]) == (409, "too_weak")
    assert "only inserts and stables, non-decreasing vs" in answer["detail"]
    assert "algorithm R3" in answer["detail"]
    merge.attach("r3")  # it is trusted until its hello says otherwise
    with Producer(settings, merge.topic("r3"), 1) as weak, Producer(settings, merge.topic("r1"), 1) as good:
        weak.begin([stb(5)], Hello(replica="r3", incarnation=1, properties=PROMISES["R3"]))
        good.begin([ins("A", 1, 2), stb(INFINITY)])
        good.send_rest()
        stopped = merge.wait_for("r3", "gap", "quarantined")
    assert "does not promise what R2 needs" in stopped["reason"]
    merge.wait_for_stable(INFINITY)
    assert merge.output()[1:] == on_the_wire([ins("A", 1, 2), stb(INFINITY)])


@pytest.mark.parametrize("algorithm", ["R2", "R3"])
def test_a_merge_whose_first_input_began_cold_begins_there(
    settings: KafkaSettings, service: Service, algorithm: str
) -> None:
    """Its origin is that input's joins_at (J4, J5): it says so, is complete from there on, as is a merge over it."""
    rng = random.Random(7)
    origin, longest = 60, 30
    reference = [
        Event(e.payload, e.vs, min(e.ve, e.vs + longest)) for e in events(rng, algorithm, count=80, horizon=200)
    ]
    merge, upper = (
        KafkaMerge(settings, service, partitions=2, algorithm=algorithm, longest_lifetime_ms=longest) for _ in range(2)
    )
    merge.make_topics("r1", "r2")
    with Producer(settings, merge.topic("r1"), 2) as r1, Producer(settings, merge.topic("r2"), 2) as r2:
        for producer, joins_at in ((r1, origin), (r2, origin + 50)):
            stream = present(algorithm, reference, rng, joins_at)[1:]
            producer.begin(stream, Hello(replica="", incarnation=0, joins_at=joins_at))
        merge.attach("r1")
        r1.send(20)
        merge.wait(lambda: merge.of("r1")["membership"] == "joined", "r1 is joined by the origin")
        merge.attach("r2")
        r2.send_rest()
        assert merge.of("r2")["membership"] == "joining"
        service.put(f"{upper.name}/inputs/lower", {"topic": merge.merged_topic})
        r1.send_rest()
    later = 0 if algorithm == "R3" else longest + 1  # R2 puts out nothing that begins before its origin
    for each, complete_from in ((merge, origin + later), (upper, origin + later + later)):
        each.wait_for_stable(INFINITY)
        for output in each.outputs():
            assert isinstance(output[0], Hello)
            assert output[0].joins_at == complete_from
        shown, expected = (
            TDB(event for event in tdb if event.ve >= complete_from) for tdb in (each.tdb(), wire_tdb(reference))
        )
        assert len(expected) > 0
        assert shown == expected


def test_plans_that_cut_lifetimes_differently_are_merged_by_their_normal_form(
    settings: KafkaSettings, service: Service
) -> None:
    """Equal snapshots, other events (design trap 1); the service is killed in between, and reads them again."""
    rng = random.Random(3)
    whole = [*presentations.plan(rng), *presentations.plan(rng), *presentations.plan(rng)]
    tdb = presentations.final(whole)
    pieces = presentations.fragment(rng, tdb)
    assert presentations.final(pieces) != tdb
    streams = [presentations.present(rng, plan, StreamProperties()) for plan in (whole, pieces)]
    merge = KafkaMerge(settings, service, normal_form={})
    merge.make_topics("r1", "r2")
    merge.attach("r1", "r2")
    with Producer(settings, merge.topic("r1"), 1) as r1, Producer(settings, merge.topic("r2"), 1) as r2:
        for producer, stream in zip((r1, r2), streams, strict=True):
            producer.begin(stream)
            producer.send(len(stream) // 2)
        merge.wait(lambda: _taken(merge, "r1") and _taken(merge, "r2"), "both are read")
        service.end(signal.SIGKILL)
        r2.send_rest()
        service.start()
        merge.wait_for_stable(INFINITY)
        r1.send_rest()
    expected = presentations.normal_form_of(tdb, None)
    assert merge.tdb() == TDB(Event(_label(event), event.vs, event.ve) for event in expected)


def _taken(merge: KafkaMerge, name: str) -> bool:
    return bool(merge.of(name)["lanes"][0]["counts"]["inserts"])


def _label(event: Event) -> bytes:
    assert isinstance(event.payload, tuple)
    text, count = event.payload
    return json_pair(payload(text), count)
