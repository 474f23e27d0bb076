"""The parts of the merge service that REST needs, in memory: for tests of the API and the command line alone."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from lmerge.kafka import BrokerError, MissingTopic, TopicDescription
from services.merge.api import Parts, make_app
from services.merge.api.guard import Limits
from services.merge.definitions import Changed, Desired
from services.merge.lane_record import InputRecord, LaneRecord, Stop
from services.merge.tokens import Tokens, from_environment

ADMIN = "admin-token-of-this-test"
READ = "read-token-of-this-test"
NOW = 1_700_000_000_000


class MemoryControl:
    """Folds decisions as the real one does, and keeps them in a dictionary."""

    def __init__(self) -> None:
        self.desired: Mapping[str, Desired] = {}
        self.changes: list[tuple[str, str, str]] = []
        """Who, why and what, of every change."""

    def follow(self) -> None:
        """Nobody else changes it."""

    def change(
        self, name: str, decide: Callable[[Desired | None], Desired | None], *, by: str, why: str, what: str
    ) -> Desired | None:
        now = self.desired.get(name)
        then = decide(now)
        if then == now:
            return now
        self.changes.append((by, why, what))
        rest = {other: each for other, each in self.desired.items() if other != name}
        if then is None:
            self.desired = rest
            return None
        then = then.model_copy(update={"changed": Changed(by=by, at_ms=NOW, why=why, what=what)})
        # As if it had been written and read: what cannot be stored is found here.
        then = Desired.model_validate_json(then.model_dump_json())
        self.desired = {**rest, name: then}
        return then


class MemoryRecords:
    """The lane records that a test puts here; a merge without any has no state topic yet."""

    def __init__(self) -> None:
        self.records: dict[str, list[LaneRecord | None]] = {}
        self.error: Exception | None = None

    def read(self, merge: str, desired: Desired) -> list[LaneRecord | None]:
        if self.error is not None:
            raise self.error
        if merge not in self.records:
            raise MissingTopic(f"no topic {desired.definition.state(merge)}")
        return self.records[merge]


class MemoryTopics:
    """Topics by name, with their number of partitions."""

    def __init__(self) -> None:
        self.partitions: dict[str, int] = {}
        self.error: BrokerError | None = None

    def describe(self, *names: str) -> dict[str, TopicDescription]:
        if self.error is not None:
            raise self.error
        for name in names:
            if name not in self.partitions:
                raise MissingTopic(f"cannot describe topic {name}")
        return {name: TopicDescription(name, f"id-of-{name}", self.partitions[name], {}) for name in names}


class MemoryHealth:
    """Whether the loop runs, as a test says."""

    is_running = True


class Client:
    """Calls an application in this process, each time in an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._transport = httpx.ASGITransport(app)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Make one request."""

        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://test") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())


class World:
    """The application with all its parts, and a client for it."""

    def __init__(self, tokens: Tokens | None = None, limits: Limits | None = None) -> None:
        self.control = MemoryControl()
        self.records = MemoryRecords()
        self.topics = MemoryTopics()
        self.health = MemoryHealth()
        self.registry = CollectorRegistry()
        parts = Parts(self.control, self.records, self.health, self.topics, self.registry, lambda: NOW)
        both = from_environment({"LMERGE_ADMIN_TOKEN": ADMIN, "LMERGE_READ_TOKEN": READ})
        self.app = make_app(parts, tokens or Tokens(both), limits)
        self.client = Client(self.app)

    def call(
        self, method: str, path: str, body: object = None, *, token: str | None = ADMIN, **headers: str
    ) -> tuple[int, Any]:
        """Make a call; give the status and the body."""
        sent = {name.replace("_", "-"): value.encode() for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}".encode()
        if body is not None:
            sent["Content-Type"] = b"application/json"
        content = None if body is None else json.dumps(body)
        response = self.client.request(method, path, content=content, headers=sent)
        assert response.status_code < 500 or "problem" in response.headers["content-type"]
        return response.status_code, response.json() if response.content else None

    def with_merge(self, name: str = "m", partitions: int = 1, inputs: tuple[str, ...] = ("r1", "r2")) -> None:
        """Define a merge and attach inputs."""
        assert self.call("PUT", f"/v1/merges/{name}", {"partitions": partitions})[0] == 201
        for each in inputs:
            self.topics.partitions[f"{name}.replica.{each}"] = partitions
            body = {"topic": f"{name}.replica.{each}"}
            assert self.call("PUT", f"/v1/merges/{name}/inputs/{each}", body)[0] == 201

    def committed(self, merge: str, *stables: int | None, stop: dict[str, Stop] | None = None) -> None:
        """Let each lane of a merge have committed a stable, all inputs joined but those that are stopped."""
        stops = stop or {}
        inputs = self.control.desired[merge].inputs
        merge_id = self.control.desired[merge].id

        def record(stable: int | None) -> LaneRecord:
            taken = {
                name: InputRecord(
                    attachment=each.attachment,
                    topic=each.definition.topic,
                    position=10,
                    start=0,
                    safe=0,
                    own_stable=None if stable is None else stable - 7,
                    joined=name not in stops,
                    stop=stops.get(name),
                    heard_at_ms=NOW,
                )
                for name, each in inputs.items()
            }
            return LaneRecord(v=1, merge_id=merge_id, batch=1, at_ms=NOW, max_stable=stable, leader="r1", inputs=taken)

        self.records.records[merge] = [record(stable) for stable in stables]
