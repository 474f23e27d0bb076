"""A merge that the service runs on a real broker: what a test asks for over REST, and what came of it.

merge = KafkaMerge(settings, service, partitions=2, algorithm="R2")
merge.make_topics("r1", "r2")
merge.attach("r1", "r2")
...
merge.wait_for_stable(INFINITY)
merge.require_certified()
assert merge.tdb() == wire_tdb(reference)
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from lmerge import INFINITY, TDB, Element, Event, Insert, reconstitute
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from tests.support.cli import run_cli
from tests.support.kafka import wait_until, wait_until_decided
from tests.support.logical import on_the_wire
from tests.support.merge_service import DEADLINE, NOT_NOW, Service, merged


def wire_tdb(events: Iterable[Event]) -> TDB:
    """Return the TDB of events whose payloads are given the form that they have on the wire."""
    return reconstitute(on_the_wire(Insert(e.payload, e.vs, e.ve) for e in events))


class KafkaMerge:
    """One merge; `service` is the process that is asked, and may be exchanged for another."""

    def __init__(self, settings: KafkaSettings, service: Service, *, partitions: int = 1, **definition: Any) -> None:
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self.merged_topic = f"{self.name}.merged"
        self.service = service
        self.settings = settings
        self.partitions = partitions
        self.view = service.put(self.name, {"partitions": partitions, **definition})

    # -- what is wanted

    def topic(self, name: str) -> str:
        """Return the topic of an input."""
        return f"{self.name}.{name}"

    def make_topics(self, *names: str) -> None:
        """Make the topics of inputs."""
        TopicAdmin(self.settings).ensure(*(TopicSpec(self.topic(name), self.partitions) for name in names))

    def attach(self, *names: str, **fields: Any) -> None:
        """Attach inputs."""
        for name in names:
            self.service.put(f"{self.name}/inputs/{name}", {"topic": self.topic(name), **fields})

    def detach(self, name: str) -> None:
        """Detach an input."""
        status, answer = self.service.call("DELETE", f"/v1/merges/{self.name}/inputs/{name}")
        assert status == 204, answer

    def order(self, name: str, what: str, body: Any = None) -> tuple[int, Any]:
        """Order something of an input: pause, resume, release, fast-forward."""
        return self.service.call("POST", f"/v1/merges/{self.name}/inputs/{name}:{what}", body)

    def ordered(self, name: str, what: str, body: Any = None) -> None:
        """Order something, and require that it is granted; "not now" is asked again, as every client has to.

        A service whose broker was away says so, and one that is killed says nothing.
        """
        status, answer = 0, None

        def is_answered() -> bool:
            nonlocal status, answer
            status, answer = self.order(name, what, body)
            return status not in {0, NOT_NOW}

        self.wait(is_answered, f"{what} {name} is answered")
        assert status == 200, answer

    def hold(self, name: str) -> None:
        """Pause an input, and wait until it is not read any more."""
        self.ordered(name, "pause")
        self.wait(lambda: "paused" in self.of(name)["conditions"], f"{name} is held")

    # -- what is

    def lanes(self) -> list[Any]:
        """Return what is observed of the lanes."""
        return list(self.service.observed(self.name)["lanes"])

    def of(self, name: str) -> Any:
        """Return what is observed of an input."""
        return self.service.observed(f"{self.name}/inputs/{name}")

    def stable(self) -> int | None:
        """Return how far every lane has come."""
        found = self.service.observed(self.name)["stable"]
        return INFINITY if found == "+inf" else found

    def wait(self, condition: Callable[[], bool], what: str, *, seconds: float = DEADLINE) -> None:
        """Wait for something that is asked over REST, so not all the time: the service has other work too."""
        wait_until(condition, f"{self.name}: {what}", seconds=seconds, every=0.05)

    def wait_for_stable(self, vc: int, *, seconds: float = DEADLINE) -> None:
        """Wait until every lane has come so far, and it can be read."""
        self.wait(lambda: (self.stable() or 0) >= vc, f"it is stable at {vc}", seconds=seconds)
        for partition in range(self.partitions):
            wait_until_decided(self.settings, self.merged_topic, partition)

    def wait_for(self, name: str, membership: str, *conditions: str) -> Any:
        """Wait until an input is in such a state in some lane, and return what is observed of it."""
        found: Any = None

        def is_so() -> bool:
            nonlocal found
            found = self.of(name)
            return found["membership"] == membership and set(conditions) <= set(found["conditions"])

        self.wait(is_so, f"input {name} is {membership} {conditions}")
        return found

    def output(self, partition: int = 0) -> list[Element]:
        """Return what is committed of a lane."""
        return merged(self.settings, self.merged_topic, partition)

    def outputs(self) -> list[list[Element]]:
        """Return what is committed of every lane."""
        return [self.output(partition) for partition in range(self.partitions)]

    def tdb(self) -> TDB:
        """Return the table that all lanes together stand for; every prefix of each must be legal."""
        return TDB(event for output in self.outputs() for event in reconstitute(output))

    def require_certified(self) -> None:
        """Let the certifier judge every lane by all inputs that are or were attached."""
        servers = ("--bootstrap-servers", self.settings.bootstrap_servers)
        result = run_cli("certify", "--merge", self.name, *servers)
        assert result.code == 0, result.out + result.err

    def require_quiet(self) -> None:
        """Nobody is quarantined or contradicted."""
        observed = self.service.observed(self.name)
        assert observed["divergences"] == 0, observed
        for lane in observed["lanes"]:
            for name, each in lane["inputs"].items():
                assert "quarantined" not in each["conditions"], (name, each)
