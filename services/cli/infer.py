"""`lmerge infer`: look at the rows of a topic and propose the schema that a query declares for them.

A replica never infers: two of them would see different rows and read them differently. So this is for a person, once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec

from lmerge.feed.columns import RESERVED
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin
from lmerge.process.kafka_options import kafka_options
from services.cli.failure import NO
from services.cli.options import json_option, say

_LONG: Final = range(-(2**63), 2**63)
_KINDS: Final = {
    type(None): "null",
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    dict: "objects",
    list: "arrays",
}
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a query could declare.

    Args:
        rows: how many records were looked at.
        fields: names and types, as Spark SQL writes them; every row has a readable value in each of them.
        left_out: other fields, each with the reason.
        unreadable: how many records are no JSON objects.
    """

    rows: int
    fields: dict[str, str]
    left_out: dict[str, str]
    unreadable: int

    def lines(self, source: str) -> list[str]:
        """Return the proposal as lines of a query file."""
        declared = ", ".join(f"{name} {kind}" for name, kind in self.fields.items())
        lines = [f"-- @source {source}: {declared}"] if self.fields else []
        lines += [f"-- left out: {name}: {reason}" for name, reason in self.left_out.items()]
        if self.unreadable:
            lines.append(f"-- {self.unreadable} of {self.rows} records are no JSON objects: they would be left out")
        doubles = [name for name, kind in self.fields.items() if kind == "double"]
        if doubles:
            lines.append(
                f"-- {', '.join(doubles)}: a sum of doubles depends on the order of the rows; make it exact first"
            )
        return lines


def propose(values: Iterable[bytes | None]) -> Proposal:
    """Propose a schema for rows: the fields that each row has, with one type that reads all their values."""
    kinds: dict[str, Counter[str]] = {}
    rows = unreadable = 0
    for value in values:
        rows += 1
        row = _decode(value)
        if row is None:
            unreadable += 1
            continue
        for name, found in row.items():
            kinds.setdefault(name, Counter())[_kind(found)] += 1
    fields, left_out = {}, {}
    for name, found_kinds in kinds.items():
        kind, reason = _judge(name, found_kinds, rows - unreadable)
        if kind is None:
            left_out[name] = reason
        else:
            fields[name] = kind
    return Proposal(rows=rows, fields=fields, left_out=left_out, unreadable=unreadable)


def _decode(value: bytes | None) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _kind(value: object) -> str:
    """Return the type of a value; what no type of a schema reads is in words."""
    if type(value) is int and value not in _LONG:
        return "integers beyond 64 bits"
    return _KINDS[type(value)]


def _judge(name: str, kinds: Counter[str], rows: int) -> tuple[str | None, str]:
    """Return the type of a field, or None and why it has none."""
    if name in RESERVED or not _NAME.fullmatch(name):
        return None, "the name cannot be that of a column"
    present = sorted(set(kinds) - {"null"})
    if present == ["bigint", "double"]:
        present = ["double"]
    if not present:
        return None, "only null"
    if len(present) > 1:
        return None, f"values of several types: {', '.join(f'{kind} ({kinds[kind]})' for kind in present)}"
    if present[0] not in {"bigint", "double", "string", "boolean"}:
        return None, f"{present[0]} cannot be read; a query reads plain fields only"
    lacking = rows - sum(kinds.values()) + kinds["null"]
    if lacking:
        return None, f"{present[0]}, but null or missing in {lacking} of {rows} rows, which could then not be read"
    return present[0], ""


@click.command()
@click.argument("topic")
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=1_000, show_default=True, help="Look at so many records."
)
@click.option("--source", help="Name of the source in the query.  [default: the topic's, as far as it can be one]")
@json_option
@kafka_options()
def infer(*, kafka: KafkaSettings, topic: str, count: int, source: str | None, as_json: bool) -> None:
    """Look at the newest records of TOPIC and propose the line that declares them in a query file.

    Only fields that could be read in every record are proposed; the others are told with the reason. Check the result:
    what a later record has differently will be malformed, counted and left out.
    """
    proposal = propose(_newest(kafka, topic, count))
    name = source or re.sub(r"\W", "_", topic.rsplit(".", 1)[-1], flags=re.ASCII)
    lines = proposal.lines(name if not name[0].isdigit() else f"_{name}")
    data = {"source": name, "topic": topic, **msgspec.structs.asdict(proposal)}
    text = "\n".join(lines) if proposal.rows else f"-- topic {topic} has no committed records"
    say(data, text, as_json=as_json)
    if not proposal.fields:
        raise click.exceptions.Exit(NO)


def _newest(kafka: KafkaSettings, topic: str, count: int) -> Sequence[bytes | None]:
    """Read the newest committed records, about as many of each partition."""
    partitions = TopicAdmin(kafka).describe(topic)[topic].partitions
    share = -(-count // partitions)
    values: list[bytes | None] = []
    with TailReader(kafka) as reader:
        for partition in range(partitions):
            low, end = reader.watermarks(topic, partition)
            # Markers and aborted records take offsets too, so that fewer may come than were asked for.
            start = max(low, end - 2 * share)
            found = [r.value for batch in reader.read_range(topic, partition, start=start, end=end) for r in batch]
            values += found[-share:]
    return values[:count]
