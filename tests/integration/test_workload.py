"""The workload as a process on a real broker: what is committed is what the file says, aborted and stopped or not."""

import os
import signal
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

from lmerge.kafka import KafkaSettings, Record, TailReader, TopicAdmin, TopicSpec
from services.workload.nexmark import TOPICS, Parameters, partition_of, rows
from tests.support.kafka import wait_until

PARTITIONS = 2
Start: TypeAlias = Callable[..., subprocess.Popen[str]]


class Line(msgspec.Struct):
    topic: str
    partition: int
    ts: int
    row: msgspec.Raw


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def prefix() -> str:
    return f"workload-{uuid.uuid4().hex}."


@pytest.fixture
def start(bootstrap_servers: str) -> Iterator[Start]:
    """Start the workload; it is gone after the test."""
    with ExitStack() as stack:

        def start(*arguments: str, servers: str = bootstrap_servers) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "services.workload", "--partitions", str(PARTITIONS), *arguments]
            env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "KAFKA_BOOTSTRAP_SERVERS": servers}
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env))
            stack.callback(process.kill)
            return process

        yield start


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    return errors


def read_topics(settings: KafkaSettings, prefix: str) -> dict[tuple[str, int], list[Record]]:
    read = {}
    with TailReader(settings) as reader:
        for topic in (prefix + name for name in TOPICS):
            for partition in range(PARTITIONS):
                reader.require_decided(topic, partition)
                batches = reader.read_range(topic, partition, start=0)
                read[topic, partition] = [record for batch in batches for record in batch]
    return read


def read_file(path: Path) -> dict[tuple[str, int], list[bytes]]:
    read = defaultdict(list)
    for line in msgspec.json.Decoder(Line).decode_lines(path.read_bytes()):
        read[line.topic, line.partition].append(bytes(line.row))
    return dict(read)


def test_what_is_committed_equals_the_file_of_the_same_seed_and_what_was_aborted_leaves_nothing(
    start: Start, settings: KafkaSettings, prefix: str, tmp_path: Path
) -> None:
    options = ["--seed", "11", "--rows", "8000", "--rate", "20000", "--prefix", prefix, "--close", "60"]
    options += ["--disorder-ms", "40", "--skew-ms", "100"]
    beside, alone = tmp_path / "beside.jsonl", tmp_path / "alone.jsonl"
    to_topics = start(*options, "--abort-share", "1", "--file", str(beside))
    finish(start(*options, "--file", str(alone), servers=""))
    assert "transactions aborted" in finish(to_topics)
    assert beside.read_bytes() == alone.read_bytes()
    read = read_topics(settings, prefix)
    assert {place: [record.value for record in records] for place, records in read.items()} == read_file(alone)
    with TailReader(settings) as reader:
        ends = [reader.watermarks(topic, partition).end for topic, partition in read]
    # Aborted records were there: every batch was written twice, and the markers are few.
    assert sum(ends) > 8_000 + 12 + 1_000
    for (_, partition), records in read.items():
        assert all(partition_of(record.key or b"", PARTITIONS) == partition for record in records[:-1])


def test_sigterm_ends_a_run_after_a_whole_transaction_and_the_closing_rows(
    start: Start, settings: KafkaSettings, prefix: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    options = ["--seed", "12", "--rate", "5000", "--prefix", prefix, "--file", str(path), "--close"]
    process = start(*options)
    wait_until(lambda: path.exists() and path.stat().st_size > 100_000, "some batches are written")
    process.send_signal(signal.SIGTERM)
    assert finish(process).startswith("workload: stopped: ")
    read = read_topics(settings, prefix)
    assert {place: [record.value for record in records] for place, records in read.items()} == read_file(path)
    lines = msgspec.json.Decoder(Line).decode_lines(path.read_bytes())
    closing = len(TOPICS) * PARTITIONS
    written = [(line.topic, line.partition, line.ts, bytes(line.row)) for line in lines]
    parameters = Parameters(seed=12, event_rate=5_000, partitions=PARTITIONS, prefix=prefix)
    made = islice(rows(parameters), len(lines) - closing)
    expected = [(row.topic, row.partition, row.ts, msgspec.json.encode(row.fields)) for row in made]
    assert written[:-closing] == expected
    assert {place: len(records) for place, records in read.items() if records[-1].key != b"%d" % (-1 - place[1])} == {}
    assert {ts for _, _, ts, _ in written[-closing:]} == {expected[-1][2] + 1_800_000}


def test_topics_that_are_missing_or_have_other_partitions_are_told_without_a_traceback(
    start: Start, settings: KafkaSettings, prefix: str
) -> None:
    options = ["--rows", "1", "--prefix", prefix]
    errors = finish(start(*options, "--no-create"), code=1)
    assert f"{prefix}persons" in errors
    TopicAdmin(settings).ensure(*(TopicSpec(prefix + topic, PARTITIONS + 1) for topic in TOPICS))
    others = [start(*options, create) for create in ("--create", "--no-create")]
    errors += "".join(finish(process, code=1) for process in others)
    assert errors.count("it has 3 partitions, 2 are wanted") == 2
    assert "Traceback" not in errors
