"""Comparing a directory with a committed list of SHA-256, in the format of `sha256sum`."""

import hashlib
import re
from pathlib import Path

from deploy.local.errors import StackError

RECORD = ".verified.sha256"
"""The file in a verified directory that holds the list it was verified against; it is not one of the set."""

_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+)\n")


def read_checksums(path: Path) -> dict[str, str]:
    """Return the list's digests by file name.

    Raises:
        StackError: the list is empty, half written or names a file twice.
    """
    digests: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(keepends=True), start=1):
        found = _LINE.fullmatch(line)
        if found is None or found[2] in digests:
            raise StackError(f"{path}, line {number} is damaged or repeated: restore the file from git")
        digests[found[2]] = found[1]
    if not digests:
        raise StackError(f"{path} is empty: restore it from git")
    return digests


def names_differ(directory: Path, expected: dict[str, str]) -> list[str]:
    """Return one sentence part per file that is missing or extra; quick, as nothing is read."""
    present = {entry.name for entry in directory.iterdir()} - {RECORD}
    missing = [f"{name} is missing" for name in sorted(expected.keys() - present)]
    return missing + [f"{name} is not in the list" for name in sorted(present - expected.keys())]


def contents_differ(directory: Path, expected: dict[str, str]) -> list[str]:
    """Return one sentence part per file that is missing, extra or altered; reads every file."""
    differences = names_differ(directory, expected)
    for name, digest in sorted(expected.items()):
        file = directory / name
        if file.is_file() and _digest(file) != digest:
            differences.append(f"{name} is altered")
    return differences


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
