"""Problems: everything that the API refuses, as problem+json (RFC 9457) with a stable `code`.

`CODES` is the whole list; clients may rely on the codes, never on the texts.
"""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.types import Scope

from lmerge.errors import LMergeError, UsageError
from lmerge.kafka import BrokerError, MissingTopic, Refused, WrongPartitions
from services.log import log
from services.merge.api.checks import NotQuarantined
from services.merge.control_topic import UnreadableControl
from services.merge.desired import Conflict, NotFound, TooFar, TooMany, TooWeak
from services.merge.lane_record import UnreadableRecord
from services.merge.topics import TopicTaken

MEDIA_TYPE: Final = "application/problem+json"

CODES: Final[dict[str, tuple[int, str]]] = {
    "malformed": (400, "the body is no JSON in UTF-8"),
    "unauthenticated": (401, "no token, or none that is known"),
    "forbidden": (403, "the token may only read"),
    "not_found": (404, "there is no merge or input of this name"),
    "no_such_path": (404, "the API has no such path"),
    "method_not_allowed": (405, "the path has other methods"),
    "too_slow": (408, "the body did not come in time"),
    "conflict": (409, "it is there in another form"),
    "too_weak": (409, "the input promises less than the algorithm needs"),
    "too_many_inputs": (409, "the merge has as many inputs as it may have"),
    "missing_topic": (409, "a topic does not exist"),
    "wrong_partitions": (409, "a topic has another number of partitions than the merge"),
    "topic_taken": (409, "a topic belongs to something else"),
    "too_far": (409, "the merge has not come that far in every lane"),
    "not_quarantined": (409, "there is no quarantine to lift"),
    "refused_by_kafka": (409, "the broker does not allow it"),
    "too_large": (413, "the body is too large"),
    "not_json": (415, "a body must be JSON and say so"),
    "invalid": (422, "a field or parameter makes no sense"),
    "rate_limited": (429, "too many requests with this token"),
    "internal": (500, "a defect of the service"),
    "broker_unavailable": (503, "Kafka did not answer"),
    "unreadable_state": (503, "lane records or definitions are of another version"),
    "not_ready": (503, "the service has not begun, or is ending"),
}
"""Every code with its status and what it means."""

_CODE_OF: Final[tuple[tuple[type[LMergeError], str], ...]] = (
    (NotFound, "not_found"),
    (TooWeak, "too_weak"),
    (TooMany, "too_many_inputs"),
    (TooFar, "too_far"),
    (NotQuarantined, "not_quarantined"),
    (TopicTaken, "topic_taken"),
    (Conflict, "conflict"),
    (MissingTopic, "missing_topic"),
    (WrongPartitions, "wrong_partitions"),
    (Refused, "refused_by_kafka"),
    (BrokerError, "broker_unavailable"),
    (UnreadableRecord, "unreadable_state"),
    (UnreadableControl, "unreadable_state"),
    (UsageError, "invalid"),
)
"""From an error to its code; the first that fits."""

_HTTP: Final = {400: "malformed", 404: "no_such_path", 405: "method_not_allowed"}


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str
    problem: str


class Problem(BaseModel):
    """Why a request was refused (RFC 9457). `code` is stable; `detail` is for people and says what to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "there is no merge or input of this name",
                    "status": 404,
                    "code": "not_found",
                    "detail": "there is no merge hot_items",
                    "fields": [],
                }
            ]
        }
    )

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    fields: list[FieldProblem] = []
    """Of code `invalid`: each field that is wrong."""


def code_of(error: LMergeError) -> str:
    """Return the code of an error."""
    return next((code for kind, code in _CODE_OF if isinstance(error, kind)), "internal")


def describe(code: str, detail: str, fields: Sequence[FieldProblem] = ()) -> Problem:
    """Make the problem of a code."""
    status, title = CODES[code]
    return Problem(title=title, status=status, code=code, detail=detail, fields=[*fields])


def refusal(
    code: str, detail: str, fields: Sequence[FieldProblem] = (), headers: dict[str, str] | None = None
) -> JSONResponse:
    """Make the answer to a request that is refused."""
    problem = describe(code, detail, fields)
    return JSONResponse(problem.model_dump(), problem.status, headers, media_type=MEDIA_TYPE)


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI document says about these codes, by status."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status, title = CODES[code]
        response = found.setdefault(status, {"description": "", "content": {MEDIA_TYPE: {"examples": {}}}})
        content = response["content"][MEDIA_TYPE]
        content["schema"] = {"$ref": "#/components/schemas/Problem"}
        content["examples"][code] = {"value": describe(code, f"{title} …").model_dump()}
        response["description"] = "; ".join(filter(None, [response["description"], f"`{code}`: {title}"]))
        if status == 401:
            response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "example": "Bearer"}}
        if status == 429:
            response["headers"] = {
                "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait.", "example": 1}
            }
    return found


def add_handlers(app: FastAPI) -> None:
    """Let the application answer every error with a problem."""

    @app.exception_handler(LMergeError)
    async def refuse(request: Request, error: LMergeError) -> JSONResponse:
        code = code_of(error)
        return refusal(code, str(error)) if code != "internal" else defect(request.scope, error)

    @app.exception_handler(RequestValidationError)
    async def refuse_fields(_: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent is not repeated: it may hold what was meant for another field.
        fields = [
            FieldProblem(field=".".join(str(part) for part in each["loc"]), problem=str(each["msg"]))
            for each in error.errors()
        ]
        detail = "; ".join(f"{each.field}: {each.problem}" for each in fields[:3])
        return refusal("invalid", detail, fields)

    @app.exception_handler(HTTPException)
    async def refuse_request(_: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else None
        return refusal(_HTTP.get(error.status_code, "invalid"), str(error.detail), headers=headers)


def defect(scope: Scope, error: Exception) -> JSONResponse:
    """Apologise for an error that nobody foresaw, and log where it came from."""
    # The text of an unforeseen error may hold anything: it goes to the log without its message, and not to the caller.
    incident = uuid.uuid4().hex[:12]
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    log(
        "error",
        "request failed",
        incident=incident,
        method=scope.get("method"),
        path=scope.get("path"),
        error=type(error).__name__,
        at=places[-5:],
    )
    return refusal("internal", f"this is a defect of the service; its log has more under incident {incident}")
