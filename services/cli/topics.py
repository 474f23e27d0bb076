"""`lmerge topics`: the topics of a merge, how they are set up, and which permissions they take.

Of a merge that is defined by the word of the service; of one that is not yet by its file alone, so that a cluster where
somebody else makes the topics, or grants what is needed, can be prepared before anything runs.
"""

from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, NamedTuple

import click

from lmerge.kafka import TopicSpec
from lmerge.process.api import Api
from services.cli.acls import Grant, grants
from services.cli.acls import as_json as grant_json
from services.cli.merge_file import Document, parse, wanted
from services.cli.options import api_options, json_option, optional_merge_argument, say
from services.merge.definitions import Desired
from services.merge.topics import AUDIT, CONTROL, owned_topics


def _topic_json(role: str, spec: TopicSpec) -> dict[str, Any]:
    return {"role": role, "name": spec.name, "partitions": spec.partitions, "config": spec.config}


_SHARED: Final = [_topic_json(role, spec) for role, spec in (("control", CONTROL), ("audit", AUDIT))]
"""The topics that all merges of a cluster share."""


class _Merge(NamedTuple):
    """What is to be known of a merge."""

    name: str
    partitions: int
    creates: bool
    """Whether the service makes its topics."""
    owned: list[dict[str, Any]]
    """The topics that it alone writes."""
    inputs: dict[str, str]
    """The topics of its inputs, by name."""

    @property
    def topics(self) -> list[dict[str, Any]]:
        """All topics that the service writes for it."""
        return [*self.owned, *_SHARED]

    @property
    def grants(self) -> list[Grant]:
        """The permissions that it takes."""
        topics = {each["role"]: each["name"] for each in self.topics}
        return [*grants(self.name, topics, self.inputs, create=self.creates)]


@click.command()
@optional_merge_argument
@click.option(
    *("-f", "--file", "stream"),
    type=click.File("r", encoding="utf-8"),
    help="A file of merges in place of MERGE; - is a pipe.",
)
@click.option("--servers", default="$SERVERS", show_default=True, help="What to write for the brokers.")
@json_option
@api_options
def topics(*, api: Api, merge: str | None, stream: IO[str] | None, servers: str, as_json: bool) -> None:
    """Print the topics of MERGE with their settings, and the permissions (ACLs) that a locked-down cluster must grant.

    They are commands of Kafka's own tools; replace User:… by your principals, and CONSUMER-GROUP by
    the group of a consumer. With -f they are for the merges of a file
    as lmerge apply takes it, defined or not, and neither the merge service nor Kafka is asked: where create_topics is
    false, make the topics before you apply it. Name the inputs in it that will attach themselves, too.
    """
    if merge is not None and stream is None:
        one = _defined(api, merge)
        say(_data(one), "\n".join(_lines(one, servers)), as_json=as_json)
    elif stream is not None and merge is None:
        planned = _planned(parse(stream, stream.name))
        data = [{"merge": each.name, **_data(each)} for each in planned]
        say(data, "\n".join(line for each in planned for line in _lines(each, servers)), as_json=as_json)
    else:
        raise click.UsageError("give either MERGE, one that is defined, or a file of merges by -f")


def _defined(api: Api, merge: str) -> _Merge:
    desired = api.get(f"/v1/merges/{merge}")["desired"]
    definition = desired["definition"]
    inputs = {name: each["definition"]["topic"] for name, each in desired["inputs"].items()}
    return _Merge(merge, definition["partitions"], definition["create_topics"], desired["topics"], inputs)


def _planned(documents: Iterable[Document]) -> list[_Merge]:
    found: dict[str, Desired] = {}
    for document in documents:
        found[document.merge] = wanted(document, found)
    planned = []
    for merge, desired in found.items():
        definition = desired.definition
        owned = [_topic_json(role, spec) for role, spec in owned_topics(merge, definition)]
        inputs = {name: each.definition.topic for name, each in sorted(desired.inputs.items())}
        planned.append(_Merge(merge, definition.partitions, definition.create_topics, owned, inputs))
    return planned


def _data(found: _Merge) -> dict[str, Any]:
    return {
        "topics": found.topics,
        "inputs": [
            {"input": name, "name": topic, "partitions": found.partitions} for name, topic in found.inputs.items()
        ],
        "acls": [grant_json(each) for each in found.grants],
    }


def _lines(found: _Merge, servers: str) -> Iterator[str]:
    yield f"# topics of merge {found.name}"
    yield from (_create(each, servers) for each in found.topics)
    for name, topic in found.inputs.items():
        yield f"# written by replica {name}: {topic}, {found.partitions} partitions"
    needed = found.grants
    for who in dict.fromkeys(each.who for each in needed):
        yield f"# a {who} may"
        yield from (each.command(servers) for each in needed if each.who == who)
    yield "# a replica also reads its sources and <feed>.heartbeats"


def _create(topic: dict[str, Any], servers: str) -> str:
    config = "".join(f" --config {name}={value}" for name, value in topic["config"].items())
    return (
        f"kafka-topics.sh --bootstrap-server {servers} --create --if-not-exists --topic {topic['name']} "
        f"--partitions {topic['partitions']}{config}"
    )
