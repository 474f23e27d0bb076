"""`lmerge tail`: what comes out of a merge: element by element, event by event, or as the table that it stands for."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click

from lmerge import INFINITY, Event
from lmerge.codec import encode_batch
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, MergedElement, MergedReader, Position, TailReader, TopicAdmin
from lmerge.process.api import Api
from lmerge.process.kafka_options import kafka_options
from services.cli.options import api_options, json_option, merge_argument


@click.command()
@merge_argument
@click.option("--events", is_flag=True, help="Print events, each once, when they are final.")
@click.option("--table", is_flag=True, help="Print all events as they are now, those that may still change too.")
@click.option("--from-beginning", is_flag=True, help="Begin with what is there, and not with what comes now.")
@click.option("--no-follow", is_flag=True, help="End with what is committed now.")
@click.option("-n", "count", type=click.IntRange(min=1), help="End after so many.")
@json_option
@kafka_options()
@api_options
def tail(
    *,
    api: Api,
    kafka: KafkaSettings,
    merge: str,
    events: bool,
    table: bool,
    from_beginning: bool,
    no_follow: bool,
    count: int | None,
    as_json: bool,
) -> None:
    """Print what MERGE puts out as it comes, one JSON line for each element, until Ctrl-C.

    Only what is committed is shown. With --json each element comes with its partition and offset. With --events the
    lines are events: payload and lifetime, of each partition in the order in which they end (ve null: no end). Without
    --from-beginning, events that began before are not among them. With --table it reads the whole topic, prints the
    events that there are now, in the order in which they begin, and ends.
    """
    if table and (events or from_beginning or no_follow):
        raise click.UsageError("--table is always of the whole topic, as it is now: leave out the other choice")
    topic = _merged_topic(api, merge)
    if table:
        _print_table(kafka, topic, count)
        return
    start = None if from_beginning else _ends(kafka, topic)
    gap = not from_beginning
    with MergedReader(kafka, topic, start=start, follow=not no_follow, accept_gap=gap) as reader:
        lines = _events(reader.events()) if events else _elements(reader.elements(), as_json=as_json)
        try:
            for line in islice(lines, count):
                click.echo(line)
        except KeyboardInterrupt:
            return


def _print_table(kafka: KafkaSettings, topic: str, count: int | None) -> None:
    with MergedReader(kafka, topic) as reader:
        events = sorted(reader.table(), key=lambda event: (event.vs, event.ve))
    for line in islice(_events(events), count):
        click.echo(line)


def _merged_topic(api: Api, merge: str) -> str:
    for topic in api.get(f"/v1/merges/{merge}")["desired"]["topics"]:
        if topic["role"] == "merged":
            return str(topic["name"])
    raise UsageError(f"the merge service does not say which topic merge {merge} writes: is it another version?")


def _ends(kafka: KafkaSettings, topic: str) -> dict[int, Position]:
    partitions = TopicAdmin(kafka).describe(topic)[topic].partitions
    with TailReader(kafka) as reader:
        return {partition: Position(reader.watermarks(topic, partition).end) for partition in range(partitions)}


def _elements(found: Iterable[MergedElement], *, as_json: bool) -> Iterator[str]:
    for item in found:
        (value,) = encode_batch([item.element])
        if not as_json:
            yield value.decode()
            continue
        line: dict[str, Any] = {"partition": item.partition, "offset": item.offset, "element": json.loads(value)}
        yield json.dumps(line, ensure_ascii=False)


def _events(found: Iterable[Event]) -> Iterator[str]:
    for event in found:
        assert isinstance(event.payload, bytes), "on the wire a payload is canonical JSON"
        end = "null" if event.ve == INFINITY else str(event.ve)
        yield f'{{"payload":{event.payload.decode()},"vs":{event.vs},"ve":{end}}}'
