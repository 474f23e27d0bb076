"""What the calls share: who asks and why, pages, a merge that must be there, its lanes' records."""

import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Security
from fastapi.security import HTTPBearer

from lmerge.kafka import MissingTopic
from services.merge.api.problems import documented
from services.merge.api.seam import Parts
from services.merge.definitions import ID_PATTERN, Attachment, Desired
from services.merge.desired import NotFound
from services.merge.lane_record import LaneRecord
from services.merge.tokens import Caller

MAX_REASON: Final = 500
"""Characters of a reason: a sentence or a link to a ticket."""

COMMON: Final = documented(
    *("unauthenticated", "forbidden", "not_found", "too_slow", "too_large", "not_json", "invalid"),
    *("rate_limited", "refused_by_kafka", "internal", "broker_unavailable", "unreadable_state"),
)
"""How any call under /v1 may be refused."""

PathId = Annotated[str, Path(pattern=ID_PATTERN, examples=["hot_items"])]
Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]
After = Annotated[str, Query(max_length=63, description="Go on after this one: `next` of the page before.")]


class Audit(NamedTuple):
    """Who asks for a change, and why."""

    by: str
    why: str


def _audit(
    request: Request,
    x_reason: Annotated[
        str,
        Header(
            max_length=4 * MAX_REASON,
            description=f"Why: kept with the change and shown. At most {MAX_REASON} characters in UTF-8.",
            examples=["r1 is upgraded, ticket 4711"],
        ),
    ] = "",
) -> Audit:
    # Headers are read as Latin-1; people write UTF-8.
    why = x_reason.encode("latin-1", "replace").decode("utf-8", "replace")[:MAX_REASON]
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return Audit(caller.name, why)


Audited = Annotated[Audit, Depends(_audit)]


def router(tag: str) -> APIRouter:
    """Make a router for calls under /v1, which need a token."""
    bearer = HTTPBearer(auto_error=False, description="A token of scope read or admin; the guard looks at it.")
    return APIRouter(prefix="/v1", tags=[tag], responses=COMMON, dependencies=[Security(bearer)])


def answer(example: Any, description: str) -> dict[str, Any]:
    """Document a successful answer by an example."""
    return {"description": description, "content": {"application/json": {"example": example}}}


def new_id() -> str:
    """Make an id that nobody else has."""
    return uuid.uuid4().hex


def known(parts: Parts, merge: str) -> Desired:
    """Return what is wanted of a merge; one that is not known may have been defined through another process just now.

    Raises:
        NotFound: there is no such merge.
    """
    if merge not in parts.control.desired:
        parts.control.follow()
    desired = parts.control.desired.get(merge)
    if desired is None:
        raise NotFound(f"there is no merge {merge}")
    return desired


def known_input(parts: Parts, merge: str, name: str) -> tuple[Desired, Attachment]:
    """Return what is wanted of a merge and of one of its inputs.

    Raises:
        NotFound: there is no such merge or input.
    """
    if name not in known(parts, merge).inputs:
        parts.control.follow()
    desired = known(parts, merge)
    if name not in desired.inputs:
        raise NotFound(f"merge {merge} has no input {name}")
    return desired, desired.inputs[name]


def records(parts: Parts, merge: str, desired: Desired) -> list[LaneRecord | None]:
    """Return what the lanes of a merge have committed."""
    try:
        return parts.lane_records.read(merge, desired)
    except MissingTopic:  # the merge was defined just now
        return [None] * desired.definition.partitions


def page(names: Iterable[str], *, limit: int, after: str) -> tuple[list[str], str | None]:
    """Return the names of one page, and the `next` of it."""
    left = sorted(name for name in names if name > after)
    return left[:limit], left[limit - 1] if len(left) > limit else None
