"""The calls on the inputs of a merge."""

from typing import Any, Final

from fastapi import APIRouter, Response
from pydantic import ConfigDict

from services.merge import desired as decide
from services.merge.api import examples
from services.merge.api.calls import (
    After,
    Audit,
    Audited,
    Limit,
    PathId,
    answer,
    known,
    known_input,
    new_id,
    page,
    records,
    router,
)
from services.merge.api.checks import committed_everywhere, input_problems, refuse_first, require_quarantined
from services.merge.api.problems import documented
from services.merge.api.seam import Parts
from services.merge.api.views import InputPage, InputView, input_view
from services.merge.definitions import Desired, InputDefinition, Instant, Model
from services.merge.status import LaneStatus, lane_status

_SHOWN: Final[dict[int | str, dict[str, Any]]] = {200: answer(examples.attached(), "What is wanted, and what is.")}


class FastForwardOrder(Model):
    """Tell an input to skip ahead: nothing that ends before `before` matters any more."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"before": 1_700_000_000_000}]})

    before: Instant


class ReleaseOrder(Model):
    """Lift a quarantine."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"skip_record": True}]})

    skip_record: bool = False
    """True: read the incarnation again without the record that broke it. False: wait for its next hello."""


class _Inputs:
    """What the calls on inputs do; `inputs` gives them their paths."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def show(self, merge: str, name: str) -> InputView:
        """Show one input."""
        desired, _ = known_input(self._parts, merge, name)
        return input_view(merge, name, desired, self._lanes(merge, desired))

    def show_page(self, merge: str, *, limit: int, after: str) -> InputPage:
        """Show some inputs; the lanes are read once for all of them."""
        desired = known(self._parts, merge)
        names, following = page(desired.inputs, limit=limit, after=after)
        lanes = self._lanes(merge, desired) if names else []
        return InputPage(items=[input_view(merge, name, desired, lanes) for name in names], next=following)

    def _lanes(self, merge: str, desired: Desired) -> list[LaneStatus]:
        now_ms = self._parts.now_ms()
        return [lane_status(record, desired, now_ms=now_ms) for record in records(self._parts, merge, desired)]

    def attach(self, merge: str, name: str, definition: InputDefinition, audit: Audit) -> bool:
        """Attach an input; tell whether it is new."""
        desired = known(self._parts, merge)
        if name not in desired.inputs:
            partitions = desired.definition.partitions
            refuse_first(input_problems(self._parts.topics, merge, partitions, definition))
        made = False

        def decision(now: Desired | None) -> Desired:
            nonlocal made
            made = now is not None and name not in now.inputs
            return decide.put_input(now, merge, name, definition, new_id)

        what = f"attach input {name} (topic {definition.topic})"
        self._parts.control.change(merge, decision, by=audit.by, why=audit.why, what=what)
        return made

    def detach(self, merge: str, name: str, audit: Audit) -> None:
        """Detach an input."""
        self._parts.control.change(
            merge,
            lambda now: decide.delete_input(now, merge, name),
            by=audit.by,
            why=audit.why,
            what=f"detach input {name}",
        )

    def pause(self, merge: str, name: str, audit: Audit, *, paused: bool) -> InputView:
        """Hold an input, or let it go on."""
        self._parts.control.change(
            merge,
            lambda now: decide.set_paused(now, merge, name, paused=paused),
            by=audit.by,
            why=audit.why,
            what=f"{'pause' if paused else 'resume'} input {name}",
        )
        return self.show(merge, name)

    def fast_forward(self, merge: str, name: str, before: int, audit: Audit) -> InputView:
        """Tell an input to skip ahead, no further than every lane has committed."""
        # What is committed now stays so: a merged stable never goes back.
        committed = committed_everywhere(records(self._parts, merge, known(self._parts, merge)))
        self._parts.control.change(
            merge,
            lambda now: decide.fast_forward(now, merge, name, before, committed=committed, new_id=new_id),
            by=audit.by,
            why=audit.why,
            what=f"fast-forward input {name} to {before}",
        )
        return self.show(merge, name)

    def release(self, merge: str, name: str, order: ReleaseOrder, audit: Audit) -> InputView:
        """Lift a quarantine."""
        desired, attachment = known_input(self._parts, merge, name)
        require_quarantined(merge, name, attachment, records(self._parts, merge, desired))
        how = "without the record that broke it" if order.skip_record else "from its next hello on"
        self._parts.control.change(
            merge,
            lambda now: decide.release(now, merge, name, skip_record=order.skip_record, new_id=new_id),
            by=audit.by,
            why=audit.why,
            what=f"release input {name}, {how}",
        )
        return self.show(merge, name)


def inputs(parts: Parts) -> APIRouter:
    """Make the calls on inputs."""
    calls = router("inputs")
    do = _Inputs(parts)
    path = "/merges/{merge}/inputs/{name}"

    @calls.get("/merges/{merge}/inputs", responses={200: answer(examples.input_page(), "Some inputs.")})
    def list_inputs(merge: PathId, limit: Limit = 100, after: After = "") -> InputPage:
        """List the inputs of a merge."""
        return do.show_page(merge, limit=limit, after=after)

    @calls.put(
        path,
        responses={
            200: answer(examples.attached(), "It was attached like this already; nothing is changed."),
            201: {"model": InputView, **answer(examples.attached(), "It is attached now.")},
            **documented(
                *("malformed", "conflict", "too_weak", "too_many_inputs"),
                *("missing_topic", "wrong_partitions", "refused_by_kafka"),
            ),
        },
    )
    def put_input(
        merge: PathId, name: PathId, definition: InputDefinition, audit: Audited, response: Response
    ) -> InputView:
        """Attach an input. To attach it again in the same way changes nothing; in another way is a conflict."""
        made = do.attach(merge, name, definition, audit)
        response.status_code = 201 if made else 200
        return do.show(merge, name)

    @calls.get(path, responses=_SHOWN)
    def get_input(merge: PathId, name: PathId) -> InputView:
        """Show an input: what is wanted, and what each lane has of it."""
        return do.show(merge, name)

    @calls.delete(path, status_code=204, responses={204: {"description": "It is detached."}})
    def delete_input(merge: PathId, name: PathId, audit: Audited) -> None:
        """Detach an input. What it has said stays."""
        do.detach(merge, name, audit)

    @calls.post(f"{path}:pause", responses=_SHOWN)
    def pause_input(merge: PathId, name: PathId, audit: Audited) -> InputView:
        """Hold an input: it is not read until it is resumed. To pause it twice changes nothing."""
        return do.pause(merge, name, audit, paused=True)

    @calls.post(f"{path}:resume", responses=_SHOWN)
    def resume_input(merge: PathId, name: PathId, audit: Audited) -> InputView:
        """Let an input go on that was paused."""
        return do.pause(merge, name, audit, paused=False)

    @calls.post(f"{path}:fast-forward", responses={**_SHOWN, **documented("malformed", "too_far", "refused_by_kafka")})
    def fast_forward_input(merge: PathId, name: PathId, order: FastForwardOrder, audit: Audited) -> InputView:
        """Tell an input to skip ahead; at most to what every lane has committed (`observed.stable` of the merge)."""
        return do.fast_forward(merge, name, order.before, audit)

    @calls.post(
        f"{path}:release", responses={**_SHOWN, **documented("malformed", "not_quarantined", "refused_by_kafka")}
    )
    def release_input(merge: PathId, name: PathId, audit: Audited, order: ReleaseOrder | None = None) -> InputView:
        """Lift the quarantine of an input."""
        return do.release(merge, name, order or ReleaseOrder(), audit)

    return calls
