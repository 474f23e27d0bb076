"""What users define: merges and their inputs. The models of the REST API, and what `lmerge.control` holds."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_FORMER_TOPICS: Final = 100
"""Topics of former inputs that a merge remembers: replicas take the same few names again, and the document of a merge
stays far below the largest record that a broker takes."""

ID_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
TopicName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MergeDefinition(_Model):
    """A merge as a user wants it. In this form of the service the algorithm is R3."""

    partitions: Annotated[int, Field(ge=1, le=1024)] = 1
    algorithm: Literal["R3"] = "R3"
    policy: str = ""
    merged_topic: TopicName | None = None
    state_topic: TopicName | None = None

    def merged(self, merge: str) -> str:
        """Return the name of the merged topic."""
        return self.merged_topic or f"{merge}.merged"

    def state(self, merge: str) -> str:
        """Return the name of the topic that holds the lane records."""
        return self.state_topic or f"{merge}.state"


class InputDefinition(_Model):
    """An input as a user wants it: a topic with as many partitions as the merge."""

    topic: TopicName
    joins_at: int | None = None
    """Where it is complete from, for a topic that neither says hello nor begins at its first record."""


class Attachment(_Model):
    """An input that is attached. The id is new with every attach, so that a re-attached input begins anew."""

    attachment: str
    definition: InputDefinition


class Desired(_Model):
    """One merge with everything that is wanted of it."""

    definition: MergeDefinition
    origin: int | None = None
    """Where the merge begins (RS 5.6): fixed once, by the first input that is read. Null: minus infinity."""
    origin_fixed: bool = False
    inputs: dict[Id, Attachment] = {}
    former_topics: tuple[TopicName, ...] = ()
    """The topics of inputs that were detached, the last one last, each once: what they said is in the merged topic, so
    whoever judges it needs them. One that was attached again stays here."""
