"""What a query is: the sources with their schemas, the key that places its results, and its plans.

A query is one file, `replicas/queries/<name>.py` or any importable module, that has a `QUERY`. A plan is one way to run
it: a function from the sources' DataFrames to a result. All plans of a query give the same TDB.

A source's DataFrame has the columns of its schema and `event_time`, a timestamp that carries the watermark. A result
has the columns `vs` and `ve` (milliseconds) and, for the payload, whatever else the plan selects. Its values must be
exact: integers, strings, booleans; a sum of floats depends on the order of the rows (design section 3).
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from pyspark.sql import DataFrame

from lmerge.errors import UsageError
from lmerge.properties import StreamProperties
from replicas.windows import Windows

EVENT_TIME: Final = "event_time"
"""The column of every source that has the row's time and the watermark."""

Schema: TypeAlias = Mapping[str, type]
"""Fields of a row and their types: int, str, bool or float. Fields that are not named are not read."""

Sources: TypeAlias = Mapping[str, DataFrame]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a query, with what it promises about its output."""

    build: Callable[[Sources, Windows], DataFrame]
    properties: StreamProperties
    check: Callable[[Windows], None] = lambda _windows: None
    """Raises UsageError for windows that this plan cannot run."""
    reach_ms: Callable[[Windows], int | None] = lambda _windows: None
    """Gives the largest `ve - ts` of a result and a row that it rests on; None: not known, or there is no largest."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query with all its plans; `windows` are the defaults for those of its results."""

    name: str
    sources: Mapping[str, Schema]
    key: tuple[str, ...]
    windows: Windows
    plans: Mapping[str, Plan]

    def plan(self, name: str) -> Plan:
        """Return the plan of that name.

        Raises:
            UsageError: there is none.
        """
        try:
            return self.plans[name]
        except KeyError:
            known = ", ".join(sorted(self.plans))
            raise UsageError(f"query {self.name} has no plan {name!r}: choose one of {known}") from None


def load_query(name: str) -> Query:
    """Return the query of a shipped file (`hot_items`) or of any module (`my.queries.hot_items`).

    Raises:
        UsageError: there is no such module, or it has no `QUERY`.
    """
    path = name if "." in name else f"replicas.queries.{name}"
    try:
        module: Any = importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"query {name!r}: there is no module {path} ({error}); check the name and PYTHONPATH"
        ) from error
    query = getattr(module, "QUERY", None)
    if not isinstance(query, Query):
        raise UsageError(f"query {name!r}: module {path} has no QUERY of type replicas.query.Query")
    return query
