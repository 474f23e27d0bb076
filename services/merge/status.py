"""What the service shows of its lanes, decided from committed lane records alone (E21), by REST and metrics alike."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from lmerge import INFINITY
from services.merge.definitions import Desired
from services.merge.lane_record import Counts, InputRecord, LaneRecord, Seek

Membership = Literal["joining", "joined", "gap", "leaving"]
Condition = Literal["lagging", "silent", "paused", "quarantined"]

Time = Annotated[
    int,
    PlainSerializer(lambda t: "+inf" if t == INFINITY else t, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "+inf"}]}, mode="serialization"),
]
"""Application time in milliseconds; in JSON a stable that closes the stream is the string "+inf"."""

SILENT_MS = 30_000
"""An input of which nothing came for so long is called silent, if another one spoke meanwhile."""

DEAD_MS = 15_000
"""A lane commits every few seconds even if nothing happens; one that did not for so long has no owner."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class CountsView(_Model):
    """Elements taken of an input since it was attached, by kind; those without effect by reason."""

    inserts: int
    adjusts: int
    stables: int
    dropped: dict[str, int]


class InputStatus(_Model):
    """One input in one lane, as committed."""

    membership: Membership
    conditions: list[Condition] = []
    incarnation: int = 0
    plan: str = ""
    joins_at: Time | None = None
    stable: Time | None = None
    lag_ms: int | None = None
    """How far its stable is behind the merged one; null where one of them has none."""
    position: int = 0
    reason: str | None = None
    """Why it is stopped or waits, and what would end it."""
    fast_forwarded_to: Time | None = None
    skipped_to: Time | None = None
    skipped_cuts: int = 0
    skipped_rows: int = 0
    """What its incarnation did not have to read, since it cannot matter any more: cuts, and the most rows
    that can be in them (offsets are counted)."""
    counts: CountsView = CountsView(inserts=0, adjusts=0, stables=0, dropped={})


class DivergenceView(_Model):
    """One contradiction between inputs."""

    lane: int
    payload: str
    vs: int
    claims: dict[str, str]
    """What each input says about the event."""
    odd_one_out: str | None
    """The input that stands alone against a majority, if there is one."""


class LaneStatus(_Model):
    """One lane, as committed."""

    state: Literal["running", "recovering", "stalled"]
    reason: str | None = None
    """Why it is not running, and what would end it."""
    owner: str = ""
    stable: Time | None = None
    leader: str | None = None
    may_die: int = 0
    """How many of the inputs that are joined, and neither silent nor paused, may die now without a gap."""
    live_events: int = 0
    live_bytes: int = 0
    safe_point_age_ms: int = 0
    """How far back a successor has to read: it must stay below the retention of the topics."""
    divergences: int = 0
    inputs: dict[str, InputStatus] = {}


def lane_status(record: LaneRecord | None, desired: Desired, *, now_ms: int) -> LaneStatus:
    """Describe a lane by its last committed record."""
    if record is None:
        return _not_begun(desired)
    if record.merge_id != desired.id:
        return LaneStatus(
            state="stalled",
            reason="its topics hold another merge of this name: delete them, or define it with other topics",
        )
    inputs = {name: _input_status(record, each, name, desired, now_ms) for name, each in record.inputs.items()}
    for name in desired.inputs:
        inputs.setdefault(name, InputStatus(membership="joining", reason="the lane has not seen it yet"))
    # One that is joined and does not speak carries nothing on.
    active = [each for each in inputs.values() if each.membership == "joined" and not _is_still(each)]
    age = now_ms - record.at_ms
    reason = _why_stalled(inputs, active)
    state: Literal["running", "recovering", "stalled"] = "stalled" if reason else "running"
    if age > DEAD_MS:
        state = "recovering"
        reason = f"nobody has committed for {age // 1000} s: a process has to take the lane over; is one alive?"
    return LaneStatus(
        state=state,
        reason=reason,
        owner=record.owner,
        stable=record.max_stable,
        leader=record.leader,
        may_die=max(0, len(active) - 1),
        live_events=record.nodes,
        live_bytes=record.bytes,
        safe_point_age_ms=max(0, record.at_ms - record.safe_at_ms) if record.safe_at_ms else 0,
        divergences=record.divergences,
        inputs=inputs,
    )


def _not_begun(desired: Desired) -> LaneStatus:
    if not desired.inputs:
        return LaneStatus(state="stalled", reason="no input is attached: attach one")
    if not desired.origin_fixed:
        return LaneStatus(state="stalled", reason="no input has said anything yet: start a replica")
    return LaneStatus(state="recovering", reason="nothing is committed yet")


def _why_stalled(inputs: dict[str, InputStatus], active: list[InputStatus]) -> str | None:
    if active:
        return None
    if not inputs:
        return "no input is attached: attach one"
    if any(each.membership == "joined" for each in inputs.values()):
        return "all joined inputs are paused or silent: resume or restart one"
    return "no input is joined: attach one that is complete from the merged stable on, or wait for one to join"


def _is_still(each: InputStatus) -> bool:
    return "silent" in each.conditions or "paused" in each.conditions


def _input_status(record: LaneRecord, each: InputRecord, name: str, desired: Desired, now_ms: int) -> InputStatus:
    lag = _lag(record.max_stable, each.own_stable)
    return InputStatus(
        membership=_membership(each, name, desired),
        conditions=_conditions(record, each, lag, desired, now_ms),
        incarnation=each.incarnation,
        plan=each.plan,
        joins_at=each.joins_at,
        stable=each.own_stable,
        lag_ms=lag,
        position=each.position,
        reason=_why_not_joined(record, each),
        fast_forwarded_to=each.signalled,
        skipped_to=each.skipped_to,
        skipped_cuts=each.skipped_cuts,
        skipped_rows=each.skipped_rows,
        counts=_counts(each.counts),
    )


def _membership(each: InputRecord, name: str, desired: Desired) -> Membership:
    wanted = desired.inputs.get(name)
    if wanted is None or wanted.attachment != each.attachment:
        return "leaving"
    if each.stop is not None:
        return "gap"
    if each.seek is not None:
        return "gap" if each.seek.begin is None and each.seek.found is None else "joining"
    return "joined" if each.joined else "joining"


def _conditions(
    record: LaneRecord, each: InputRecord, lag: int | None, desired: Desired, now_ms: int
) -> list[Condition]:
    found: list[Condition] = []
    threshold = desired.definition.feedback.lag_ms
    if lag is not None and threshold is not None and lag > threshold:
        found.append("lagging")
    newest = max((other.heard_at_ms for other in record.inputs.values()), default=0)
    if each.heard_at_ms and each.heard_at_ms < newest and now_ms - each.heard_at_ms > SILENT_MS:
        found.append("silent")
    if each.paused:
        found.append("paused")
    if each.stop is not None and each.stop.kind == "quarantined":
        found.append("quarantined")
    return found


def _why_not_joined(record: LaneRecord, each: InputRecord) -> str | None:
    if each.stop is not None:
        way_out = "release it" if each.stop.kind == "quarantined" else "detach it and attach it again"
        return f"{each.stop.reason}; {way_out}"
    if each.seek is not None:
        return _why_sought(each, each.seek)
    if each.joined:
        return None
    if each.joins_at == INFINITY:
        return "its hello is being read"
    reached = max((t for t in (record.max_stable, record.max_vs, record.origin) if t is not None), default=None)
    if each.joins_at is None or (reached is not None and each.joins_at <= reached):
        return "it is being read again"
    return f"the lane has not come to {each.joins_at} yet"


def _why_sought(each: InputRecord, seek: Seek) -> str:
    if each.position < seek.until:
        return f"its newest incarnation is being looked for, up to offset {seek.until}"
    if seek.begin is not None or seek.found is not None:
        return "nothing has come of it yet: start the replica"
    why = f"{seek.why}; " if seek.why else ""
    return f"{why}it waits for a hello: start the replica cold, or attach the topic with joins_at"


def _counts(counts: Counts) -> CountsView:
    return CountsView(
        inserts=counts.inserts, adjusts=counts.adjusts, stables=counts.stables, dropped=dict(counts.dropped)
    )


def _lag(merged: int | None, own: int | None) -> int | None:
    if merged is None or own is None or INFINITY in (merged, own):
        return None
    return max(0, merged - own)
