"""`lmerge topics`: the topics of a merge, how they are set up, and which permissions they take."""

from typing import Any, Final

import click

from lmerge.process.api import Api
from services.cli.acls import as_json as grant_json
from services.cli.acls import grants
from services.cli.options import api_options, json_option, merge_argument, say
from services.merge.topics import AUDIT, CONTROL

_SHARED: Final = [
    {"role": role, "name": spec.name, "partitions": spec.partitions, "config": spec.config}
    for role, spec in (("control", CONTROL), ("audit", AUDIT))
]
"""The topics that all merges of a cluster share."""


@click.command()
@merge_argument
@click.option("--servers", default="$SERVERS", show_default=True, help="What to write for the brokers.")
@json_option
@api_options
def topics(*, api: Api, merge: str, servers: str, as_json: bool) -> None:
    """Print the topics of MERGE with their settings, and the permissions (ACLs) that a locked-down cluster must grant.

    They are commands of Kafka's own tools; replace User:… by your principals. Where create_topics is false, make the
    topics before the merge is defined.
    """
    desired = api.get(f"/v1/merges/{merge}")["desired"]
    own = [*desired["topics"], *_SHARED]
    inputs = {name: each["definition"]["topic"] for name, each in desired["inputs"].items()}
    needed = list(
        grants(
            merge, {each["role"]: each["name"] for each in own}, inputs, create=desired["definition"]["create_topics"]
        )
    )
    partitions = desired["definition"]["partitions"]
    data = {
        "topics": own,
        "inputs": [{"input": name, "name": topic, "partitions": partitions} for name, topic in inputs.items()],
        "acls": [grant_json(each) for each in needed],
    }
    lines = [f"# topics of merge {merge}", *(_create(each, servers) for each in own)]
    lines += [f"# written by replica {name}: {topic}, {partitions} partitions" for name, topic in inputs.items()]
    for who in dict.fromkeys(each.who for each in needed):
        lines += [f"# a {who} may", *(each.command(servers) for each in needed if each.who == who)]
    lines.append("# a replica also reads its sources and <feed>.heartbeats")
    say(data, "\n".join(lines), as_json=as_json)


def _create(topic: dict[str, Any], servers: str) -> str:
    config = "".join(f" --config {name}={value}" for name, value in topic["config"].items())
    return (
        f"kafka-topics.sh --bootstrap-server {servers} --create --if-not-exists --topic {topic['name']} "
        f"--partitions {topic['partitions']}{config}"
    )
