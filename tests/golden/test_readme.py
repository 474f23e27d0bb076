"""The README's example does what the README shows."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from string import Template
from unittest.mock import create_autospec
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

import lmerge.kafka
from lmerge import Event
from lmerge.feed import FeedDefinition
from lmerge.process.api import Api
from replicas.loader import load_query
from services.cli import certify
from services.cli.__main__ import cli
from tests.support.compose import read_file
from tests.support.rest import World

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXPORTED = dict(re.findall(r"^export (\w+)=(.*)$", README, re.MULTILINE))
COMMANDS = re.findall(r"^    (lmerge .*)$", README, re.MULTILINE)
(SERVICE,) = set(re.findall(r"put `docker compose exec (\S+)` in front of `lmerge`", README))
CONTAINER = {name: str(value) for name, value in read_file()["services"][SERVICE]["environment"].items()}


def test_the_five_minutes_with_the_library_put_out_what_is_printed(tmp_path: Path) -> None:
    match = re.search(r"```sh\n(cat > r1\.jsonl.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL)
    assert match is not None
    script = match[1].replace(".venv/bin/lmerge", str(Path(sys.executable).parent / "lmerge"))
    result = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, check=True, text=True)  # noqa: S607
    assert result.stdout.splitlines() == [line.strip() for line in match[2].splitlines()]


def test_the_python_example_returns_what_its_comments_say() -> None:
    match = re.search(r"```python\n(from lmerge import Adjust.*?)```", README, re.DOTALL)
    assert match is not None
    names: dict[str, object] = {}
    for line in match[1].splitlines():
        code, _, comment = line.partition("#")
        if code.strip().startswith("merge.process"):
            assert repr(eval(code, names)) == comment.strip()  # noqa: S307
        elif code.strip():
            exec(code, names)  # noqa: S102


def test_the_calls_of_the_api_are_answered_one_after_the_other() -> None:
    """As compose leaves it: three replicas have attached themselves."""
    calls = [shlex.split(line)[1:] for line in README.splitlines() if line.startswith("api ")]
    assert len(calls) > 3
    world = World()
    world.with_merge("hot_items", partitions=2, inputs=("r1", "r2", "r3"))
    for words in calls:
        (url,) = [Template(word).substitute(EXPORTED) for word in words if word.startswith("$LMERGE_URL/")]
        options = {word: words[place + 1] for place, word in enumerate(words) if word in ("-X", "-d")}
        body = json.loads(options["-d"]) if "-d" in options else None
        status, answer = world.call(options.get("-X", "GET"), urlsplit(url).path, body)
        assert status < 300, answer


class Reached(Exception):
    """A command has taken all that it was given, and would call somebody now."""


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("given", [EXPORTED, CONTAINER], ids=["exported", "container"])
def test_a_command_line_needs_no_more_than_the_variables_that_are_exported_or_in_the_container(
    line: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {**given}
    if token := given.get("LMERGE_TOKEN_FILE"):
        given["LMERGE_TOKEN_FILE"] = str(tmp_path / Path(token).name)
        Path(given["LMERGE_TOKEN_FILE"]).write_text("admin admin some-token-of-this-test")

    def reach(*_: object, **__: object) -> None:
        raise Reached

    monkeypatch.setattr(Api, "get", reach)
    monkeypatch.setattr(certify, "resolve_merge", reach)
    inherited: dict[str, str | None] = {name: None for name in os.environ if name.startswith(("LMERGE_", "KAFKA_"))}
    words = shlex.split(line, comments=True)[1:]
    result = CliRunner().invoke(cli, words, env={**inherited, **given})
    assert isinstance(result.exception, Reached), result.output


def test_the_reader_of_the_readme_commits_every_hundred_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a reader that has the names and parameters of the real one, and a topic that ends."""
    (snippet,) = re.findall(r"```python\n(import os\n\nfrom lmerge\.kafka import.*?)```", README, re.DOTALL)
    reader = create_autospec(lmerge.kafka.MergedReader)
    opened = reader.return_value.__enter__.return_value = reader.return_value
    opened.events.return_value = iter([Event(b"{}", 1, 2)] * 250)
    monkeypatch.setattr(lmerge.kafka, "MergedReader", reader)
    monkeypatch.setenv("LMERGE_BOOTSTRAP_SERVERS", "127.0.0.1:1234")
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102
    assert reader.call_args.args[0].bootstrap_servers == "127.0.0.1:1234"
    assert opened.commit.call_count == 2


def test_the_query_and_its_feed_are_what_replicas_take(tmp_path: Path) -> None:
    for language, name in (("toml", "auction.toml"), ("sql", "bidders.sql")):
        (text,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
        (tmp_path / name).write_text(text)
    query = load_query(str(tmp_path / "bidders.sql"))
    assert query.feed == tmp_path / "auction.toml"
    feed = FeedDefinition.parse((tmp_path / "auction.toml").read_text())
    assert set(query.sources) == {source.topic for source in feed.sources}
