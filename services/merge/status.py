"""What the service shows of its lanes: made by the loop from committed records, read by REST and metrics."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from lmerge import INFINITY, MINUS_INFINITY
from services.merge.lane_record import LaneRecord


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class InputStatus(_Model):
    """One input in one lane, as committed."""

    membership: Literal["joining", "joined", "gap"]
    incarnation: int
    joins_at: int | None
    stable: int | None
    lag_ms: int | None
    """How far its stable is behind the merged one; null where one of them has none."""
    position: int
    reason: str | None = None


class LaneStatus(_Model):
    """One lane, as committed."""

    state: Literal["running", "recovering", "stalled"]
    reason: str | None = None
    stable: int | None = None
    leader: str | None = None
    may_die: int = 0
    """How many of the joined inputs may die now without a gap."""
    inputs: dict[str, InputStatus] = {}


def lane_status(record: LaneRecord | None) -> LaneStatus:
    """Describe a lane by its last committed record (E21: never by what is not committed)."""
    if record is None:
        return LaneStatus(state="recovering", reason="nothing is committed yet")
    inputs = {name: _input_status(record, name) for name in record.inputs}
    joined = [each for each in inputs.values() if each.membership == "joined"]
    reason = None
    if not inputs:
        reason = "no input is attached: attach one"
    elif not joined:
        reason = "no input is joined: attach one that is complete from the merged stable on, or wait for one to join"
    return LaneStatus(
        state="stalled" if reason else "running",
        reason=reason,
        stable=record.max_stable,
        leader=record.leader,
        may_die=max(0, len(joined) - 1),
        inputs=inputs,
    )


def _input_status(record: LaneRecord, name: str) -> InputStatus:
    each = record.inputs[name]
    reached = max(_or(record.max_stable), _or(record.origin))
    membership: Literal["joining", "joined", "gap"] = "joined" if _or(each.joins_at) <= reached else "joining"
    lag = None
    if (
        record.max_stable is not None
        and each.own_stable is not None
        and INFINITY not in (record.max_stable, each.own_stable)
    ):
        lag = max(0, record.max_stable - each.own_stable)
    return InputStatus(
        membership="gap" if each.verdict else membership,
        incarnation=each.incarnation,
        joins_at=each.joins_at,
        stable=each.own_stable,
        lag_ms=lag,
        position=each.position,
        reason=each.verdict or None,
    )


def _or(t: int | None) -> int:
    return MINUS_INFINITY if t is None else t
