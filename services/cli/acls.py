"""Which permissions a locked-down cluster has to grant for a merge, and to whom. Pure."""

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

Who = Literal["merge service", "replica", "consumer"]
Resource = Literal["topic", "group", "transactional-id"]


class Grant(NamedTuple):
    """What somebody may do with something."""

    who: Who
    resource: Resource
    name: str
    prefixed: bool
    operations: tuple[str, ...]

    def command(self, servers: str) -> str:
        """Write it for Kafka's own tool; principal and consumer group are for the reader to fill in."""
        principal = self.who.upper().replace(" ", "-")
        operations = " ".join(f"--operation {each}" for each in self.operations)
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return (
            f"kafka-acls.sh --bootstrap-server {servers} --add --allow-principal User:{principal} {operations} "
            f"--{self.resource} '{self.name}'{pattern}"
        )


_LOOK = ("Describe", "DescribeConfigs")
CONSUMER_GROUP: Final = "CONSUMER-GROUP"
"""For the reader to fill in, as principals are. Not all groups: who may read that of the merge can hold its lanes."""

_TAIL_GROUP: Final = "lmerge-tail"
_READER_GROUP: Final = "lmerge-reader"
"""Readers that join no group name these; brokers ask for them all the same."""


def grants(merge: str, topics: dict[str, str], inputs: dict[str, str], *, create: bool) -> Iterator[Grant]:
    """Say what is needed.

    Args:
        merge: the name of the merge.
        topics: its own topics by role, with that of all definitions as `control`.
        inputs: the topics of its inputs, by name.
        create: whether the service makes its topics.
    """
    makes = ("Create",) if create else ()
    for role in ("merged", "state", "feedback", "control", "audit"):
        yield Grant("merge service", "topic", topics[role], False, (*_LOOK, "Read", "Write", *makes))
    for topic in inputs.values():
        yield Grant("merge service", "topic", topic, False, (*_LOOK, "Read"))
    yield Grant("merge service", "group", "lmerge", True, ("Describe", "Read", "AlterConfigs"))
    yield Grant("merge service", "transactional-id", f"{merge}/", True, ("Describe", "Write"))
    yield Grant("merge service", "transactional-id", topics["control"], True, ("Describe", "Write"))
    for topic in inputs.values():
        yield Grant("replica", "topic", topic, False, (*_LOOK, "Read", "Write", "Create"))
    yield Grant("replica", "topic", topics["feedback"], False, ("Describe", "Read"))
    yield Grant("replica", "group", _TAIL_GROUP, False, ("Describe", "Read"))
    for topic in inputs.values():
        yield Grant("replica", "transactional-id", topic, False, ("Describe", "Write"))
    yield Grant("consumer", "topic", topics["merged"], False, (*_LOOK, "Read"))
    for group in (_TAIL_GROUP, _READER_GROUP, CONSUMER_GROUP):
        yield Grant("consumer", "group", group, False, ("Describe", "Read"))


def as_json(grant: Grant) -> dict[str, Any]:
    """Return it as an object."""
    return {**grant._asdict(), "operations": [*grant.operations]}
