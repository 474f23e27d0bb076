"""A query as a file of Spark SQL: a header of directives in comments, then one statement per plan. Pure.

    -- What the query is about, in words.
    -- @feed auctions.toml
    -- @source bids: id bigint, auction bigint, price bigint
    -- @key auction
    -- @window 10 s every 2 s
    -- @plan direct
    SELECT … FROM bids GROUP BY window(event_time, :width, :slide), auction
    -- @plan panes
    SELECT …

    directive   how often     says
    @source     once or more  a table of the statements: its name, the fields to read and their types
    @plan       once or more  the name of the plan whose statement follows, up to the next one or the end
    @window     at most once  the lifetimes of the results; the statements take them as `:width` and `:slide`.
                              Without `every` they tumble. Without the directive results live [t, t + 1)
    @key        at most once  the fields of a result that place it; without it, all of them
    @rank       at most once  the field that orders results with one vs
    @feed       at most once  the feed's file, seen from this one; `--feed` wins

A comment whose first character is `@` is a directive or an error; every other comment is the author's own.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from lmerge.errors import UsageError
from replicas.windows import INSTANTS, Windows

TYPES: Final[Mapping[str, type]] = {"bigint": int, "string": str, "boolean": bool, "double": float}
"""Types of a source's fields, by the names that Spark SQL gives them."""

_UNITS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}
_NAME: Final = r"[A-Za-z_]\w*"
_DIRECTIVE: Final = re.compile(r"\s*--\s*@(?P<word>\S*)\s*(?P<rest>.*?)\s*$")
_SOURCE: Final = re.compile(rf"(?P<name>{_NAME})\s*:\s*(?P<fields>.+)")
_LENGTH: Final = r"(\d+)\s*(ms|s|min|h)"
_WINDOW: Final = re.compile(rf"{_LENGTH}(?:\s+every\s+{_LENGTH})?")


class Statement(NamedTuple):
    """The text of a plan, and the line of the file on which it begins."""

    line: int
    text: str


class QueryFile(msgspec.Struct, kw_only=True):
    """What a file says."""

    feed: str | None = None
    sources: dict[str, dict[str, type]] = msgspec.field(default_factory=dict)
    key: tuple[str, ...] = ()
    rank: str | None = None
    windows: Windows = INSTANTS
    plans: dict[str, Statement] = msgspec.field(default_factory=dict)


def parse(text: str, file: str) -> QueryFile:
    """Read a query file.

    Args:
        text: what is in it.
        file: its name, for messages.

    Raises:
        UsageError: what cannot be, with the file and the line.
    """
    return _Reader(file).read(text)


class _Reader:
    """Reads a file line by line."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._made = QueryFile()
        # Directives that were met, with their lines: most may come once.
        self._met: dict[str, int] = {}
        # The plan whose statement is being read, and its lines so far.
        self._plan: str | None = None
        self._lines: list[str] = []
        self._begins = 0

    def read(self, text: str) -> QueryFile:
        number = 0
        for number, line in enumerate(text.splitlines(), start=1):
            found = _DIRECTIVE.fullmatch(line)
            if found is not None:
                self._directive(found["word"], found["rest"], number)
            elif self._plan is not None:
                self._lines.append(line)
            elif line.strip() and not line.lstrip().startswith("--"):
                raise self._error(number, "a statement before the first `-- @plan NAME`: name its plan")
        self._end_plan()
        if not self._made.sources:
            raise self._error(max(number, 1), "no source: add a line `-- @source NAME: FIELD TYPE, …`")
        if not self._made.plans:
            raise self._error(max(number, 1), "no plan: put a line `-- @plan NAME` before each statement")
        return self._made

    def _directive(self, word: str, rest: str, line: int) -> None:
        readers = {
            "feed": self._feed,
            "source": self._source,
            "key": self._key,
            "rank": self._rank,
            "window": self._window,
            "plan": self._begin_plan,
        }
        if word not in readers:
            raise self._error(line, f"unknown directive @{word}: choose one of {', '.join(readers)}")
        if word not in {"source", "plan"}:
            if word in self._met:
                raise self._error(line, f"@{word} again, after line {self._met[word]}")
            self._met[word] = line
        if word != "plan" and self._plan is not None:
            raise self._error(line, f"@{word} after the first plan: the header comes before the plans")
        readers[word](rest, line)

    def _feed(self, rest: str, line: int) -> None:
        if not rest:
            raise self._error(line, "@feed needs the name of a file")
        self._made.feed = rest

    def _source(self, rest: str, line: int) -> None:
        found = _SOURCE.fullmatch(rest)
        if found is None:
            raise self._error(line, f"@source {rest}: it must be NAME: FIELD TYPE, …")
        if found["name"] in self._made.sources:
            raise self._error(line, f"source {found['name']} again")
        fields: dict[str, type] = {}
        for part in found["fields"].split(","):
            name, kind = self._field(part, line)
            if name in fields:
                raise self._error(line, f"field {name} again")
            fields[name] = kind
        self._made.sources[found["name"]] = fields

    def _field(self, part: str, line: int) -> tuple[str, type]:
        words = part.split()
        if len(words) != 2 or not re.fullmatch(_NAME, words[0]):
            raise self._error(line, f"field {part.strip()!r}: it must be FIELD TYPE")
        name, kind = words[0], words[1].lower()
        if kind not in TYPES:
            raise self._error(line, f"field {name} is of type {words[1]}: choose one of {', '.join(TYPES)}")
        return name, TYPES[kind]

    def _key(self, rest: str, line: int) -> None:
        names = [name.strip() for name in rest.split(",")]
        if not all(re.fullmatch(_NAME, name) for name in names):
            raise self._error(line, f"@key {rest}: it must be FIELD, …")
        self._made.key = tuple(names)

    def _rank(self, rest: str, line: int) -> None:
        if not re.fullmatch(_NAME, rest):
            raise self._error(line, f"@rank {rest}: it must be one FIELD")
        self._made.rank = rest

    def _window(self, rest: str, line: int) -> None:
        found = _WINDOW.fullmatch(rest)
        if found is None:
            raise self._error(line, f"@window {rest}: it must be LENGTH or LENGTH every LENGTH, as in `10 s every 2 s`")
        width, width_unit, slide, slide_unit = found.groups()
        width_ms = int(width) * _UNITS[width_unit]
        slide_ms = width_ms if slide is None else int(slide) * _UNITS[slide_unit]
        try:
            self._made.windows = Windows(width_ms=width_ms, slide_ms=slide_ms)
            self._made.windows.require_whole_panes()
        except UsageError as error:
            raise self._error(line, f"@window {rest}: {error}") from error

    def _begin_plan(self, rest: str, line: int) -> None:
        if not re.fullmatch(_NAME, rest):
            raise self._error(line, f"@plan {rest}: it must be one name")
        if rest in self._made.plans or rest == self._plan:
            raise self._error(line, f"plan {rest} again")
        self._end_plan()
        self._plan, self._begins = rest, line + 1

    def _end_plan(self) -> None:
        if self._plan is None:
            return
        text = "\n".join(self._lines).rstrip().removesuffix(";")
        if not any(line.strip() and not line.lstrip().startswith("--") for line in text.splitlines()):
            raise self._error(self._begins - 1, f"plan {self._plan} has no statement")
        self._made.plans[self._plan] = Statement(self._begins, text)
        self._lines = []

    def _error(self, line: int, text: str) -> UsageError:
        return UsageError(f"{self._file}:{line}: {text}")
