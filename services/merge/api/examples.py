"""The examples of the OpenAPI document, made by the very functions that make the answers."""

from typing import Any, Final

from lmerge.kafka import TopicDescription
from services.merge import desired as decide
from services.merge.api.checks import PlannedTopic
from services.merge.api.views import (
    InputPage,
    MergePage,
    MergeSummary,
    Validation,
    desired_view,
    divergence_page,
    input_view,
    merge_view,
    planned_view,
)
from services.merge.definitions import Changed, Desired, FeedbackDefinition, InputDefinition, MergeDefinition
from services.merge.lane_record import Counts, InputRecord, LaneRecord, Sample
from services.merge.status import lane_status
from services.merge.topics import owned_topics

_NAME: Final = "hot_items"
_NOW: Final = 1_700_000_600_000
_DEFINITION: Final = MergeDefinition(partitions=1, feedback=FeedbackDefinition(lag_ms=60_000))


def _desired() -> Desired:
    desired = decide.put_merge(None, _NAME, _DEFINITION, lambda: "c0ffee")
    for name in ("r1", "r2"):
        definition = InputDefinition(topic=f"{_NAME}.replica.{name}")
        desired = decide.put_input(desired, _NAME, name, definition, lambda name=name: f"{name}-1")  # type: ignore[misc]
    changed = Changed(by="ops", at_ms=1_700_000_000_000, why="ticket 4711", what="attach input r2")
    return desired.model_copy(update={"origin_fixed": True, "changed": changed})


def _record() -> LaneRecord:
    def taken(name: str, *, stable: int) -> InputRecord:
        return InputRecord(
            attachment=f"{name}-1",
            topic=f"{_NAME}.replica.{name}",
            position=52_110,
            start=0,
            safe=52_000,
            own_stable=stable,
            joined=True,
            incarnation=1,
            plan="final",
            heard_at_ms=_NOW - 40,
            counts=Counts(inserts=50_000, stables=2_000, dropped={"repeated": 49_000}),
        )

    sample = Sample(payload='{"auction":7}', vs=1_700_000_540_000, claims={"r1": "[…0000, …9000)", "r2": "nothing"})
    return LaneRecord(
        v=1,
        batch=1_204,
        at_ms=_NOW - 20,
        owner="merge-0",
        max_stable=1_700_000_590_000,
        leader="r1",
        safe_at_ms=_NOW - 12_000,
        nodes=310,
        bytes=144_150,
        divergences=1,
        samples=(sample,),
        inputs={"r1": taken("r1", stable=1_700_000_590_000), "r2": taken("r2", stable=1_700_000_580_000)},
    )


def merge() -> Any:
    """Show a merge."""
    return merge_view(_NAME, _desired(), [_record()], _NOW).model_dump(mode="json")


def merge_page() -> Any:
    """Show a list of merges."""
    item = MergeSummary(name=_NAME, desired=desired_view(_NAME, _desired()))
    return MergePage(items=[item], next=None).model_dump(mode="json")


def attached() -> Any:
    """Show an input."""
    lanes = [lane_status(_record(), _desired(), now_ms=_NOW)]
    return input_view(_NAME, "r2", _desired(), lanes).model_dump(mode="json")


def input_page() -> Any:
    """Show a list of inputs."""
    lanes = [lane_status(_record(), _desired(), now_ms=_NOW)]
    return InputPage(items=[input_view(_NAME, "r1", _desired(), lanes)], next="r1").model_dump(mode="json")


def divergences() -> Any:
    """Show samples of contradictions."""
    return divergence_page([_record()], limit=100, after=0).model_dump(mode="json")


def validation() -> Any:
    """Show what a validation says."""
    merged, *others = owned_topics(_NAME, _DEFINITION)
    plan = [
        PlannedTopic(merged, TopicDescription(merged.spec.name, "id", 1, {})),
        *(PlannedTopic(each, None) for each in others),
    ]
    algorithm, reason = decide.resolve(_DEFINITION)
    return Validation(
        valid=True,
        algorithm=algorithm,
        reason=reason,
        topics=[planned_view(each) for each in plan],
        changes=[f"define merge {_NAME} ({algorithm}, 1 partitions)"],
        problems=[],
    ).model_dump(mode="json")
