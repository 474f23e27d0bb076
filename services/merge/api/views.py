"""What the API answers with: desired and observed state side by side."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lmerge.choose import Algorithm
from services.merge.api.checks import PlannedTopic
from services.merge.definitions import (
    Attachment,
    Changed,
    Desired,
    FastForward,
    Id,
    InputDefinition,
    MergeDefinition,
    Release,
)
from services.merge.lane_record import LaneRecord
from services.merge.status import Condition, DivergenceView, InputStatus, LaneStatus, Membership, Time, lane_status
from services.merge.topics import Role, owned_topics

State = Literal["running", "recovering", "stalled"]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class TopicView(_View):
    """A topic of a merge, as the service makes it."""

    role: Role
    name: str
    partitions: int
    config: dict[str, str]


class InputDesired(_View):
    """What is wanted of an input."""

    definition: InputDefinition
    attachment: str
    """New with every attach: an input that was detached and attached again has another."""
    paused: bool
    fast_forward: FastForward | None
    """The last order to skip ahead."""
    release: Release | None
    """The last order to lift a quarantine."""


class MergeDesired(_View):
    """What is wanted of a merge."""

    definition: MergeDefinition
    algorithm: Algorithm
    """What the definition came to, once and for all."""
    reason: str
    """Why this algorithm."""
    origin: Time | None
    """Where the merge begins; null: from the very start, or not fixed yet."""
    origin_fixed: bool
    feed: str
    inputs: dict[str, InputDesired]
    former_topics: list[str]
    """Topics of inputs that left."""
    topics: list[TopicView]
    changed: Changed | None
    """The last change: who, when and why."""


class MergeObserved(_View):
    """What is committed, over all lanes."""

    state: State
    """The worst of the lanes' states."""
    reason: str | None
    """Why it is not running, and what would end it."""
    stable: Time | None
    """How far every lane has come: what lies before is final. Null: one of them has come nowhere yet."""
    may_die: int
    """How many of the joined inputs may die now without a gap: the smallest over the lanes."""
    divergences: int
    lanes: list[LaneStatus]


class InputObserved(_View):
    """What is committed of an input, over all lanes."""

    membership: Membership
    """The worst over the lanes."""
    conditions: list[Condition]
    """All that hold in some lane."""
    reason: str | None
    stable: Time | None
    lag_ms: int | None
    """The largest over the lanes."""
    lanes: list[InputStatus]


class MergeSummary(_View):
    """A merge in a list: what is wanted of it."""

    name: str
    desired: MergeDesired


class MergeView(_View):
    """A merge: what is wanted, and what is."""

    name: str
    desired: MergeDesired
    observed: MergeObserved


class InputView(_View):
    """An input: what is wanted, and what is."""

    merge: str
    name: str
    desired: InputDesired
    observed: InputObserved


class MergePage(_View):
    """Some merges, by name."""

    items: list[MergeSummary]
    next: str | None
    """Give it as `after` to go on; null: this was the last page."""


class InputPage(_View):
    """Some inputs, by name."""

    items: list[InputView]
    next: str | None
    """Give it as `after` to go on; null: this was the last page."""


class DivergencePage(_View):
    """Samples of contradictions; they are the last ones, not all."""

    count: int
    """How many there were in all."""
    items: list[DivergenceView]
    next: int | None
    """Give it as `after` to go on; null: this was the last page."""


class ValidateRequest(_View):
    """A merge with its inputs, to be checked and not to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "hot_items",
                    "definition": {"partitions": 4},
                    "inputs": {"r1": {"topic": "hot_items.replica.r1"}},
                }
            ]
        },
    )

    name: Id
    definition: MergeDefinition
    inputs: Annotated[dict[Id, InputDefinition], Field(max_length=100)] = {}


class PlannedTopicView(TopicView):
    """A topic of a merge that may be made."""

    exists: bool
    """False: it would be made, or has to be, where `create_topics` is false."""


class ProblemView(_View):
    """What stands in the way."""

    code: str
    """As of the refusal that the same request would get."""
    detail: str


class Validation(_View):
    """What would come of it."""

    valid: bool
    algorithm: Algorithm
    reason: str
    topics: list[PlannedTopicView]
    changes: list[str]
    """What would change, in words; empty: it is all there."""
    problems: list[ProblemView]


def topic_views(name: str, definition: MergeDefinition) -> list[TopicView]:
    """Show the topics that a merge owns."""
    return [
        TopicView(role=role, name=spec.name, partitions=spec.partitions, config=spec.config)
        for role, spec in owned_topics(name, definition)
    ]


def planned_view(planned: PlannedTopic) -> PlannedTopicView:
    """Show a topic, and whether it is there."""
    role, spec = planned.topic
    exists = planned.found is not None
    return PlannedTopicView(role=role, name=spec.name, partitions=spec.partitions, config=spec.config, exists=exists)


def desired_view(name: str, desired: Desired) -> MergeDesired:
    """Show what is wanted of a merge."""
    return MergeDesired(
        definition=desired.definition,
        algorithm=desired.algorithm,
        reason=desired.reason,
        origin=desired.origin,
        origin_fixed=desired.origin_fixed,
        feed=desired.feed,
        inputs={each: _input_desired(attachment) for each, attachment in sorted(desired.inputs.items())},
        former_topics=[*desired.former_topics],
        topics=topic_views(name, desired.definition),
        changed=desired.changed,
    )


def merge_view(name: str, desired: Desired, records: list[LaneRecord | None], now_ms: int) -> MergeView:
    """Show a merge by what is wanted and what its lanes have committed."""
    lanes = [lane_status(record, desired, now_ms=now_ms) for record in records]
    state, reason = _worst(lanes)
    stables = [lane.stable for lane in lanes]
    observed = MergeObserved(
        state=state,
        reason=reason,
        stable=_least(stables),
        may_die=min((lane.may_die for lane in lanes), default=0),
        divergences=sum(lane.divergences for lane in lanes),
        lanes=lanes,
    )
    return MergeView(name=name, desired=desired_view(name, desired), observed=observed)


def input_view(merge: str, name: str, desired: Desired, lanes: list[LaneStatus]) -> InputView:
    """Show an input by what is wanted and what the lanes have committed."""
    unseen = InputStatus(membership="joining", reason="the lane has not seen it yet")
    seen = [lane.inputs.get(name, unseen) for lane in lanes]
    return InputView(
        merge=merge, name=name, desired=_input_desired(desired.inputs[name]), observed=_input_observed(seen)
    )


def _input_desired(attachment: Attachment) -> InputDesired:
    return InputDesired(
        definition=attachment.definition,
        attachment=attachment.attachment,
        paused=attachment.paused,
        fast_forward=attachment.fast_forward,
        release=attachment.release,
    )


def _input_observed(lanes: list[InputStatus]) -> InputObserved:
    order: list[Membership] = ["gap", "leaving", "joining", "joined"]
    memberships = [lane.membership for lane in lanes]
    worst: Membership = next((each for each in order if each in memberships), "joining")
    conditions: list[Condition] = ["lagging", "silent", "paused", "quarantined"]
    return InputObserved(
        membership=worst,
        conditions=[each for each in conditions if any(each in lane.conditions for lane in lanes)],
        reason=next((lane.reason for lane in lanes if lane.membership == worst and lane.reason), None),
        stable=_least([lane.stable for lane in lanes]),
        lag_ms=max((lane.lag_ms for lane in lanes if lane.lag_ms is not None), default=None),
        lanes=lanes,
    )


def _worst(lanes: list[LaneStatus]) -> tuple[State, str | None]:
    order: list[State] = ["stalled", "recovering", "running"]
    for state in order:
        for number, lane in enumerate(lanes):
            if lane.state == state:
                where = f"lane {number}: " if lane.reason and len(lanes) > 1 else ""
                return state, where + lane.reason if lane.reason else None
    return "recovering", "nothing is committed yet"


def _least(stables: list[int | None]) -> int | None:
    reached = [stable for stable in stables if stable is not None]
    return min(reached) if reached and len(reached) == len(stables) else None


def divergence_page(records: list[LaneRecord | None], *, limit: int, after: int) -> DivergencePage:
    """Show samples of contradictions, lane by lane."""
    found = [
        DivergenceView(lane=lane, payload=each.payload, vs=each.vs, claims=each.claims, odd_one_out=each.odd)
        for lane, record in enumerate(records)
        if record is not None
        for each in record.samples
    ]
    count = sum(record.divergences for record in records if record is not None)
    end = after + limit
    return DivergencePage(count=count, items=found[after:end], next=end if end < len(found) else None)
