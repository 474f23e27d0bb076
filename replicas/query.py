"""What a query is: the sources with their schemas, the key that places its results, and its plans.

A query is one file, Spark SQL with a header (`replicas.query_file`) or a Python module that has a `QUERY`;
`replicas.loader` finds it. A plan is one way to run it: from the sources' DataFrames to a result. All plans of a query
give the same TDB; those that `replicas.early` makes answer before their windows close, and revise.

A source's DataFrame has the columns of its schema and `event_time`, a timestamp that carries the watermark. A result
has the columns `vs` and `ve` (milliseconds) and, for the payload, whatever else the plan selects. Its values must be
exact: integers, strings, booleans, decimals; a sum of floats depends on the order of the rows (design section 3).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from pyspark.sql import DataFrame

from lmerge.errors import UsageError
from lmerge.feed import columns
from lmerge.properties import StreamProperties
from replicas.progress import Progress
from replicas.windows import INSTANTS, Windows

EVENT_TIME: Final = columns.EVENT_TIME
"""The column of every source that has the row's time and the watermark."""

Schema: TypeAlias = Mapping[str, type]
"""Fields of a row and their types: int, str, bool or float. Fields that are not named are not read."""

_TYPES: Final = (int, str, bool, float)

Sources: TypeAlias = Mapping[str, DataFrame]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a query.

    What it promises about its output is inferred from its shape (`replicas.shape`). For a shape that is not known there
    an author gives both `properties` and `progress`, and answers for them.
    """

    build: Callable[[Sources, Windows], DataFrame]
    properties: StreamProperties | None = None
    progress: Progress | None = None
    reach_ms: Callable[[Windows], int] | None = None
    """Gives the largest `ve - ts` of a result and a row that it rests on, where the shape does not tell: a replica that
    starts late is complete from there on (`replicas.start`)."""
    operator: str | None = None
    """The operator that `build` hosts, in words (`replicas.early`): its sources come with their heartbeats. The text is
    part of what the plan is."""
    check: Callable[[Windows], None] = lambda _windows: None
    """Raises UsageError for windows that this plan cannot run."""
    place: str = ""
    """Where it is written, `file:line`, for messages; empty: where `build` is."""

    def __post_init__(self) -> None:
        if not self.place:
            code = getattr(self.build, "__code__", None)  # a partial function has none
            place = repr(self.build) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
            msgspec.structs.force_setattr(self, "place", place)


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query with all its plans.

    Args:
        name: what it is called.
        sources: what it reads: names, and the fields of their rows.
        plans: the ways to run it.
        key: the fields of a result that place it; none means all of them.
        rank: the field by which results with one vs are ordered in a lane; None: by their canonical payload.
        windows: the lifetimes of its results, by default; INSTANTS if it has no windows.
        feed: the file of the feed that it reads, if none is named at the start.
        code: what its functions are, by a hash of their sources: a plan's text shows their names alone.
    """

    name: str
    sources: Mapping[str, Schema]
    plans: Mapping[str, Plan]
    key: tuple[str, ...] = ()
    rank: str | None = None
    windows: Windows = INSTANTS
    feed: Path | None = None
    code: str = ""

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError(f"query {self.name} has no source")
        if not self.plans:
            raise UsageError(f"query {self.name} has no plan")
        for name, schema in self.sources.items():
            for field, kind in schema.items():
                if kind not in _TYPES:
                    known = ", ".join(one.__name__ for one in _TYPES)
                    raise UsageError(
                        f"query {self.name}: source {name}: field {field!r} is of type {kind!r}; choose one of {known}"
                    )

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
