"""Every command line in the `sh` blocks of the pages is one that its program takes; queries.md can be followed."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

import replicas.__main__
import replicas.describe
import services.heartbeat.__main__
import services.merge.__main__
import services.workload.__main__
from deploy.local.__main__ import _parser as local_parser
from lmerge.feed import FeedDefinition
from replicas.loader import load_query
from services.cli.__main__ import cli
from tests.support.rest import World

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["queries.md", "replicas.md", "operations.md"]
PROGRAMS: dict[str, click.Command] = {
    "services.heartbeat": services.heartbeat.__main__.heartbeat,
    "services.merge": services.merge.__main__.main,
    "services.workload": services.workload.__main__.workload,
    "replicas": replicas.__main__.main,
    "replicas.describe": replicas.describe.main,
}
VARIABLES = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092"}
"""What the pages have exported, or say beforehand."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def commands(script: str) -> Iterator[list[str]]:
    """Give the words of each command of ours, without what a shell makes of them: loops, `&`, comments."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = [*lexer]
        while words:
            end = next((n for n, word in enumerate(words) if word and set(word) <= set("&;|<>()")), len(words))
            command = [word for word in words[:end] if word not in {"until", "while", "if", "do", "then"}]
            if command[:1] == ["lmerge"] or command[:2] == ["python", "-m"]:
                yield command
            words = words[end + 1 :]


LINES = {
    f"{page}: {shlex.join(words)}": words for page in PAGES for each in blocks(page, "sh") for words in commands(each)
}


def write_files(directory: Path) -> None:
    """Write the files that the pages show, under the names that they give them."""
    (directory / "mine").mkdir()
    (feed,), (query, *_), (merge, *_) = (blocks("queries.md", language) for language in ("toml", "sql", "yaml"))
    for name, text in {"auction.toml": feed, "bidders.sql": query, "merge.yaml": merge}.items():
        (directory / "mine" / name).write_text(text)
    (settings,) = blocks("replicas.md", "toml")
    (directory / "bidders.toml").write_text(settings)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the pages, to work in, and nothing in the environment but what they export."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LMERGE_", "KAFKA_"))]:
        monkeypatch.delenv(name)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("words", LINES.values(), ids=LINES)
def test_a_command_line_is_one_that_its_program_takes(words: list[str]) -> None:
    if words[0] == "lmerge":
        cli.commands[words[1]].make_context(words[1], words[2:]).close()
    elif words[2] == "deploy.local":
        local_parser().parse_args(words[3:])
    else:
        PROGRAMS[words[2]].make_context(words[2], words[3:]).close()


def test_the_pages_have_command_lines_of_every_program() -> None:
    programs = {words[0] if words[0] == "lmerge" else words[2] for words in LINES.values()}
    assert programs == {"lmerge", "deploy.local", *PROGRAMS}


def test_the_query_of_the_example_its_feed_and_its_merge_go_together(directory: Path) -> None:
    query = load_query("mine/bidders.sql")
    assert query.feed == Path("mine/auction.toml")
    feed = FeedDefinition.parse((directory / query.feed).read_text())
    assert set(query.sources) == {source.topic for source in feed.sources}
    plans = re.search(r"^for plan in (.+); do$", "\n".join(blocks("queries.md", "sh")), re.MULTILINE)
    assert plans is not None
    assert plans[1].split() == [*query.plans]
    definition = yaml.safe_load((directory / "mine" / "merge.yaml").read_text())
    status, answer = World().call("PUT", f"/v1/merges/{definition.pop('merge')}", definition)
    assert status == 201, answer
