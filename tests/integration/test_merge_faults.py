"""The merge service dies, is stopped, loses its lanes to another process or its broker: nothing is lost or repeated.

What is right is judged as everywhere: by the certifier, at every prefix, and by the reference in the end.
"""

import random
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local import LocalStack, ports
from deploy.local.ports import HOST
from lmerge import INFINITY, Element, Event
from lmerge.codec import decode
from lmerge.kafka import KafkaSettings, TailReader, TransactionalWriter
from tests.integration.conftest import Figure
from tests.support.failpoints import WAIT_BEFORE_COMMIT
from tests.support.kafka import log_end, wait_until
from tests.support.kafka_merge import KafkaMerge, wire_tdb
from tests.support.kafka_world import ALGORITHMS, KafkaWorld
from tests.support.merge_service import DEADLINE, Service, append, running, several
from tests.support.producer import Producer
from tests.support.streams import ins, stb
from tests.support.wire import Wire, second_door


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


class Gate:
    """Holds the transactions of a service between their last record and their commit while it is closed."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "closed"
        self.environment = {WAIT_BEFORE_COMMIT: str(self._file)}

    def close(self) -> None:
        self._file.touch()

    def open(self) -> None:
        self._file.unlink()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def wait_for_owner(merge: KafkaMerge, *services: Service) -> None:
    """Wait until each of these processes, and no other, has committed as the owner of a lane."""
    owners = {service.owner for service in services}
    merge.wait(lambda: {lane["owner"] for lane in merge.lanes()} == owners, f"it is run by {owners}")


def wait_for_open_transaction(merge: KafkaMerge) -> None:
    """Wait until a lane has written records on which nobody has decided; the others wait for it."""
    topic = f"{merge.name}.state"
    with TailReader(merge.settings) as reader, ExitStack() as stack:
        ends = [stack.enter_context(log_end(merge.settings, topic, p)) for p in range(merge.partitions)]
        wait_until(
            lambda: any(end() > reader.watermarks(topic, p).end for p, end in enumerate(ends)),
            f"a transaction of {merge.name} is open",
            seconds=DEADLINE,
        )


def hold_a_transaction(world: KafkaWorld, gate: Gate) -> None:
    """Let an input say something, and hold what comes of it before its commit."""
    gate.close()
    world.step()
    wait_for_open_transaction(world.merge)


@pytest.mark.parametrize("seed", [1])
def test_killed_at_random_moments_and_between_produce_and_commit(
    settings: KafkaSettings, gate: Gate, figure: Figure, seed: int, *, long: bool
) -> None:
    """Five merges, R0 to R4, in one process that is killed again and again while their inputs come and go."""
    kills = 50 if long else 5
    rng = random.Random(seed)
    # A session ends sooner: until then the lanes of a dead process wait.
    with running(settings, {**gate.environment, "LMERGE_SESSION_MS": "1000"}) as service, ExitStack() as stack:
        worlds = [
            stack.enter_context(KafkaWorld(settings, service, 5 * seed + n, count=20 * kills))
            for n in range(len(ALGORITHMS))
        ]
        for world in worlds:
            world.begin_three()
        for kill in range(kills):
            for world in worlds:
                world.step()
                world.act()
            if kill % 2:
                gate.close()
                rng.choice(worlds).step()
                wait_for_open_transaction(rng.choice(worlds).merge)
                service.end(signal.SIGKILL)
                gate.open()
            else:
                rng.choice(worlds).step()
                time.sleep(rng.uniform(0, 0.1))  # a random moment
                service.end(signal.SIGKILL)
            service.start()
            for world in worlds:
                wait_for_owner(world.merge, service)
        for world in worlds:
            world.end()
    figure(f"killed {kills} times with five merges, R0 to R4: nothing lost, nothing repeated")


@pytest.mark.parametrize("seed", [3, 9])
def test_lanes_move_between_two_processes(settings: KafkaSettings, seed: int, *, long: bool) -> None:
    """A second process takes its share, all of it when the first is killed, and gives back when that is there again."""
    if seed > 3 and not long:
        pytest.skip("R4 too: --long")
    rounds = 10 if long else 1
    with several(settings, 2) as (one, two), KafkaWorld(settings, one, seed, count=60 * (rounds + 1)) as world:
        world.begin_three()
        for _ in range(rounds):
            wait_for_owner(world.merge, one, two)
            play(world)
            one.end(signal.SIGKILL)
            world.merge.service = two
            world.step()
            wait_for_owner(world.merge, two)
            play(world)
            one.start()
            wait_for_owner(world.merge, one, two)
            play(world)
            assert two.end(signal.SIGTERM) == 0
            world.merge.service = one
            world.step()
            wait_for_owner(world.merge, one)
            two.start()
        world.end()


def test_attach_and_detach_move_no_lane(settings: KafkaSettings) -> None:
    """Lanes are shared by the merged topic alone: which inputs there are is nothing to the group."""
    with several(settings, 2) as services:
        merge = KafkaMerge(settings, services[0], partitions=2)  # each process gets one
        merge.make_topics("r1", "r2")
        for name in ("r1", "r2"):
            for partition in range(merge.partitions):
                append(settings, merge.topic(name), [stb(10)], partition)
        merge.attach("r1")
        wait_for_owner(merge, *services)
        owned = owners(merge)
        taken = [take_overs(service, merge) for service in services]
        assert sum(taken) >= merge.partitions
        for round_ in range(5):
            merge.service = services[round_ % 2]
            merge.attach("r2")
            merge.wait(lambda: joined_lanes(merge, "r2") == merge.partitions, "r2 is joined in all lanes")
            merge.detach("r2")
            merge.wait(lambda: all("r2" not in lane["inputs"] for lane in merge.lanes()), "r2 is gone")
        for partition in range(merge.partitions):
            append(settings, merge.topic("r1"), [stb(20)], partition)
        merge.wait_for_stable(20)
        assert owners(merge) == owned
        assert [take_overs(service, merge) for service in services] == taken


def owners(merge: KafkaMerge) -> list[str]:
    """Return by which process each lane was committed last."""
    return [lane["owner"] for lane in merge.lanes()]


def joined_lanes(merge: KafkaMerge, name: str) -> int:
    """Return in how many lanes an input is joined."""
    return sum(lane["inputs"].get(name, {}).get("membership") == "joined" for lane in merge.lanes())


def take_overs(service: Service, merge: KafkaMerge) -> float:
    """Return how many lanes of a merge a process has taken over, by its metrics."""
    return metric(service, f'lmerge_recovery_seconds_count{{merge="{merge.name}"}}')


def play(world: KafkaWorld) -> None:
    """Let the inputs do something."""
    for _ in range(3):
        world.step()
        world.act()


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_zombie_that_wakes_up_is_refused(
    settings: KafkaSettings, gate: Gate, *, in_transaction: bool, long: bool
) -> None:
    """The owner is stopped, another one takes over and goes on, the owner wakes up: in a transaction that is E15."""
    if not in_transaction and not long:
        pytest.skip("between two transactions a zombie has less to lose: --long")
    seed = 13 if in_transaction else 14
    with running(settings, gate.environment) as zombie, KafkaWorld(settings, zombie, seed) as world:
        world.begin_three()
        wait_for_owner(world.merge, zombie)
        play(world)
        if in_transaction:
            hold_a_transaction(world, gate)
        zombie.signal(signal.SIGSTOP)
        with running(settings) as successor:
            world.merge.service = successor
            world.step()
            wait_for_owner(world.merge, successor)
            play(world)
            if in_transaction:
                gate.open()
            zombie.signal(signal.SIGCONT)
            if in_transaction:
                world.merge.wait(lambda: refused(zombie, world.merge), "the zombie is refused")
            wait_for_owner(world.merge, zombie, successor)  # it is a member again, and gets its share
            world.end()


def test_a_process_that_is_cut_off_from_its_broker_loses_its_lanes_and_gets_its_share_when_it_is_back() -> None:
    """Its connections end, and are made again; then nothing comes through, for longer than its session."""
    port, door, told = ports.choose(3)
    listeners = second_door("WIRED", "PLAINTEXT", port=port, door=door, told=told)
    with LocalStack(port=port, settings=listeners) as stack, Wire(told, door) as wire, ExitStack() as services:
        settings, wired = (KafkaSettings(servers) for servers in (stack.bootstrap_servers, f"{HOST}:{told}"))
        cut_off = services.enter_context(running(wired))
        with KafkaWorld(settings, cut_off, 18) as world:
            world.begin_three()
            wait_for_owner(world.merge, cut_off)
            play(world)
            assert wire.reset() > 0
            play(world)
            wire.cut()
            world.step()
            successor = services.enter_context(running(settings))
            world.merge.service = successor
            wait_for_owner(world.merge, successor)
            play(world)
            wire.mend()
            wait_for_owner(world.merge, cut_off, successor)
            world.end()


def refused(service: Service, merge: KafkaMerge) -> bool:
    """Tell whether a process failed to commit a transaction of a merge."""
    return has_failed(service, merge, "commit_failed")


def has_failed(service: Service, merge: KafkaMerge, event: str) -> bool:
    """Tell whether a process had to begin something anew, by its metrics."""
    return failures(service, merge, event) > 0


def failures(service: Service, merge: KafkaMerge, event: str) -> float:
    """Return how often a process had to begin something anew, by its metrics: it is there, as 0, from the start."""
    return metric(service, f'lmerge_failures_total{{event="{event}",merge="{merge.name}"}}')


def metric(service: Service, series: str) -> float:
    """Return the value of a series that a process shows."""
    _, metrics = service.call("GET", "/metrics")
    start = f"{series} "
    return next(float(line.removeprefix(start)) for line in str(metrics).splitlines() if line.startswith(start))


def test_a_lane_that_cannot_be_taken_over_holds_no_other(settings: KafkaSettings) -> None:
    """Somebody has a transaction open in the merged topic, so nobody knows what lane 0 has put out."""
    patient = KafkaSettings(settings.bootstrap_servers, transaction_timeout_ms=300_000)
    with running(settings) as service, TransactionalWriter(patient, f"foreign/{uuid.uuid4().hex}") as foreign:
        merge = KafkaMerge(settings, service, partitions=2)
        merge.make_topics("r1")
        merge.attach("r1")
        for partition in (0, 1):
            append(settings, merge.topic("r1"), [ins(b"1", 5, 9), stb(10)], partition)
        merge.wait_for_stable(10)
        service.end(signal.SIGKILL)
        foreign.fence()
        with log_end(settings, merge.merged_topic, 0) as end:
            before = end()
            foreign.begin()
            foreign.write(merge.merged_topic, 0, [(None, b"aborted")])
            wait_until(lambda: end() > before, "a transaction is open")
        for partition in (0, 1):
            append(settings, merge.topic("r1"), [stb(20)], partition)
        service.start()
        merge.wait(lambda: merge.lanes()[1]["stable"] == 20, "lane 1 goes on")
        assert failures(service, merge, "take_over_failed") == 0, "lane 0 is still being taken over"
        assert merge.lanes()[0]["stable"] == 10
        foreign.abort()
        merge.wait_for_stable(20)


@pytest.fixture
def mortal() -> Iterator[LocalStack]:
    """A broker of our own, to be stopped or killed."""
    with LocalStack() as stack:
        yield stack


def test_what_is_defined_and_merged_survives_a_stop_of_everything(mortal: LocalStack) -> None:
    settings = KafkaSettings(mortal.bootstrap_servers)
    with running(settings) as service, KafkaWorld(settings, service, 8) as world:
        world.begin_three()
        play(world)
        path = f"/v1/merges/{world.merge.name}"
        wanted = service.call("GET", path)[1]["desired"]
        service.end(signal.SIGKILL)
        mortal.stop(keep_data=True)
        mortal.start()
        service.start()
        assert service.call("GET", path)[1]["desired"] == wanted
        world.restart_producers()
        world.end()


@pytest.mark.parametrize("seed", [3])
def test_a_broker_that_is_killed_in_mid_transaction_and_comes_back(
    mortal: LocalStack, gate: Gate, figure: Figure, seed: int, *, long: bool
) -> None:
    """The commits begin while nobody is there. A lone broker may lose its decision on them at its start (ADR 4)."""
    kills = 10 if long else 1
    settings = KafkaSettings(mortal.bootstrap_servers)
    with running(settings, gate.environment) as service, KafkaWorld(settings, service, seed, count=60 * kills) as world:
        world.begin_three()
        for kill in range(kills):
            play(world)
            # What came before these transactions is decided: a broker takes none of a writer whose last one is not.
            hold_a_transaction(world, gate)
            world.wait_until_inputs_are_decided()
            mortal.kill()
            gate.open()
            mortal.restart()
            world.restart_producers()
            if undecided := world.undecided():
                figure(
                    f"kill {kill + 1} of a lone broker: it lost its decision on {', '.join(undecided)} (KAFKA-20734)"
                )
                require_standstill(world, undecided)
                return
        world.end()


def test_one_of_three_brokers_is_killed_in_mid_transaction_and_comes_back(
    gate: Gate, figure: Figure, *, long: bool
) -> None:
    """With replication no decision is lost: it goes on while each of them is away, and is right in the end."""
    if not long:
        pytest.skip("three brokers on two cores: --long")
    kills = 6
    with LocalStack(brokers=3) as stack, ExitStack() as rest:
        settings = KafkaSettings(stack.bootstrap_servers)
        service = rest.enter_context(running(settings, gate.environment))
        world = rest.enter_context(KafkaWorld(settings, service, 3, count=60 * kills))
        world.begin_three()
        for kill in range(kills):
            play(world)
            hold_a_transaction(world, gate)
            stack.kill(node=1 + kill % 3)
            gate.open()
            world.restart_producers()
            play(world)
            assert not world.undecided()
            world.merge.wait(lambda: world.joined() != set(), "it goes on without the broker")
            stack.restart()
        world.end()
    figure(f"{kills} kills of one of three brokers with transactions open: nothing lost, nothing repeated")


def require_standstill(world: KafkaWorld, undecided: list[str]) -> None:
    """Lanes without a decision are not run, so that nothing is written twice; what is there is right."""
    merge = world.merge
    stuck = [
        p for p in range(merge.partitions) if {f"{merge.merged_topic}/{p}", f"{merge.name}.state/{p}"} & {*undecided}
    ]
    if stuck:
        merge.wait(lambda: has_failed(merge.service, merge, "take_over_failed"), "taking over is given up")
    for partition in stuck:
        with log_end(merge.settings, merge.merged_topic, partition) as end:
            before, so_far = end(), failures(merge.service, merge, "take_over_failed")
            world.step()
            merge.wait(
                lambda so_far=so_far: failures(merge.service, merge, "take_over_failed") > so_far,  # type: ignore[misc]
                "taking over is given up again",
            )
            assert end() == before
    merge.require_certified()


@pytest.mark.parametrize("live", [1_000, 10_000, 100_000])
def test_a_survivor_goes_on_with_everything_that_is_live(
    settings: KafkaSettings, figure: Figure, live: int, *, long: bool
) -> None:
    """So many events are not final when the owner is killed; a standby takes over and goes on."""
    if live > 1_000 and not long:
        pytest.skip("a large size: --long")
    reference = [Event(f"e{n}", n, 10 * live) for n in range(live)]
    elements: list[Element] = [ins(e.payload, e.vs, e.ve) for e in reference]
    with several(settings, 2) as services, ExitStack() as stack:
        merge = KafkaMerge(settings, services[0])
        merge.make_topics("r1", "r2")
        r1, r2 = (stack.enter_context(Producer(settings, merge.topic(name), 1)) for name in ("r1", "r2"))
        for producer in (r1, r2):
            producer.begin([*elements, stb(live), stb(live + 1), stb(INFINITY)])
            producer.send(live + 1)
        merge.attach("r1", "r2")
        merge.wait_for_stable(live, seconds=300)
        merge.wait(lambda: merge.of("r2")["stable"] == live, "r2 is read", seconds=300)
        owner, survivor = sorted(services, key=lambda each: each.owner != merge.lanes()[0]["owner"])
        owner.end(signal.SIGKILL)
        killed = time.monotonic()
        merge.service = survivor
        r1.send(1)
        reader = stack.enter_context(TailReader(settings))
        wait_until(lambda: last(reader, merge) == stb(live + 1), "the survivor goes on", seconds=300)
        gap = time.monotonic() - killed
        (lane,) = merge.lanes()
        assert (lane["owner"], lane["live_events"]) == (survivor.owner, live)
        figure(
            f"{live:,} live events: taken over in {recovery_seconds(survivor, merge):.2f} s, "
            f"{gap:.1f} s from SIGKILL to the next merged stable"
        )
        r2.send_rest()
        merge.wait_for_stable(INFINITY, seconds=300)
        assert merge.tdb() == wire_tdb(reference)
        merge.require_certified()


def last(reader: TailReader, merge: KafkaMerge) -> Element:
    """Return the last element that a merge has put out."""
    tail = reader.read_tail(merge.merged_topic, 0)
    assert tail is not None
    return decode(tail.value)


def recovery_seconds(service: Service, merge: KafkaMerge) -> float:
    """Return how long a process took to take the lanes of a merge over, by its metrics."""
    return metric(service, f'lmerge_recovery_seconds_sum{{merge="{merge.name}"}}')
