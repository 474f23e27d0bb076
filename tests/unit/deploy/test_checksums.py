import hashlib
from pathlib import Path

import pytest

from deploy.local.artifacts import KAFKA, SPARK_CONNECTOR, ArtifactSet
from deploy.local.checksums import contents_differ, names_differ, read_checksums
from deploy.local.errors import StackError

_FILES = {"a-1.jar": b"first", "b-2.jar": b"second"}
_EXPECTED = {name: hashlib.sha256(content).hexdigest() for name, content in _FILES.items()}


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    for name, content in _FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_same_files_do_not_differ(jars: Path) -> None:
    assert names_differ(jars, _EXPECTED) == []
    assert contents_differ(jars, _EXPECTED) == []


def test_missing_file_is_named(jars: Path) -> None:
    (jars / "a-1.jar").unlink()
    assert names_differ(jars, _EXPECTED) == ["a-1.jar is missing"]
    assert contents_differ(jars, _EXPECTED) == ["a-1.jar is missing"]


def test_extra_file_is_named(jars: Path) -> None:
    (jars / "evil.jar").touch()
    assert names_differ(jars, _EXPECTED) == ["evil.jar is not in the list"]


def test_altered_file_is_named_when_contents_are_read(jars: Path) -> None:
    (jars / "b-2.jar").write_bytes(b"secon")
    assert names_differ(jars, _EXPECTED) == []
    assert contents_differ(jars, _EXPECTED) == ["b-2.jar is altered"]


def test_list_is_read_in_the_format_of_sha256sum(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text("".join(f"{digest}  {name}\n" for name, digest in _EXPECTED.items()))
    assert read_checksums(file) == _EXPECTED


_GOOD_LINE = f"{'0' * 64}  a-1.jar\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        _GOOD_LINE[:-1],  # cut off before the end of the line
        _GOOD_LINE + _GOOD_LINE[:40],
        _GOOD_LINE + _GOOD_LINE,
        f"{'0' * 63}  a-1.jar\n",
        f"{'0' * 64}  ../a-1.jar\n",
        "\n" + _GOOD_LINE,
    ],
)
def test_half_written_list_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "list"
    file.write_text(text)
    with pytest.raises(StackError, match="from git"):
        read_checksums(file)


@pytest.mark.parametrize("artifacts", [KAFKA, SPARK_CONNECTOR], ids=lambda artifacts: artifacts.name)
def test_committed_lists_hold_the_pinned_modules_in_order(artifacts: ArtifactSet) -> None:
    names = list(read_checksums(artifacts.checksums))
    assert names == sorted(names)
    assert {f"{pin.module}-{pin.version}.jar" for pin in artifacts.coordinates} <= set(names)
