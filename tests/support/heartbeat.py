"""The heartbeat service as a process of its own, and a feed with rows for it on a real broker."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from lmerge.feed import Heartbeat, counts, segments
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.kafka import committed, grow_topic, wait_until

T0 = 1_700_000_000_000
DISORDER_MS = 100


class HeartbeatProcess:
    """A running service; its log is a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "services.heartbeat", *arguments]
        with log.open("wb") as stream:
            self.process = subprocess.Popen(command, stderr=stream)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        text = self._log.read_text()
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line) for line in whole if not line.startswith("%")]  # librdkafka's last words

    def events(self) -> list[str]:
        """The events that it has logged so far."""
        return [line["event"] for line in self.lines]

    def wait(self) -> int:
        """Wait for its end, and give the exit code."""
        return self.process.wait(20)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and give the exit code."""
        os.kill(self.process.pid, number)
        return self.wait()

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Feed:
    """A feed of one topic with rows of its own, and the services that were started for it."""

    def __init__(self, settings: KafkaSettings, directory: Path, *, partitions: int) -> None:
        self.name = f"feed-{uuid.uuid4().hex}"
        self.topic = f"{self.name}-bids"
        self.settings = settings
        self.file = directory / "feed.toml"
        self.define()
        self.services: list[HeartbeatProcess] = []
        TopicAdmin(settings).ensure(TopicSpec(self.topic, partitions=partitions))
        self._directory = directory
        self._writer = self._connect()

    def _connect(self) -> TransactionalWriter:
        writer = TransactionalWriter(self.settings, self.topic)
        writer.fence()
        return writer

    def grow(self, partitions: int) -> None:
        """Give the topic more partitions."""
        grow_topic(self.settings, self.topic, partitions)
        self._writer.close()
        self._writer = self._connect()  # the old one would learn of the new partition in minutes

    def define(self, *, topic: str | None = None, time: str = "$.ts", feed: str = "", source: str = "") -> None:
        """Write the feed file; `feed` and `source` are further lines of it."""
        first = f'topic = "{topic or self.topic}"\ntime = "{time}"\ndisorder_ms = {DISORDER_MS}\n{source}'
        self.file.write_text(f'name = "{self.name}"\n{feed}\n[[sources]]\n{first}\n')

    def start(self, *options: str) -> HeartbeatProcess:
        """Start a service."""
        log = self._directory / f"{len(self.services)}.log"
        servers = self.settings.bootstrap_servers
        arguments = ["--bootstrap-servers", servers, "--feed", str(self.file), "--interval-ms", "20"]
        arguments += ["--session-ms", "1000", *options]
        self.services.append(HeartbeatProcess(log, *arguments))
        return self.services[-1]

    def write(self, partition: int, *timestamps: int | None, aborts: bool = False) -> None:
        """Write rows, in one transaction; None is a row that cannot be read."""
        rows = [(None, b"{}" if ts is None else b'{"ts":%d}' % (T0 + ts)) for ts in timestamps]
        self._writer.begin()
        self._writer.write(self.topic, partition, rows)
        if aborts:
            self._writer.abort()
        else:
            self._writer.commit()

    def heartbeats(self) -> list[Heartbeat]:
        """Read all heartbeats, and check that each follows the one before."""
        beats = [Heartbeat.decode(record.value) for record in committed(self.settings, f"{self.name}.heartbeats")]
        for before, beat in pairwise(beats):
            beat.require_follows(before)
        return beats

    def last(self) -> Heartbeat | None:
        """Read the last heartbeat."""
        with TailReader(self.settings) as reader:
            record = reader.read_tail(f"{self.name}.heartbeats", 0)
        return None if record is None else Heartbeat.decode(record.value)

    def wait_for(self, condition: Callable[[Heartbeat], bool], what: str) -> Heartbeat:
        """Wait until the last heartbeat is as wanted."""

        def is_there() -> bool:
            failed = [service.lines for service in self.services if service.process.poll() not in {None, 0, -9}]
            assert not failed, failed
            last = self.last() if any("feed taken over" in service.events() for service in self.services) else None
            return last is not None and condition(last)

        wait_until(is_there, what, every=0.02)  # a look opens a connection: without a pause it takes a core
        last = self.last()
        assert last is not None
        return last

    def close(self) -> None:
        self._writer.close()
        for service in self.services:
            service.close()


def rows_that_count(feed: Feed, partition: int, beats: list[Heartbeat]) -> list[int]:
    """Give the timestamps that count, as every replica would: by the heartbeats alone."""
    records = committed(feed.settings, feed.topic, partition)
    rows = [
        (segment, json.loads(record.value or b"").get("ts"))
        for segment in segments(beats, feed.topic, partition)
        for record in records
        if segment.start <= record.offset < segment.end
    ]
    return [ts - T0 for segment, ts in rows if counts(ts, tau_before=segment.tau_before, ceiling=segment.ceiling)]
