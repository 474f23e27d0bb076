"""Fetching, with a Java that stands in for Ivy: it writes what the test wants to the place it is told."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.artifacts import ArtifactSet, ensure
from deploy.local.errors import StackError
from deploy.local.ivy import Coordinate

Stub = Callable[[str], None]
_VERSION = """if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit; fi"""
_INTO = 'for last; do :; done; into=${last%/*}; echo ran >> "$(dirname "$0")/runs"'


@pytest.fixture
def stub_ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Make JAVA_HOME name a script that does what the test says in place of Ivy; `$into` is where jars go."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    def write(script: str) -> None:
        java.write_text(f"#!/bin/sh\n{_VERSION}\n{_INTO}\n{script}\n")
        java.chmod(0o755)

    return write


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactSet:
    """A set of one jar with the content "right"."""
    checksums = tmp_path / "list.sha256"
    checksums.write_text(f"{hashlib.sha256(b'right').hexdigest()}  tiny-1.jar\n")
    return ArtifactSet(name="tiny", checksums=checksums, coordinates=(Coordinate("group", "tiny", "1"),))


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "home" / "bin" / "runs").read_text().splitlines())


def test_fetch_runs_once_and_shows_progress(
    tmp_path: Path, stub_ivy: Stub, artifacts: ArtifactSet, capsys: pytest.CaptureFixture[str]
) -> None:
    stub_ivy('printf "\\tfound tiny\\n(5kB)\\n[SUCCESSFUL ]\\n"; printf right > "$into/tiny-1.jar"')
    directory = ensure(artifacts, cache=tmp_path / "cache")
    assert (directory / "tiny-1.jar").read_text() == "right"
    assert "1 of 1 found, 1 downloaded" in capsys.readouterr().out
    assert ensure(artifacts, cache=tmp_path / "cache", verify=True) == directory
    assert runs(tmp_path) == 1
    assert sorted(entry.name for entry in directory.parent.iterdir()) == [".lock", "ivy", "tiny"]


@pytest.mark.parametrize(
    ("script", "difference"),
    [
        ("true", "tiny-1.jar is missing"),
        ('printf wrong > "$into/tiny-1.jar"', "tiny-1.jar is altered"),
        ('printf right > "$into/tiny-1.jar"; touch "$into/evil.jar"', "evil.jar is not in the list"),
    ],
)
def test_wrong_download_is_not_put_in_place(
    tmp_path: Path, stub_ivy: Stub, artifacts: ArtifactSet, script: str, difference: str
) -> None:
    stub_ivy(script)
    with pytest.raises(StackError, match=difference):
        ensure(artifacts, cache=tmp_path / "cache")
    assert sorted(entry.name for entry in (tmp_path / "cache").iterdir()) == [".lock", "ivy"]


def test_failed_download_shows_the_end_of_ivys_output_and_its_log(
    tmp_path: Path, stub_ivy: Stub, artifacts: ArtifactSet
) -> None:
    stub_ivy("echo 'module not found: tiny'; exit 1")
    with pytest.raises(StackError, match="group:tiny:1 was not brought") as raised:
        ensure(artifacts, cache=tmp_path / "cache")
    assert "  | module not found: tiny" in str(raised.value)
    assert str(tmp_path / "cache" / "ivy" / "tiny.log") in str(raised.value)


def test_another_list_means_another_fetch(tmp_path: Path, stub_ivy: Stub, artifacts: ArtifactSet) -> None:
    stub_ivy('printf right > "$into/tiny-1.jar"')
    directory = ensure(artifacts, cache=tmp_path / "cache")
    artifacts.checksums.write_text(f"{hashlib.sha256(b'newer').hexdigest()}  tiny-2.jar\n")
    stub_ivy('printf newer > "$into/tiny-2.jar"')
    assert ensure(artifacts, cache=tmp_path / "cache") == directory
    assert [entry.name for entry in directory.glob("*.jar")] == ["tiny-2.jar"]


def test_file_lost_or_altered_later_is_an_error(tmp_path: Path, stub_ivy: Stub, artifacts: ArtifactSet) -> None:
    stub_ivy('printf right > "$into/tiny-1.jar"')
    jar = ensure(artifacts, cache=tmp_path / "cache") / "tiny-1.jar"
    jar.write_text("wrong")
    with pytest.raises(StackError, match="altered"):
        ensure(artifacts, cache=tmp_path / "cache", verify=True)
    jar.unlink()
    with pytest.raises(StackError, match="missing"):
        ensure(artifacts, cache=tmp_path / "cache")
