"""Finding a query: a shipped one by its name, a user's own by its file or its module."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec
from pyspark import cloudpickle

from lmerge.errors import UsageError
from replicas.code_hash import code_hash
from replicas.query import Query
from replicas.query_file import parse
from replicas.sql_plan import sql_plan

SHIPPED: Final = Path(__file__).parent / "queries"
_SUFFIXES: Final = (".sql", ".py")


def shipped_queries() -> list[str]:
    """Return the names of the queries that come with LMerge."""
    return sorted(path.stem for path in SHIPPED.iterdir() if path.suffix in _SUFFIXES and path.stem != "__init__")


def load_query(name: str) -> Query:
    """Return a query.

    Args:
        name: of a shipped one (`hot_items`), a file (`mine/hot_items.sql`, `hot_items.py`) or a module (`mine.items`).

    Raises:
        UsageError: there is none, or it is wrong; with the file and, where it can be told, the line.
    """
    if Path(name).suffix in _SUFFIXES:
        return _from_file(Path(name))
    if "." in name:
        return _from_module(name)
    for suffix in _SUFFIXES:
        if (path := SHIPPED / f"{name}{suffix}").exists():
            return _from_file(path) if suffix == ".sql" else _from_module(f"replicas.queries.{name}")
    known = ", ".join(shipped_queries())
    raise UsageError(
        f"query {name!r}: none of that name is shipped, only {known}; give your own by its file, as in ./{name}.sql"
    )


def _from_file(path: Path) -> Query:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"query file {path}: {error}") from error
    return _from_sql(path, text) if path.suffix == ".sql" else _from_python(path)


def _from_sql(path: Path, text: str) -> Query:
    read = parse(text, str(path))
    return Query(
        name=path.stem,
        sources=read.sources,
        plans={name: sql_plan(statement, str(path)) for name, statement in read.plans.items()},
        key=read.key,
        rank=read.rank,
        windows=read.windows,
        feed=None if read.feed is None else path.parent / read.feed,
    )


def _from_python(path: Path) -> Query:
    spec = importlib.util.spec_from_file_location(f"lmerge_query_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's module may raise
        raise UsageError(_sentence(error, str(path))) from error
    # A user's functions travel to Python workers, where no such module can be imported.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return _query_of(module, str(path))


def _sentence(error: Exception, where: str) -> str:
    """Say what a user's code raised while it was imported, and at which line of which file."""
    return f"{_place(error) or f'{where}:1'}: {type(error).__name__}: {error}"


def _place(error: Exception) -> str:
    """Find the last line at which an error came out of the file that was imported first; empty if nothing tells."""
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{error.filename}:{error.lineno or 1}"
    ours = {__file__, importlib.__file__}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen ")
    ]
    lines = [frame.lineno or 1 for frame in frames if frame.filename == frames[0].filename]
    return f"{frames[0].filename}:{lines[-1]}" if frames else ""


def _from_module(name: str) -> Query:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):  # it is there, and imports what is not
            raise UsageError(_sentence(error, name)) from error
        raise UsageError(
            f"query {name!r}: there is no module {name} ({error}); check the name and PYTHONPATH"
        ) from error
    except Exception as error:  # whatever a user's module may raise
        raise UsageError(_sentence(error, name)) from error
    return _query_of(module, name)


def _query_of(module: ModuleType, where: str) -> Query:
    query = getattr(module, "QUERY", None)
    if not isinstance(query, Query):
        raise UsageError(f"{where} has no QUERY of type replicas.query.Query")
    return msgspec.structs.replace(query, code=code_hash(module))
