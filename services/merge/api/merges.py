"""The calls on merges."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from lmerge.errors import LMergeError
from services.merge import desired as decide
from services.merge.api import examples
from services.merge.api.calls import After, Audited, Limit, PathId, answer, known, new_id, page, records, router
from services.merge.api.checks import (
    PlannedTopic,
    input_problems,
    merge_problems,
    plan_topics,
    refuse_first,
)
from services.merge.api.problems import code_of, documented
from services.merge.api.seam import Parts
from services.merge.api.views import (
    DivergencePage,
    MergePage,
    MergeSummary,
    MergeView,
    ProblemView,
    ValidateRequest,
    Validation,
    desired_view,
    divergence_page,
    merge_view,
    planned_view,
)
from services.merge.definitions import Desired, MergeDefinition
from services.merge.topics import taken_topics


def merges(parts: Parts) -> APIRouter:
    """Make the calls on merges."""
    calls = router("merges")

    def view(name: str, desired: Desired) -> MergeView:
        return merge_view(name, desired, records(parts, name, desired), parts.now_ms())

    @calls.get("/merges", responses={200: answer(examples.merge_page(), "Some merges.")})
    def list_merges(limit: Limit = 100, after: After = "") -> MergePage:
        """List the merges with what is wanted of them."""
        desired = parts.control.desired
        names, following = page(desired, limit=limit, after=after)
        items = [MergeSummary(name=name, desired=desired_view(name, desired[name])) for name in names]
        return MergePage(items=items, next=following)

    @calls.post(
        "/merges:validate",
        responses={200: answer(examples.validation(), "What would come of it."), **documented("malformed")},
    )
    def validate_merge(wanted: ValidateRequest) -> Validation:
        """Check a merge with its inputs, as PUT would; nothing is done. A token of scope read is enough."""
        return _validate(parts, wanted)

    @calls.put(
        "/merges/{merge}",
        responses={
            200: answer(examples.merge(), "It was defined like this already; nothing is changed."),
            201: {"model": MergeView, **answer(examples.merge(), "It is defined now.")},
            **documented(
                "malformed", "conflict", "missing_topic", "wrong_partitions", "topic_taken", "refused_by_kafka"
            ),
        },
    )
    def put_merge(merge: PathId, definition: MergeDefinition, audit: Audited, response: Response) -> MergeView:
        """Define a merge. To define it again in the same way changes nothing; in another way is a conflict."""
        now = parts.control.desired
        if merge not in now:
            refuse_first(merge_problems(merge, definition, plan_topics(parts.topics, merge, definition), now))

        def decision(now: Desired | None) -> Desired:
            response.status_code = 201 if now is None else 200
            return _defined(parts, now, merge, definition)

        desired = parts.control.change(merge, decision, by=audit.by, why=audit.why, what=f"define merge {merge}")
        assert desired is not None
        return view(merge, desired)

    @calls.get("/merges/{merge}", responses={200: answer(examples.merge(), "What is wanted, and what is.")})
    def get_merge(merge: PathId) -> MergeView:
        """Show a merge: what is wanted, and what is."""
        return view(merge, known(parts, merge))

    @calls.delete("/merges/{merge}", status_code=204, responses={204: {"description": "It is gone."}})
    def delete_merge(merge: PathId, audit: Audited) -> None:
        """Remove a merge with its inputs. Its topics stay."""
        parts.control.change(
            merge,
            lambda now: decide.delete_merge(now, merge),
            by=audit.by,
            why=audit.why,
            what=f"remove merge {merge}",
        )

    @calls.get(
        "/merges/{merge}/divergences", responses={200: answer(examples.divergences(), "Samples, the last ones kept.")}
    )
    def list_divergences(
        merge: PathId,
        limit: Limit = 100,
        after: Annotated[int, Query(ge=0, le=2**31, description="`next` of the page before.")] = 0,
    ) -> DivergencePage:
        """Show where inputs contradicted each other: how often, and samples of it."""
        return divergence_page(records(parts, merge, known(parts, merge)), limit=limit, after=after)

    return calls


def _defined(parts: Parts, now: Desired | None, merge: str, definition: MergeDefinition) -> Desired:
    """Decide on a definition, in the order of all changes: two merges that want one topic do not both get it."""
    if now is None:
        refuse_first(taken_topics(merge, definition, parts.control.desired))
    return decide.put_merge(now, merge, definition, new_id)


def _validate(parts: Parts, wanted: ValidateRequest) -> Validation:
    now = parts.control.desired
    name, definition = wanted.name, wanted.definition
    algorithm, reason = decide.resolve(definition)
    changes: list[str] = []
    problems: list[LMergeError] = []
    plan: list[PlannedTopic] = plan_topics(parts.topics, name, definition)
    folded = now.get(name)
    if folded is None:
        changes.append(f"define merge {name} ({algorithm}, {definition.partitions} partitions)")
        problems += merge_problems(name, definition, plan, now)
    try:
        folded = decide.put_merge(folded, name, definition, new_id)
    except LMergeError as error:
        problems.append(error)
    for each, input_definition in wanted.inputs.items():
        if folded is None or each not in folded.inputs:
            changes.append(f"attach input {each} (topic {input_definition.topic})")
            problems += input_problems(parts.topics, name, definition.partitions, input_definition)
        try:
            folded = decide.put_input(folded, name, each, input_definition, new_id)
        except LMergeError as error:
            problems.append(error)
    return Validation(
        valid=not problems,
        algorithm=algorithm,
        reason=reason,
        topics=[planned_view(each) for each in plan],
        changes=changes,
        problems=[ProblemView(code=code_of(error), detail=str(error)) for error in problems],
    )
