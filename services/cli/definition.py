"""From the name of a merge to its topics: what `--merge` stands for."""

from typing import NamedTuple

from lmerge.compatible import Order
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings


class MergeTopics(NamedTuple):
    """What the definition of a merge says to those who judge it."""

    merged: str
    inputs: tuple[str, ...]
    """The topics of all inputs that are or were attached: one that left counts with what it wrote."""
    multiset: bool = False
    """Whether the algorithm is R1 or R4."""
    order: Order = Order.ANY
    """What the algorithm takes from the order of streams: R0 strictly by vs, R1 and R2 by vs."""
    origin: int | None = None
    """None: the merged topic says it in its hello."""


def resolve_merge(settings: KafkaSettings, name: str) -> MergeTopics:
    """Read the definition of a merge from `lmerge.control`.

    The merge service, which writes the definitions, fills this in; callers need nothing else.

    Raises:
        UsageError: there is no such merge; for now, always.
    """
    raise UsageError(
        f"merge {name} on {settings.bootstrap_servers}: definitions cannot be read yet; name its topics by "
        "--merged-topic and --input-topic"
    )
