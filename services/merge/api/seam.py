"""What REST needs of the rest of the service; every part may be called from any thread."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry

from lmerge.kafka import TopicDescription
from services.clock import now_ms
from services.merge.definitions import Desired
from services.merge.lane_record import LaneRecord


class Control(Protocol):
    """The desired state."""

    @property
    def desired(self) -> Mapping[str, Desired]:
        """What is wanted of each merge, by name."""
        ...

    def follow(self) -> None:
        """Apply what other processes have changed meanwhile; it happens anyway, a moment later.

        Raises:
            LMergeError: it cannot be read.
        """
        ...

    def change(
        self, name: str, decide: Callable[[Desired | None], Desired | None], *, by: str, why: str, what: str
    ) -> Desired | None:
        """Decide on a merge; when this returns, the decision is durable. None removes the merge.

        Raises:
            LMergeError: what `decide` raises, or the broker; nothing is changed then, as far as anybody knows.
        """
        ...


class LaneRecords(Protocol):
    """What the lanes have committed."""

    def read(self, merge: str, desired: Desired) -> list[LaneRecord | None]:
        """Return the last committed record of every lane; None: it has none yet."""
        ...


class Health(Protocol):
    """Whether the service does its work."""

    @property
    def is_running(self) -> bool:
        """Whether the loop has begun and not ended."""
        ...


class Topics(Protocol):
    """The topics of the cluster; `lmerge.kafka.TopicAdmin` is one."""

    def describe(self, *names: str) -> dict[str, TopicDescription]:
        """Describe topics.

        Raises:
            MissingTopic: one of them does not exist.
            BrokerError: the broker does not answer, or refuses.
        """
        ...


class Parts(NamedTuple):
    """All of them, for the calls."""

    control: Control
    lane_records: LaneRecords
    health: Health
    topics: Topics
    registry: CollectorRegistry
    now_ms: Callable[[], int] = now_ms
