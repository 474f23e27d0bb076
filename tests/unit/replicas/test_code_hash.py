"""What makes a Python query another one."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicas.code_hash import code_hash
from replicas.loader import load_query
from replicas.queries import hot_items

QUERY = """
import json
import numpy as np
import mine_hash.helper
from pyspark.sql import functions as F
from replicas.query import Plan, Query
from replicas.windows import Windows

def build(sources, windows):
    from mine_hash import lazy
    return lazy

WINDOWS = Windows(width_ms=10, slide_ms=10)
QUERY = Query(name="q", sources={"bids": {"a": int}}, plans={"one": Plan(build=build)}, windows=WINDOWS)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A query file, and a package that it imports."""
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "mine_hash"
    package.mkdir()
    (tmp_path / "query_hash.py").write_text(QUERY)
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("from .deep import LIMIT\n")
    for name in ("deep", "lazy", "other"):
        (package / f"{name}.py").write_text("LIMIT = 1\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("mine_hash")]:
        del sys.modules[name]


def hashed(directory: Path) -> str:
    return load_query(str(directory / "query_hash.py")).code


def test_a_query_is_what_it_imports_too(directory: Path) -> None:
    codes = [hashed(directory)]
    assert hashed(directory) == codes[0]
    for name in ("mine_hash/__init__.py", "mine_hash/helper.py", "mine_hash/deep.py", "mine_hash/lazy.py"):
        with (directory / name).open("a") as file:
            file.write("MORE = 2\n")
        codes.append(hashed(directory))
    assert len({*codes}) == 5


def test_what_it_does_not_import_changes_nothing(directory: Path) -> None:
    before = hashed(directory)
    (directory / "mine_hash" / "other.py").write_text("LIMIT = 2\n")
    assert hashed(directory) == before


def test_a_query_that_imports_nothing_of_its_own_is_its_file() -> None:
    """So that replicas of before go on: this hash is in their directories."""
    assert code_hash(hot_items) == hashlib.sha256(Path(hot_items.__file__).read_bytes()).hexdigest()
