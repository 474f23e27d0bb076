"""How commands are told of a cluster, and that its secrets show nowhere."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lmerge import UsageError
from lmerge.kafka import KafkaSettings
from lmerge.process.kafka_options import given_by_option, kafka_options, read_client
from services.merge.options import ServiceSettings, find_tokens, service_options


@click.command()
@kafka_options(required=False)
def show(*, kafka: KafkaSettings | None) -> None:
    """Print what was given."""
    given = None if kafka is None else (kafka.bootstrap_servers, dict(kafka.client))
    click.echo(f"{given} {given_by_option()}")


@click.command()
@service_options
def serve(settings: ServiceSettings) -> None:
    """Print what was given."""
    click.echo(f"{settings} {settings.rest.url}")


def run(command: click.Command, *arguments: str, **env: str) -> str:
    result = CliRunner().invoke(command, arguments, env={"KAFKA_BOOTSTRAP_SERVERS": "", **env})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output.strip()


def test_a_cluster_comes_from_options_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# ours\nsecurity.protocol=SASL_SSL\n\nsasl.password = a=b c \n")
    expected = {"security.protocol": "SASL_SSL", "sasl.password": "a=b c"}
    assert run(show) == "None False"
    assert run(show, "--bootstrap-servers", "k:1", "--kafka-config", str(file)) == f"{('k:1', expected)} True"
    env = {"LMERGE_BOOTSTRAP_SERVERS": "k:2", "LMERGE_KAFKA_CONFIG": str(file)}
    assert run(show, **env) == f"{('k:2', expected)} False"


@pytest.mark.parametrize("line", ["sasl.password", "=hunter2", "sasl.password hunter2", "a=1\na=hunter2"])
def test_a_line_that_is_no_setting_is_named_by_its_number_only(tmp_path: Path, line: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(line)
    with pytest.raises(UsageError, match=r"line [12]: give each setting once") as refusal:
        read_client(file)
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_client(tmp_path / "absent")


def test_the_service_shows_no_secret_of_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.password=hunter2\n")
    shown = run(serve, "--bootstrap-servers", "k:1", "--kafka-config", str(file), LMERGE_ADMIN_TOKEN="hunter3")
    assert "client=<sasl.password>" in shown
    assert "hunter" not in shown
    file.write_text("group.id=hunter2\n")
    with pytest.raises(UsageError, match=r"'group\.id' cannot be set") as refusal:
        run(serve, "--bootstrap-servers", "k:1", "--kafka-config", str(file), LMERGE_ADMIN_TOKEN="x")
    assert "hunter2" not in str(refusal.value)


def test_tls_needs_both_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give --tls-certificate and --tls-key"):
        run(serve, "--bootstrap-servers", "k:1", "--tls-key", "k.pem", LMERGE_ADMIN_TOKEN="x")
    absent = str(tmp_path / "absent")
    with pytest.raises(UsageError, match="no such file"):
        run(serve, "--bootstrap-servers", "k:1", "--tls-key", absent, "--tls-certificate", absent)


def test_a_development_token_is_made_only_where_nothing_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = find_tokens(None, {})
    token = capsys.readouterr().err.split()[-1]
    assert made.find(token) is not None
    assert find_tokens(None, {}).find(token) is not None
    assert capsys.readouterr().err == ""
    assert find_tokens(None, {"LMERGE_ADMIN_TOKEN": "other"}).find(token) is None  # a file that is left over
    with pytest.raises(UsageError, match="token file absent: cannot be read"):
        find_tokens(Path("absent"), {})


def test_how_often_to_commit_and_when_a_silent_process_is_dead_are_taken_as_given() -> None:
    servers = ("--bootstrap-servers", "localhost:1")
    given = run(serve, *servers, "--commit-ms", "50", "--session-ms", "6000", LMERGE_ADMIN_TOKEN="t" * 20)
    assert "Pace(commit_seconds=0.05, catch_up_seconds=0.1, session_ms=6000)" in given
