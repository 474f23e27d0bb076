"""Fetching Prometheus, with programs that stand in for apt and dpkg."""

from pathlib import Path

import pytest

from deploy.local import prometheus
from deploy.local.errors import StackError

_UNPACK = 'mkdir -p "$3/usr/bin"; touch "$3/usr/bin/prometheus" "$3/usr/bin/promtool"'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of PATH, but for the shell's own tools."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for tool in ("sh", "touch", "mkdir"):
        (directory / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(directory))
    return directory


def put(directory: Path, name: str, script: str) -> None:
    file = directory / name
    file.write_text(f'#!/bin/sh\necho "{name} $1" >> "${{0%/*}}/runs"\n{script}\n')
    file.chmod(0o755)


def runs(directory: Path) -> list[str]:
    return (directory / "runs").read_text().splitlines()


def test_it_is_fetched_once(tmp_path: Path, programs: Path) -> None:
    put(programs, "apt-get", "touch prometheus_2_amd64.deb")
    put(programs, "dpkg-deb", _UNPACK)
    cached = tmp_path / "cache" / "prometheus"
    assert prometheus.ensure(cached=cached) == cached / "usr" / "bin" / "prometheus"
    assert prometheus.ensure(cached=cached) == cached / "usr" / "bin" / "prometheus"
    assert prometheus.find("promtool", cached=cached) == cached / "usr" / "bin" / "promtool"
    assert runs(programs) == ["apt-get download", "dpkg-deb -x"]
    assert [entry.name for entry in cached.parent.iterdir() if entry.is_dir()] == ["prometheus"]


def test_empty_lists_are_filled_first(tmp_path: Path, programs: Path) -> None:
    put(
        programs,
        "apt-get",
        f'case $1 in update) touch "{tmp_path}/lists";; esac\n[ -e "{tmp_path}/lists" ] || exit 100\n'
        "touch prometheus_2_amd64.deb",
    )
    put(programs, "dpkg-deb", _UNPACK)
    prometheus.ensure(cached=tmp_path / "cache" / "prometheus")
    assert runs(programs) == ["apt-get download", "apt-get update", "apt-get download", "dpkg-deb -x"]


def test_what_is_installed_is_taken(tmp_path: Path, programs: Path) -> None:
    put(programs, "prometheus", "")
    assert prometheus.ensure(cached=tmp_path / "cache" / "prometheus") == programs / "prometheus"


def test_without_apt_the_error_says_what_to_install(tmp_path: Path, programs: Path) -> None:
    assert programs.is_dir()
    with pytest.raises(StackError, match="apt-get install prometheus"):
        prometheus.ensure(cached=tmp_path / "cache" / "prometheus")
    with pytest.raises(StackError, match=r"promtool is not there: run `make setup`"):
        prometheus.find("promtool", cached=tmp_path / "cache" / "prometheus")
