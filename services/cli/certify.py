"""`lmerge certify`: is this stream a right merge of these inputs? On files, pipes and topics."""

import sys
from collections.abc import Iterator

import click
import msgspec

from lmerge.compatible import Order
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, Watermarks
from lmerge.process.kafka_options import given_by_option, kafka_options
from services.certify import Batches, Certificate, Certifier, formed
from services.cli.certify_report import is_certified, to_json, to_text
from services.cli.definition import MergeTopics, resolve_merge
from services.cli.places import file_line, topic_offset
from services.cli.progress import Progress
from services.cli.sources import STANDARD_INPUT, Topics, read_file

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)
_ORDERS = {"any": Order.ANY, "by-vs": Order.BY_VS, "strictly-by-vs": Order.STRICTLY_BY_VS}


class Rules(msgspec.Struct, frozen=True):
    """How to judge, whatever the streams come from."""

    multiset: bool
    order: Order
    origin: int | None
    until: int | None


@click.command()
@click.option("--merged", type=_FILE, metavar="FILE", help="The merged stream, one element per line; - is a pipe.")
@click.option("--input", "inputs", multiple=True, type=_FILE, metavar="FILE", help="An input; one option for each.")
@click.option("--reference", type=_FILE, metavar="FILE", help="A stream that is known to be right, to be equal to.")
@kafka_options(required=False)
@click.option("--merged-topic", metavar="TOPIC", help="The merged stream.")
@click.option("--input-topic", "input_topics", multiple=True, metavar="TOPIC", help="An input; one option for each.")
@click.option("--reference-topic", metavar="TOPIC", help="A stream that is known to be right, to be equal to.")
@click.option("--merge", "merge_name", metavar="NAME", help="A merge, whose definition names the topics.")
@click.option("--multiset", is_flag=True, help="A payload and vs may have several events (R1, R4).")
@click.option(
    "--order",
    type=click.Choice(list(_ORDERS)),
    default="any",
    show_default=True,
    help="What a merge took from the order of its streams: strictly-by-vs for R0, by-vs for R1 and R2.",
)
@click.option("--origin", type=int, help="Where the merge begins [default: as the merged stream's hello says].")
@click.option("--until", type=int, help="Stop when the merged stream has come to this stable.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def certify(
    *,
    merged: str | None,
    inputs: tuple[str, ...],
    reference: str | None,
    kafka: KafkaSettings | None,
    merged_topic: str | None,
    input_topics: tuple[str, ...],
    reference_topic: str | None,
    merge_name: str | None,
    multiset: bool,
    order: str,
    origin: int | None,
    until: int | None,
    as_json: bool,
) -> None:
    """Certify that a merged stream is a right merge of its inputs: nothing lost, nothing repeated, at every prefix.

    Every prefix must be legal and compatible with the set of inputs, and in the end the merged stream must hold what
    the inputs have frozen at its stable. Otherwise the first violating element is named, with its file and line, or its
    topic, partition and offset, and the rule that it breaks. Inputs are read as far as the verdict needs; topics up to
    their committed ends, partition by partition. Nothing is kept that is frozen, so topics may be larger than memory.

    With --merge the inputs are all that are or were attached. One that was detached counts with all that its topic
    holds: what a right input says later only bears the merge out, but if it goes wrong after it left, that is reported.

    With --bootstrap-servers, topics are judged; else files. The exit code is 0 if the stream is certified and 1 if not;
    `lmerge --help` has the others.
    """
    rules = Rules(multiset, _ORDERS[order], origin, until)
    progress = Progress()
    notes: tuple[str, ...] = ()
    if kafka is None or not (merged_topic or input_topics or reference_topic or merge_name or given_by_option()):
        if merged_topic or input_topics or reference_topic or merge_name:
            raise click.UsageError("topics and merges are on a cluster: give --bootstrap-servers")
        lanes = _certify_files(merged, inputs, reference, rules, progress)
    else:
        if merged or inputs or reference:
            raise click.UsageError("files or topics: leave out --bootstrap-servers, or --merged, --input, --reference")
        topics = _topics(kafka, merge_name, merged_topic, input_topics, rules)
        notes = topics.notes
        for note in notes:  # the verdict may be long in coming
            click.echo(f"lmerge: {note}", err=True)
        lanes = _certify_topics(kafka, topics, reference_topic, rules, progress)
    certificates = dict(lanes)
    progress.close()
    click.echo(to_json(certificates, notes) if as_json else to_text(certificates, notes))
    sys.exit(0 if is_certified(certificates) else 1)


def _topics(
    settings: KafkaSettings, merge: str | None, merged: str | None, inputs: tuple[str, ...], rules: Rules
) -> MergeTopics:
    if merge is not None:
        if merged or inputs:
            raise click.UsageError("--merge names the topics: leave out --merged-topic and --input-topic")
        return resolve_merge(settings, merge)
    if merged is None or not inputs:
        raise click.UsageError("give --merged-topic and at least one --input-topic, or --merge")
    return MergeTopics(merged, inputs, multiset=rules.multiset, order=rules.order, origin=rules.origin)


def _certify_files(
    merged: str | None, inputs: tuple[str, ...], reference: str | None, rules: Rules, progress: Progress
) -> Iterator[tuple[int | None, Certificate]]:
    if merged is None or not inputs:
        raise click.UsageError("give --merged and at least one --input, or --bootstrap-servers with topics")
    names = [merged, *inputs, *([reference] if reference else [])]
    _refuse_twice(names)
    streams = {name: progress.watch(read_file(name)) for name in names}
    certifier = Certifier(
        (merged, streams[merged]),
        {name: streams[name] for name in inputs},
        locate=file_line,
        reference=(reference, streams[reference]) if reference else None,
        multiset=rules.multiset,
        origin=rules.origin,
        order=rules.order,
        until=rules.until,
    )
    progress.stable = lambda: certifier.stable
    yield None, certifier.run()


def _certify_topics(
    settings: KafkaSettings, topics: MergeTopics, reference: str | None, rules: Rules, progress: Progress
) -> Iterator[tuple[int | None, Certificate]]:
    names = [topics.merged, *topics.inputs, *([reference] if reference else [])]
    _refuse_twice(names)
    with Topics(settings, names) as readers:
        for partition in readers.partitions:
            ranges = readers.ranges(partition)
            low, end = ranges[topics.merged]
            if low > 0:
                raise UsageError(
                    f"the beginning of {topics.merged}/{partition} is gone (it starts at offset {low}): "
                    "only a whole stream can be certified"
                )
            ranges[topics.merged] = Watermarks(low, end if topics.ends is None else topics.ends[partition])
            streams: dict[str, Batches] = {
                name: progress.watch(readers.read(name, partition, start=low, end=end))
                for name, (low, end) in ranges.items()
            }
            if topics.new_form is not None:
                streams |= {name: formed(streams[name], topics.new_form) for name in names[1:]}
            certifier = Certifier(
                (topics.merged, streams[topics.merged]),
                {name: streams[name] for name in topics.inputs},
                locate=topic_offset(partition),
                begin_late=frozenset(name for name in topics.inputs if ranges[name].low > 0),
                reference=(reference, streams[reference]) if reference else None,
                multiset=topics.multiset,
                origin=topics.origin,
                order=topics.order,
                until=rules.until,
            )
            progress.lane = f"partition {partition}: "
            progress.stable = lambda judge=certifier: judge.stable
            yield partition, certifier.run()


def _refuse_twice(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            what = "standard input" if name == STANDARD_INPUT else name
            raise UsageError(f"{what} is named twice: give each stream once")
