"""Settings of a replica: flags win over the environment, the environment over the file; what is unknown is named."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lmerge.errors import UsageError
from replicas.__main__ import main
from replicas.options import make_settings, pairs, read_defaults
from replicas.reader import SourceSpec, _tail_reader

FEED = """
name = "auction"
[[sources]]
topic = "my-bids"
time = "$.date_time"
disorder_ms = 2000
"""

FILE = """
bootstrap_servers = "file:1"
kafka_config = "kafka.properties"
merge = "hot"
query = "hot_items"
plan = "direct"
replica = "r1"
feed = "feed.toml"
checkpoint = "state"
max_cuts = 7
wait_seconds = 2.5
transaction_timeout_ms = 60_000
start = "latest"

[topic]
bids = "my-bids"

[conf]
"spark.driver.memory" = "1g"
"spark.speculation" = false
"spark.task.cpus" = 1
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    Path("feed.toml").write_text(FEED)
    Path("kafka.properties").write_text("sasl.password=hunter2\n")
    Path("r1.toml").write_text(FILE)


def given(*arguments: str) -> dict[str, Any]:
    return main.make_context("replicas", [*arguments]).params


def test_a_file_says_everything() -> None:
    options = given("--config", "r1.toml")
    settings = make_settings(options)
    assert settings.topic == "hot.replica.r1"
    assert settings.directory == Path("state").resolve()
    assert (settings.max_cuts, settings.max_rows, settings.wait_seconds) == (7, 100_000, 2.5)
    assert settings.read_cluster().transaction_timeout_ms == 60_000
    assert settings.source("bids").topic == "my-bids"
    assert pairs("conf", options["conf"]) == {
        "spark.driver.memory": "1g",
        "spark.speculation": "false",
        "spark.task.cpus": "1",
    }
    cluster = settings.read_cluster()
    assert (cluster.bootstrap_servers, cluster.client) == ("file:1", {"sasl.password": "hunter2"})
    assert "hunter2" not in repr(settings)


def test_flags_win_over_the_environment_which_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("max_cuts", "plan", "bootstrap_servers", "topic")
    file = ("--config", "r1.toml")

    def shown(*arguments: str) -> tuple[Any, ...]:
        options = given(*arguments)
        return tuple(options[name] for name in names)

    assert shown(*file) == (7, "direct", "file:1", ("bids=my-bids",))
    monkeypatch.setenv("LMERGE_REPLICA_MAX_CUTS", "8")
    monkeypatch.setenv("LMERGE_REPLICA_PLAN", "panes")
    monkeypatch.setenv("LMERGE_REPLICA_TOPIC", "bids=b asks=a")
    monkeypatch.setenv("LMERGE_BOOTSTRAP_SERVERS", "environment:1")
    assert shown(*file) == (8, "panes", "environment:1", ("bids=b", "asks=a"))
    flags = ("--max-cuts", "9", "--bootstrap-servers", "flag:1", "--topic", "bids=c")
    assert shown(*flags, *file) == (9, "panes", "flag:1", ("bids=c",))
    monkeypatch.setenv("LMERGE_REPLICA_CONFIG", "r1.toml")
    assert shown(*flags) == shown(*flags, *file)


def test_every_flag_is_a_key() -> None:
    for option in main.params:
        if option.name != "config":
            Path("one.toml").write_text(f"[{option.name}]\na = 1\n" if option.multiple else f"{option.name} = 1\n")
            assert read_defaults(Path("one.toml"), main), option.name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_cutz = 1", "unknown key 'max_cutz': the keys are "),
        ("max-cuts = 1", "unknown key 'max-cuts'"),
        ('config = "x"', "unknown key 'config'"),
        ("help = 1", "unknown key 'help'"),
        ('max_cuts = "many"', "key 'max_cuts': 'many' is not a valid integer"),
        ("max_cuts = [1]", "key 'max_cuts': it must be text or a number"),
        ('topic = "bids"', "key 'topic': it must be a table, such as [topic]"),
        ("[topic]\nbids = []", "key 'topic.bids': it must be text or a number"),
        ("merge = ", "cannot be read: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file_and_the_key(text: str, said: str) -> None:
    Path("bad.toml").write_text(text)
    result = CliRunner().invoke(main, ["--config", "bad.toml"])
    assert result.exit_code == 2
    assert result.output.startswith("replicas: settings file bad.toml: ")
    assert said in result.output
    assert result.output.count("\n") == 1


def test_a_file_that_is_not_there_and_a_secret_that_is_not_ours_are_named() -> None:
    with pytest.raises(UsageError, match=r"settings file absent\.toml: cannot be read: No such file"):
        given("--config", "absent.toml")
    Path("kafka.properties").write_text("group.id=hunter2\n")
    with pytest.raises(UsageError, match=r"'group\.id' cannot be set") as refusal:
        make_settings(given("--config", "r1.toml")).read_cluster()
    assert "hunter2" not in str(refusal.value)


def test_the_source_reads_the_clusters_settings_where_it_runs_and_they_do_not_travel() -> None:
    settings = make_settings(given("--config", "r1.toml"))
    spec = SourceSpec(
        bootstrap_servers=settings.bootstrap_servers,
        kafka_config=str(settings.kafka_config),
        heartbeats="h",
        source=settings.source("bids"),
        schema={},
        directory=str(settings.directory),
        max_cuts=1,
        max_rows=1,
    )
    assert "hunter2" not in spec.encode()
    Path("kafka.properties").write_text("group.id=hunter2\n")
    with pytest.raises(UsageError, match=r"'group\.id' cannot be set"):
        _tail_reader(spec)
