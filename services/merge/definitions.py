"""What users define: merges and their inputs. The models of the REST API, and what `lmerge.control` holds."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from lmerge import MINUS_INFINITY, OutputPolicy, StreamProperties
from lmerge.choose import Algorithm
from lmerge.errors import UsageError

MAX_INPUTS: Final = 100
"""Inputs of a merge. Each adds some 350 bytes to every lane record, of which a lane may write fifty a second; with some
3,000 of them a broker would take none any more."""

MAX_FORMER_TOPICS: Final = 100
"""Topics of former inputs that a merge remembers: replicas take the same few names again, and the document of a merge
stays far below the largest record that a broker takes."""

ID_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
TopicName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Instant = Annotated[int, Field(gt=-(2**62), lt=2**62)]
"""A point of application time, in milliseconds."""

VERSION = 1
"""Of the documents in `lmerge.control`. A newer one is refused by an older process, so upgrade all before using it.

A field that older processes may ignore is added without a new version; one that they must not needs one.
"""


class Model(BaseModel):
    """An immutable value; a field that it does not have is refused, so that a typing error is not silent.

    What is read from `lmerge.control` may have more fields (`control_topic`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class Properties(Model):
    """What a stream promises (see `lmerge.properties`); what is left out is not promised."""

    insert_only: bool = False
    order: Literal["unordered", "non-decreasing", "strictly increasing"] = "unordered"
    tie_order: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    key: bool = False

    def promised(self) -> StreamProperties:
        """Return the promises as the library knows them."""
        return StreamProperties.from_dict(self.model_dump())


class FeedbackDefinition(Model):
    """When a laggard is told to skip ahead."""

    lag_ms: Annotated[int, Field(ge=1)] | None = None
    """Signal an input whose stable is further behind the merged one. Null: only when an operator asks."""
    interval_ms: Annotated[int, Field(ge=100)] = 10_000
    """At least this long between two signals to one input."""


class NormalFormDefinition(Model):
    """Bring every input into its snapshot normal form first, for plans that cut lifetimes differently."""

    cut_every_ms: Annotated[int, Field(ge=1)] | None = None
    """Cut runs at every multiple of it: needed where inputs join late or skip."""


class MergeDefinition(Model):
    """A merge as a user wants it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"partitions": 4, "algorithm": "auto", "feedback": {"lag_ms": 60_000}}]}
    )

    partitions: Annotated[int, Field(ge=1, le=1024)] = 1
    algorithm: Literal["auto", "R0", "R1", "R2", "R3", "R4"] = "auto"
    """`auto` takes the cheapest that `properties` allow; R3 if none are listed."""
    properties: tuple[Properties, ...] = ()
    """What its inputs will promise, one entry for each kind."""
    policy: str = ""
    """When to put out what, such as "half_frozen" or "quorum(2),eager"; R3 only. Empty: the default."""
    normal_form: NormalFormDefinition | None = None
    feedback: FeedbackDefinition = FeedbackDefinition()
    quarantine_diverging: bool = False
    """Stop an input that contradicts the majority of the others; R3 and R4 only, since the others do not compare."""
    longest_lifetime_ms: Annotated[int, Field(ge=0)] | None = None
    """R0 to R2 need it when their first input began cold: the merged topic is complete that much after the origin."""
    merged_topic: TopicName | None = None
    state_topic: TopicName | None = None
    feedback_topic: TopicName | None = None
    create_topics: bool = True
    """False on a cluster where somebody else makes the topics: `lmerge topics -f` prints them."""

    @model_validator(mode="after")
    def _check(self) -> "MergeDefinition":
        try:
            policy = self.output_policy
        except UsageError as error:
            raise ValueError(str(error)) from error
        if policy != OutputPolicy() and self.algorithm not in ("auto", "R3"):
            raise ValueError(f"{self.algorithm} has no output policy but the default: use R3")
        if self.normal_form is not None and self.algorithm not in ("auto", "R3"):
            raise ValueError("the normal form is merged by R3: leave the algorithm out, or say R3")
        return self

    @property
    def output_policy(self) -> OutputPolicy:
        """The policy, parsed."""
        return OutputPolicy.parse(self.policy) if self.policy else OutputPolicy()

    def merged(self, merge: str) -> str:
        """Return the name of the merged topic."""
        return self.merged_topic or f"{merge}.merged"

    def state(self, merge: str) -> str:
        """Return the name of the topic that holds the lane records."""
        return self.state_topic or f"{merge}.state"

    def signals(self, merge: str) -> str:
        """Return the name of the topic of feedback signals."""
        return self.feedback_topic or f"{merge}.feedback"


class InputDefinition(Model):
    """An input as a user wants it: a topic with as many partitions as the merge."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"topic": "hot_items.replica.r1"}]})

    topic: TopicName
    joins_at: Instant | None = None
    """Where it is complete from, for a topic that neither says hello nor begins at its first record."""
    properties: Properties | None = None
    """What it promises; null: it is trusted to promise what the algorithm needs, and held to it."""


class FastForward(Model):
    """An operator's order to tell an input to skip ahead."""

    id: str
    before: Instant


class Release(Model):
    """An operator's order to lift a quarantine."""

    id: str
    skip_record: bool
    """True: read the incarnation again without the record that broke it. False: wait for its next hello."""


class Attachment(Model):
    """An input that is attached. The id is new with every attach, so that a re-attached input begins anew."""

    attachment: str
    definition: InputDefinition
    paused: bool = False
    fast_forward: FastForward | None = None
    release: Release | None = None


class Changed(Model):
    """Who changed the desired state, when, how and why."""

    by: str
    at_ms: int
    why: str = ""
    what: str = ""


class Desired(Model):
    """One merge with everything that is wanted of it: the document under its name in `lmerge.control`."""

    v: int = VERSION
    id: str = ""
    """New with every definition: a merge that is deleted and defined again is another one."""
    definition: MergeDefinition
    algorithm: Algorithm
    """What `definition.algorithm` came to, once and for all."""
    reason: str = ""
    """Why this algorithm."""
    origin: int | None = None
    """Where the merge begins (RS 5.6): fixed once, by the first input that is read. Null: minus infinity."""
    origin_fixed: bool = False
    feed: str = ""
    """The feed that its replicas read, fixed with the origin; an input that names another one is stopped."""
    inputs: dict[Id, Attachment] = {}
    former_topics: tuple[TopicName, ...] = ()
    """The topics of inputs that were detached, the last one last, each once: what they said is in the merged topic, so
    whoever judges it needs them. One that was attached again stays here."""
    changed: Changed | None = None

    @property
    def begins_at(self) -> int:
        """The origin as an instant."""
        return MINUS_INFINITY if self.origin is None else self.origin
