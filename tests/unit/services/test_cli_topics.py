"""`lmerge topics -f`: what a cluster has to have and to grant, by the file of a merge alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from services.cli.__main__ import cli

NOBODY = {"LMERGE_URL": "http://127.0.0.1:1", "LMERGE_TOKEN": None, "LMERGE_BOOTSTRAP_SERVERS": None}
"""Who asked the merge service or a broker would not be answered."""

YAML = """\
merge: hot_items
partitions: 2
create_topics: false
state_topic: hot
inputs:
  r2: {topic: hot_items.replica.r2}
  r1: {topic: hot_items.replica.r1}
---
merge: other
"""


def topics(*arguments: str, stdin: str = YAML, **env: str) -> Result:
    """Run `lmerge topics` where nothing else runs."""
    return CliRunner().invoke(cli, ["topics", *arguments], input=stdin, env={**NOBODY, **env}, prog_name="lmerge")


def planned(stdin: str = YAML) -> Any:
    """Return what it prints as JSON."""
    result = topics("-f", "-", "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_file_says_which_topics_its_merges_take_and_how_they_are_set_up() -> None:
    hot, other = planned()
    assert [hot["merge"], other["merge"]] == ["hot_items", "other"]
    assert [(topic["role"], topic["name"], topic["partitions"]) for topic in hot["topics"]] == [
        ("merged", "hot_items.merged", 2),
        ("state", "hot", 2),
        ("feedback", "hot_items.feedback", 1),
        ("control", "lmerge.control", 1),
        ("audit", "lmerge.audit", 1),
    ]
    assert hot["topics"][1]["config"]["cleanup.policy"] == "compact"
    assert hot["inputs"] == [
        {"input": "r1", "name": "hot_items.replica.r1", "partitions": 2},
        {"input": "r2", "name": "hot_items.replica.r2", "partitions": 2},
    ]
    assert [topic["name"] for topic in other["topics"]][:3] == ["other.merged", "other.state", "other.feedback"]
    assert other["inputs"] == []


def test_the_service_may_make_topics_only_where_it_is_to() -> None:
    may_create = [
        {acl["name"] for acl in merge["acls"] if acl["who"] == "merge service" and "Create" in acl["operations"]}
        for merge in planned()
    ]
    assert may_create == [
        set(),
        {"other.merged", "other.state", "other.feedback", "lmerge.control", "lmerge.audit"},
    ]


def test_permissions_are_granted_once_each() -> None:
    for merge in planned():
        single = [
            (acl["who"], acl["resource"], acl["name"], acl["prefixed"], operation)
            for acl in merge["acls"]
            for operation in acl["operations"]
        ]
        assert len(set(single)) == len(single)
        assert {who for who, *_ in single} == {"merge service", "replica", "consumer"}


def test_several_merges_are_printed_each_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "merge.yaml"
    file.write_text(YAML)
    lines = topics("-f", str(file), "--servers", "kafka:9092").stdout.splitlines()
    heads = [line for line in lines if line.startswith("# topics of merge")]
    assert heads == ["# topics of merge hot_items", "# topics of merge other"]
    hot, other = lines[: lines.index(heads[1])], lines[lines.index(heads[1]) :]
    assert hot[1] == (
        "kafka-topics.sh --bootstrap-server kafka:9092 --create --if-not-exists --topic hot_items.merged "
        "--partitions 2 --config cleanup.policy=delete"
    )
    assert "# written by replica r1: hot_items.replica.r1, 2 partitions" in hot
    assert not [line for line in other if "hot" in line]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("partitons: 3", "partitons: there is no such field"),
        ("partitions: 0", "partitions: Input should be greater than or equal to 1"),
        ("feedback: {lag_ms: soon}", "feedback.lag_ms: Input should be a valid integer"),
        ("inputs: {r1: {}}", "inputs.r1.topic: Field required"),
        ("inputs: {R1: {topic: a}}", "inputs.R1: String should match pattern"),
        ("policy: some", "unknown policy 'some'"),
        ("algorithm: R1\nquarantine_diverging: true", "merge m comes to R1, which does not compare its inputs"),
        ("inputs: {r1: {topic: m.merged}}", "topic m.merged is what merge m writes"),
        ("merged_topic: x\nstate_topic: x", "topic x is named twice"),
        ("feedback_topic: lmerge.control", "topic lmerge.control belongs to the service"),
        ("inputs: {r1: {topic: a}, r2: {topic: a}}", "topic a is that of input r1"),
    ],
)
def test_a_definition_that_is_wrong_is_one_sentence_with_file_document_and_field(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "merge.yaml"
    file.write_text(f"merge: fine\n---\nmerge: m\n{text}\n")
    result = topics("-f", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"lmerge: {file}, document 2: {complaint}")


def test_the_name_of_a_merge_is_one_that_can_be_defined() -> None:
    result = topics("-f", "-", stdin="merge: Hot Items")
    assert (result.exit_code, "document 1: merge: String should match" in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [(), ("hot_items", "-f", "-")])
def test_either_a_merge_is_named_or_a_file(arguments: tuple[str, ...]) -> None:
    result = topics(*arguments)
    assert (result.exit_code, "either MERGE" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "completed"),
    [("lmerge topics -f m", "file,m"), ("lmerge topics --f", "plain,--file"), ("lmerge topics -f merge.yaml h", "")],
)
def test_the_shell_completes_the_option_and_its_file(words: str, completed: str) -> None:
    env = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_LMERGE_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(cli, [], env={**NOBODY, **env}, prog_name="lmerge")
    assert result.stdout.strip() == completed
