"""The commands that call the merge service, against its API on a loopback port with its parts in memory."""

import doctest
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from click.testing import CliRunner

from lmerge import INFINITY
from lmerge.errors import LMergeError, UsageError
from lmerge.kafka import (
    MissingTopic,
    RebuildError,
    RecordsGone,
    Refused,
    RetryError,
    Undecided,
    WrongPartitions,
)
from lmerge.process.api import NotGranted, Unreachable
from services import moment
from services.cli import columns
from services.cli.__main__ import cli
from services.cli.failure import exit_code
from services.cli.status_words import describe
from services.merge.api.server import CannotListen, RestServer
from services.merge.lane_record import Stop
from services.merge.options import RestSettings
from tests.support.rest import ADMIN, READ, World

ROOT = Path(__file__).parents[3]
YAML = """\
merge: hot_items
partitions: 2
feedback: {lag_ms: 60000}
inputs:
  r1: {topic: hot_items.replica.r1}
  r2: {topic: hot_items.replica.r2}
---
merge: other
algorithm: R4
"""


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Lmerge:
    """The command, told where the service is."""

    def __init__(self, world: World, url: str) -> None:
        self.world = world
        self.env = {"LMERGE_URL": url, "LMERGE_TOKEN": ADMIN, "LMERGE_BOOTSTRAP_SERVERS": "", "COLUMNS": "200"}

    def __call__(self, *arguments: str, stdin: str | None = None, **env: str | None) -> Result:
        found = CliRunner().invoke(cli, arguments, input=stdin, env={**self.env, **env}, prog_name="lmerge")
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
        return Result(found.exit_code, found.stdout, found.stderr)

    def start(self, *arguments: str, stdout: int, stderr: int | None = None) -> "subprocess.Popen[str]":
        env = {**os.environ, **self.env, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        command = [sys.executable, "-m", "services.cli", *arguments]
        return subprocess.Popen(command, env=env, cwd=ROOT, stdout=stdout, stderr=stderr, text=True)


@pytest.fixture
def lmerge() -> Iterator[Lmerge]:
    world = World()
    with RestServer(world.app, RestSettings("127.0.0.1", 0)) as server:
        yield Lmerge(world, server.url)


def test_a_file_is_applied_once_and_then_is_there(lmerge: Lmerge, tmp_path: Path) -> None:
    file = tmp_path / "merge.yaml"
    file.write_text(YAML)
    lmerge.world.topics.partitions |= {"hot_items.replica.r1": 2, "hot_items.replica.r2": 2}
    dry = lmerge("apply", "-f", str(file), "--dry-run")
    assert (dry.code, lmerge.world.control.changes) == (0, [])
    assert "hot_items: R3: no properties are listed" in dry.out
    assert "would attach input r1 (topic hot_items.replica.r1)" in dry.out
    assert "would need topic hot_items.merged (2 partitions)" in dry.out

    applied = lmerge("apply", "-f", str(file), "--why", "ticket 7: für alle")
    assert (applied.code, applied.out.splitlines()) == (
        0,
        [
            "defined merge hot_items (R3: no properties are listed)",
            "attached r1 to hot_items",
            "attached r2 to hot_items",
            "defined merge other (R4: chosen in the definition)",
        ],
    )
    assert {why for _, why, _ in lmerge.world.control.changes} == {"ticket 7: für alle"}
    assert lmerge("apply", "-f", str(file)).out == "nothing to change\n"
    assert lmerge("apply", "-f", "-", "--dry-run", stdin=YAML).out.count("nothing to change") == 2
    assert json.loads(lmerge("apply", "-f", str(file), "--json").out) == {"changes": []}

    less = YAML.replace("  r2: {topic: hot_items.replica.r2}\n", "")
    assert lmerge("apply", "-f", "-", stdin=less).out == "nothing to change\n"
    assert "would detach input r2" in lmerge("apply", "-f", "-", "--prune", "--dry-run", stdin=less).out
    assert lmerge("apply", "-f", "-", "--prune", stdin=less).out == "detached r2 from hot_items\n"


def test_what_stands_in_the_way_of_a_file_is_said(lmerge: Lmerge) -> None:
    dry = lmerge("apply", "-f", "-", "--dry-run", stdin=YAML)
    assert dry.code == 1
    assert "in the way: there is no topic hot_items.replica.r1: start the replica" in dry.out
    wet = lmerge("apply", "-f", "-", stdin=YAML)
    assert (wet.code, "there is no topic hot_items.replica.r1" in wet.err) == (4, True)
    assert lmerge("apply", "-f", "-", stdin="merge: hot_items\npartitions: 3\n").code == 4
    typed = lmerge("apply", "-f", "-", stdin="merge: n\npartitons: 3\n")
    assert (typed.code, "body.partitons" in typed.err) == (4, True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no YAML"),
        ("", "there is no merge in it"),
        ("partitions: 3", "document 1: give the name of a merge"),
        ("merge: m\ninputs: [r1]", "give inputs by name"),
        ("merge: m\n---\nmerge: m", "a merge is there twice"),
    ],
)
def test_a_file_that_is_none_is_a_mistake_of_the_caller(lmerge: Lmerge, text: str, complaint: str) -> None:
    result = lmerge("apply", "-f", "-", stdin=text)
    assert (result.code, complaint in result.err, "Traceback" in result.err) == (2, True, False)


def test_merges_are_listed_and_removed(lmerge: Lmerge) -> None:
    assert lmerge("merges").out == "no merge is defined: lmerge apply -f merge.yaml\n"
    lmerge.world.with_merge("a", partitions=3)
    lmerge.world.with_merge("b", inputs=())
    rows = [line.split() for line in lmerge("merges").out.splitlines()]
    assert rows[1:] == [
        ["a", "R3", "3", "r1", "r2", "attach", "input", "r2", "(topic", "a.replica.r2)", "by", "admin"],
        ["b", "R3", "1", "-", "define", "merge", "b", "by", "admin"],
    ]
    assert [item["name"] for item in json.loads(lmerge("merges", "--json").out)] == ["a", "b"]
    assert lmerge("delete", "a", stdin="n\n").code == 1
    assert lmerge("delete", "a", stdin="y\n").code == 0
    assert json.loads(lmerge("delete", "b", "--yes", "--json").out) == {"merge": "b", "removed": True}
    gone = lmerge("delete", "b", "--yes")
    assert (gone.code, gone.err) == (4, "lmerge: there is no merge b\n")


def test_inputs_are_attached_and_detached(lmerge: Lmerge) -> None:
    lmerge.world.with_merge(inputs=())
    lmerge.world.topics.partitions |= {"a": 1, "b": 1}
    first = ("attach", "m", "r1", "--topic", "a", "--joins-at", "2026-01-01T00:00:00Z", "--properties", "r2")
    assert lmerge(*first).out == "attached r1 to m: joining\n"
    assert lmerge(*first).out == "r1 is attached to m already: joining\n"
    definition = lmerge.world.control.desired["m"].inputs["r1"].definition
    assert (definition.joins_at, definition.properties is not None and definition.properties.key) == (
        1_767_225_600_000,
        True,
    )
    second = lmerge("attach", "m", "r2", "--topic", "b", "--joins-at", "-5", "--properties", '{"key": true}', "--json")
    assert json.loads(second.out)["desired"]["definition"]["joins_at"] == -5
    assert lmerge("attach", "m", "r3", "--topic", "c").code == 4
    assert lmerge("attach", "m", "r3", "--topic", "a").code == 4
    wrong = lmerge("attach", "m", "r3", "--topic", "a", "--properties", "r9")
    assert (wrong.code, "give r0 to r4" in wrong.err) == (2, True)
    assert lmerge("detach", "m", "r1", "--why", "done").out == "detached r1 from m\n"
    assert lmerge.world.control.changes[-1] == ("admin", "done", "detach input r1")
    assert lmerge("detach", "m", "r1").code == 4


def test_inputs_are_held_told_to_skip_and_released(lmerge: Lmerge) -> None:
    lmerge.world.with_merge()
    assert "lmerge resume m r1" in lmerge("pause", "m", "r1").out
    assert json.loads(lmerge("resume", "m", "r1", "--json").out)["desired"]["paused"] is False
    nowhere = lmerge("fast-forward", "m", "r1")
    assert (nowhere.code, "nowhere yet" in nowhere.err) == (4, True)
    lmerge.world.committed("m", 90)
    assert "nothing before 90 matters" in lmerge("fast-forward", "m", "r1").out
    assert lmerge("fast-forward", "m", "r1", "--before", "91").code == 4
    lmerge.world.committed("m", INFINITY)
    assert "it has ended" in lmerge("fast-forward", "m", "r1").err
    assert "nothing to release" in lmerge("release", "m", "r1").err
    lmerge.world.committed("m", 90, stop={"r1": Stop("quarantined", "offset 7: broken", 7)})
    assert lmerge("release", "m", "r1", "--skip-record").code == 0
    order = lmerge.world.control.desired["m"].inputs["r1"].release
    assert order is not None
    assert order.skip_record


def test_the_status_says_who_leads_how_many_may_die_and_why_it_waits(lmerge: Lmerge) -> None:
    assert lmerge("status").code == 0
    lmerge.world.with_merge(partitions=2)
    waits = lmerge("status", "m")
    assert waits.code == 1
    assert waits.out.splitlines()[:4] == [
        "m is stalled and has come nowhere yet",
        "  nobody leads",
        "  no input is joined",
        "  it waits: lane 0: no input has said anything yet: start a replica",
    ]
    stop = Stop("quarantined", "offset 7: broken", 7)
    lmerge.world.committed("m", 1_700_000_000_000, 1_700_000_090_000, stop={"r2": stop})
    runs = lmerge("status")
    assert (runs.code, runs.out.splitlines()) == (
        0,
        [
            "m is running and is final before 2023-11-14T22:13:20.000Z",
            "  r1 leads",
            "  no input may die now: attach another one",
            "  INPUT  STATE             STABLE                    BEHIND  LEADS  WHY",
            "  r1     joined            2023-11-14T22:13:19.993Z  7 ms    all",
            "  r2     gap, quarantined  2023-11-14T22:13:19.993Z  7 ms           offset 7: broken; release it",
        ],
    )
    assert json.loads(lmerge("status", "m", "--json").out)[0]["observed"]["may_die"] == 0
    assert lmerge("status", "none").code == 4


def test_a_status_in_words_counts_lanes(lmerge: Lmerge) -> None:
    lmerge.world.with_merge(partitions=3, inputs=("r1", "r2", "r3"))
    lmerge.world.committed("m", INFINITY, INFINITY, INFINITY)
    view: Any = lmerge.world.call("GET", "/v1/merges/m")[1]
    view["observed"]["lanes"][1]["leader"] = "r3"
    view["observed"]["divergences"] = 4
    for lane in view["observed"]["lanes"]:
        lane["inputs"]["r1"] |= {"skipped_to": 1_700_000_000_000}
        lane["inputs"]["r2"] |= {"skipped_to": 1_700_000_000_000, "skipped_cuts": 3, "skipped_rows": 1_234}
    words = describe(view)
    assert words.headline == "m is running and has ended: everything is final"
    assert words.sentences[:2] == [
        "r1 leads 2 of 3 lanes, r3 leads 1 of 3 lanes",
        "2 inputs may die now without a gap",
    ]
    assert "contradicted each other 4 times" in words.sentences[2]
    assert [row[4] for row in words.rows] == ["2 of 3", "", "1 of 3"]
    skipped = "skipped what ends before 2023-11-14T22:13:20.000Z"
    assert [row[5] for row in words.rows] == [skipped, f"{skipped}, at most 1,234 rows in 3 cuts not read", ""]


def test_a_watched_status_prints_a_line_whenever_it_changes(lmerge: Lmerge) -> None:
    lmerge.world.with_merge()
    process = lmerge.start("status", "--watch", "--interval", "0.1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("m is stalled")
        lmerge.world.committed("m", 50)
        assert process.stdout.readline() == (
            "m is running and is final before 50; r1 leads; 1 input may die now without a gap\n"
        )
        lmerge.world.records.error = RuntimeError("a defect")
        assert process.stderr is not None
        assert "cannot do this now (500)" in process.stderr.readline()
        lmerge.world.records.error = None
        assert process.stdout.readline().startswith("m is running")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_watched_status_is_a_live_table_on_a_terminal(lmerge: Lmerge) -> None:
    lmerge.world.with_merge()
    lmerge.world.committed("m", 50)
    ours, theirs = pty.openpty()
    process = lmerge.start("status", "m", "--watch", "--interval", "0.1", stdout=theirs)
    try:
        os.close(theirs)
        seen = ""
        while seen.count("may die now") < 2:  # drawn, and drawn again
            seen += os.read(ours, 4096).decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
    assert "INPUT" in seen
    assert re.search(r"r2 +joined", seen)


def test_topics_are_printed_with_settings_and_permissions(lmerge: Lmerge) -> None:
    lmerge.world.with_merge(partitions=2)
    text = lmerge("topics", "m", "--servers", "kafka:9092").out
    assert (
        "kafka-topics.sh --bootstrap-server kafka:9092 --create --if-not-exists --topic m.merged --partitions 2" in text
    )
    assert re.search(r"--topic m.state --partitions 2 --config cleanup.policy=compact", text)
    assert "User:CONSUMER --operation Describe --operation DescribeConfigs --operation Read --topic 'm.merged'" in text
    assert "--transactional-id 'm/' --resource-pattern-type prefixed" in text
    data = json.loads(lmerge("topics", "m", "--json").out)
    assert [topic["role"] for topic in data["topics"]] == ["merged", "state", "feedback", "control", "audit"]
    assert [each["name"] for each in data["inputs"]] == ["m.replica.r1", "m.replica.r2"]
    assert {each["who"] for each in data["acls"]} == {"merge service", "replica", "consumer"}


def test_topics_that_others_make_can_be_made_by_the_file_before_the_merge_is_defined(lmerge: Lmerge) -> None:
    locked = YAML.replace("partitions: 2", "partitions: 2\ncreate_topics: false")
    refused = lmerge("apply", "-f", "-", stdin=locked)
    assert (refused.code, "(`lmerge topics -f FILE` prints the settings)" in refused.err) == (4, True)
    planned = json.loads(lmerge("topics", "-f", "-", "--json", stdin=locked).out)
    assert [merge.pop("merge") for merge in planned] == ["hot_items", "other"]
    for topic in (*planned[0]["topics"], *planned[0]["inputs"]):
        lmerge.world.topics.partitions[topic["name"]] = topic["partitions"]
    assert lmerge("apply", "-f", "-", stdin=locked).code == 0
    assert [json.loads(lmerge("topics", name, "--json").out) for name in ("hot_items", "other")] == planned


def test_who_is_not_known_is_told_how_to_be(lmerge: Lmerge, tmp_path: Path) -> None:
    for token in ("wrong-secret", None):
        nobody = lmerge("merges", LMERGE_TOKEN=token)
        assert (nobody.code, "--token-file" in nobody.err, "wrong-secret" in nobody.err) == (4, True, False)
    lmerge.world.with_merge()
    reader = lmerge("pause", "m", "r1", LMERGE_TOKEN=READ)
    assert (reader.code, "scope admin" in reader.err) == (4, True)
    file = tmp_path / "token"
    file.write_text(f"# us\nme admin {ADMIN}\n")
    assert lmerge("merges", "--token-file", str(file), LMERGE_TOKEN=None).code == 0
    file.write_text("\n")
    assert lmerge("merges", "--token-file", str(file), LMERGE_TOKEN=None).code == 2
    assert lmerge("merges", "--token-file", "absent", LMERGE_TOKEN=None).code == 2
    assert lmerge("merges", LMERGE_TOKEN="two\nlines").code == 2


def test_a_service_that_is_away_or_cannot_now_is_3(lmerge: Lmerge) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        away = lmerge("merges", "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (away.code, "is it running?" in away.err) == (3, True)
    assert lmerge("merges", "--url", "127.0.0.1:8080").code == 2
    lmerge.world.with_merge()
    lmerge.world.records.error = RuntimeError("a defect")
    failed = lmerge("status", "m")
    assert (failed.code, "cannot do this now (500)" in failed.err) == (3, True)


def test_the_api_is_served_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key, ca = tmp_path / "certificate.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(key)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(certificate, append=True)
    authority.cert_pem.write_to_path(ca)
    world = World()
    with RestServer(world.app, RestSettings("127.0.0.1", 0, certificate, key)) as server:
        assert server.url.startswith("https://")
        lmerge = Lmerge(world, server.url)
        assert lmerge("merges", "--ca", str(ca)).code == 0
        stranger = lmerge("merges")
        assert (stranger.code, "by --ca" in stranger.err) == (3, True)
        assert lmerge("merges", "--ca", str(key)).code == 2
    with pytest.raises(CannotListen, match="REST at https"):
        RestServer(world.app, RestSettings("127.0.0.1", 0, ca, key))


def test_an_address_that_is_taken_is_an_error(lmerge: Lmerge) -> None:
    port = int(lmerge.env["LMERGE_URL"].rsplit(":", 1)[1])
    with pytest.raises(CannotListen, match="in use"):
        RestServer(lmerge.world.app, RestSettings("127.0.0.1", port))


def test_the_shell_completes_names(lmerge: Lmerge) -> None:
    lmerge.world.with_merge("hot_items")
    words = {"COMP_WORDS": "lmerge pause hot_items r", "COMP_CWORD": "3", "_LMERGE_COMPLETE": "bash_complete"}
    assert lmerge(**words).out.split() == ["plain,r1", "plain,r2"]
    words = {"COMP_WORDS": "lmerge status h", "COMP_CWORD": "2", "_LMERGE_COMPLETE": "bash_complete"}
    assert lmerge(**words).out.split() == ["plain,hot_items"]
    assert lmerge(**words, LMERGE_URL="http://127.0.0.1:1").out.strip() == ""
    assert lmerge(**{**words, "COMP_WORDS": "lmerge topics h"}).out.split() == ["plain,hot_items"]


def test_the_examples_in_the_code_are_right() -> None:
    assert (doctest.testmod(columns).failed, doctest.testmod(moment).failed) == (0, 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable(""), 3),
        (RetryError(""), 3),
        (RebuildError(""), 3),
        (NotGranted("", 409), 4),
        (Refused(""), 4),
        (Undecided(""), 4),
        (WrongPartitions(""), 4),
        (RecordsGone(""), 4),
        (MissingTopic(""), 2),
        (UsageError(""), 2),
    ],
)
def test_the_exit_code_says_whether_to_try_again_to_ask_somebody_or_to_type_something_else(
    error: LMergeError, code: int
) -> None:
    assert exit_code(error) == code


def test_the_help_names_the_exit_codes_and_the_completion(lmerge: Lmerge) -> None:
    text = lmerge("--help").out
    assert "3  the merge service or Kafka did not answer" in text
    assert "_LMERGE_COMPLETE=bash_source" in text
