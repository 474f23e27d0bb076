"""A random world around a merge on a real broker: producers of one TDB come, go, pause, crash and begin anew.

    with KafkaWorld(settings, service, seed) as world:
        world.run()

The seed decides the events, how each producer presents them, and what is done; when it meets the running service, the
machine decides. An input is let go or begun anew only while another one is joined in every lane, by what is committed
(E21): else events could be lost for good.
"""

import random
import time
from collections.abc import Callable
from typing import Any, Final, Self

from lmerge import INFINITY, MINUS_INFINITY, Hello
from lmerge.kafka import KafkaSettings, TailReader, Undecided
from tests.support.kafka import wait_until_decided
from tests.support.kafka_merge import KafkaMerge, wire_tdb
from tests.support.logical import events, present
from tests.support.merge_service import Service
from tests.support.producer import Producer

ALGORITHMS: Final = ("R0", "R1", "R2", "R3", "R4")

PROMISES: Final[dict[str, dict[str, Any]]] = {
    "R0": {"insert_only": True, "order": "strictly increasing"},
    "R1": {"insert_only": True, "order": "non-decreasing", "tie_order": "log order"},
    "R2": {"insert_only": True, "order": "non-decreasing", "key": True},
    "R3": {"key": True},
    "R4": {},
}
"""What inputs promise so that `algorithm: auto` comes to each algorithm."""

NAMES: Final = ("r1", "r2", "r3", "r4", "r5")


class KafkaWorld:
    """One merge with its producers; algorithm and number of lanes follow from the seed.

    Args:
        settings: the cluster.
        service: the process that is asked.
        seed: of everything that is drawn.
        count: about how many events there are.
    """

    def __init__(self, settings: KafkaSettings, service: Service, seed: int, *, count: int = 120) -> None:
        self.rng = random.Random(seed)
        self.algorithm = ALGORITHMS[seed % len(ALGORITHMS)]
        self._horizon = 2 * count
        self.reference = events(self.rng, self.algorithm, count=count, horizon=self._horizon)
        promises = PROMISES[self.algorithm]
        self.merge = KafkaMerge(settings, service, partitions=self.rng.choice([2, 3]), properties=[promises])
        self.merge.make_topics(*NAMES)
        self.producers = {name: Producer(settings, self.merge.topic(name), self.merge.partitions) for name in NAMES}
        self.attached: set[str] = set()
        self.paused: set[str] = set()
        self.done: list[str] = []
        """What was done, for the message of a failure."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        for producer in self.producers.values():
            producer.close()
        if error is None:
            self.merge.service.call("DELETE", f"/v1/merges/{self.merge.name}")  # else it goes on beside the next ones
        else:
            error.add_note(f"{self.algorithm}, merge {self.merge.name}: {'; '.join(self.done)}")
            error.add_note(f"{self.merge.service.call('GET', f'/v1/merges/{self.merge.name}')}")

    def run(self, acts: int) -> None:
        """Let three begin, do so many things to the inputs while they say what they have to say, and judge."""
        self.begin_three()
        for _ in range(acts):
            self.step()
            self.act()
        self.end()

    def step(self) -> bool:
        """Let one of the producers say something more; False if all have said everything."""
        left = [name for name in sorted(self.attached) if not self.producers[name].is_done]
        if left:
            self._send(self.rng.choice(left))
        return bool(left)

    def begin_three(self) -> None:
        """Attach a foreign producer, one that says hello, and one that was started cold; wait until it runs."""
        for name in NAMES[:3]:
            self._begin(name, cold=name == "r3", foreign=name == "r1")
            self._attach(name)
        self._require_algorithm()
        self.producers["r1"].send_a_stable()
        self.merge.wait(lambda: "r1" in self.joined(), "it begins")

    def end(self) -> None:
        """Let everyone go on and say the rest, and judge what came out."""
        for name in sorted(self.attached):
            producer = self.producers[name]
            if name in self.paused:
                self._resume(name)
            if producer.is_dead:
                producer.restart()
            producer.send_rest()
        self.merge.wait_for_stable(INFINITY)
        assert self.merge.tdb() == wire_tdb(self.reference)
        self.merge.require_certified()
        self.merge.require_quiet()

    def wait_until_inputs_are_decided(self) -> None:
        """Wait until what living producers have committed can be read: a broker that is killed before may lose it."""
        for name, producer in self.producers.items():
            for partition in range(self.merge.partitions if not producer.is_dead else 0):
                wait_until_decided(self.merge.settings, self.merge.topic(name), partition)

    def undecided(self) -> list[str]:
        """Return the partitions in which a transaction is not decided though nobody has it open any more."""
        topics = [self.merge.merged_topic, f"{self.merge.name}.state", *map(self.merge.topic, sorted(self.attached))]
        found = []
        deadline = time.monotonic() + 15  # an open transaction of somebody who died is aborted after 10 s
        with TailReader(self.merge.settings) as reader:
            for topic in topics:
                for partition in range(self.merge.partitions):
                    try:
                        left = max(0.0, deadline - time.monotonic())
                        reader.require_decided(topic, partition, timeout_seconds=left)
                    except Undecided:
                        found.append(f"{topic}/{partition}")
        return found

    def restart_producers(self) -> None:
        """Let every producer that is attached fence and go on, after its broker was away."""
        for name in sorted(self.attached):
            self.producers[name].restart()

    def act(self) -> None:
        """Do something to an input."""
        action: Callable[[], None] = self.rng.choice(
            [self._attach_one, self._detach_one, self._pause_one, self._resume_one, self._kill_one, self._skip_one]
        )
        action()

    def joined(self) -> set[str]:
        """Return the inputs that are joined in every lane with their present incarnation, by what is committed."""
        lanes = self.merge.lanes()
        return {
            name
            for name in self.attached
            if all(
                (found := lane["inputs"].get(name)) is not None
                and found["membership"] == "joined"
                and found["incarnation"] == self.producers[name].incarnation
                for lane in lanes
            )
        }

    # -- what may be done to an input

    def _attach_one(self) -> None:
        names = [name for name in NAMES if name not in self.attached]
        if not names or len(self.attached) == 4:
            return
        name = self.rng.choice(names)
        if self.producers[name].incarnation == 0 or self.rng.random() < 0.5:
            self._begin(name, cold=self.rng.random() < 0.7)
        self._attach(name)

    def _detach_one(self) -> None:
        if name := self._dispensable():
            self.done.append(f"detach {name}")
            self.merge.detach(name)
            self.attached.discard(name)
            self.paused.discard(name)

    def _pause_one(self) -> None:
        names = sorted(self.attached - self.paused)
        if len(names) > 1:
            name = self.rng.choice(names)
            self.done.append(f"pause {name}")
            self.paused.add(name)
            self.merge.hold(name)

    def _resume_one(self) -> None:
        if self.paused:
            self._resume(self.rng.choice(sorted(self.paused)))

    def _resume(self, name: str) -> None:
        self.done.append(f"resume {name}")
        self.merge.ordered(name, "resume")
        self.paused.discard(name)

    def _kill_one(self) -> None:
        """Crash a producer in the middle of a transaction, or restart a dead one, warm or cold."""
        dead = [name for name in sorted(self.attached) if self.producers[name].is_dead]
        if not dead:
            name = self.rng.choice(sorted(self.attached))
            if not self.producers[name].is_done:
                self.done.append(f"crash {name}")
                self.producers[name].crash(5)
            return
        name = dead[0]
        if self.rng.random() < 0.5 and self._dispensable(name):
            self._begin(name, cold=True)
        else:
            self.done.append(f"restart {name}")
            self.producers[name].restart()

    def _skip_one(self) -> None:
        stable = self.merge.stable()
        alive = [name for name in sorted(self.attached) if not self.producers[name].is_dead]
        if stable is not None and stable != INFINITY and alive:
            name = self.rng.choice(alive)
            before = self.rng.randrange(stable - 20, stable + 1)
            self.done.append(f"skip {name} to {before}")
            self.producers[name].skip(before, self.reference)

    def _dispensable(self, name: str | None = None) -> str | None:
        """Return an input (this one, if it is given) without which another one is joined still."""
        joined = self.joined()
        candidates = [name] if name is not None else sorted(self.attached)
        free = [each for each in candidates if joined - {each}]
        return self.rng.choice(free) if free else None

    # -- producers

    def _begin(self, name: str, *, cold: bool, foreign: bool = False) -> None:
        joins_at = self.rng.randrange(self._horizon) if cold else MINUS_INFINITY
        stream = present(self.algorithm, self.reference, self.rng, joins_at)
        hello = None
        if not foreign:
            stream = [element for element in stream if not isinstance(element, Hello)]
            hello = Hello(replica=name, incarnation=0, joins_at=joins_at, properties=PROMISES[self.algorithm])
        self.done.append(f"begin {name} at {joins_at}" if joins_at > MINUS_INFINITY else f"begin {name}")
        self.producers[name].begin(stream, hello)

    def _attach(self, name: str) -> None:
        self.done.append(f"attach {name}")
        self.merge.attach(name, properties=PROMISES[self.algorithm])
        self.attached.add(name)

    def _send(self, name: str) -> None:
        producer = self.producers[name]
        if producer.is_dead:
            self.done.append(f"restart {name}")
            producer.restart()
        lag = NAMES.index(name) + 1  # some are faster
        producer.send(self.rng.randrange(1, 60 // lag))

    def _require_algorithm(self) -> None:
        desired = self.merge.view["desired"]
        assert desired["algorithm"] == self.algorithm, desired["reason"]
