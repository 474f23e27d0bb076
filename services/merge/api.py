"""The admin API: desired state in, desired and observed state out. Errors are problem+json with a stable `code`."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from lmerge.errors import LMergeError, UsageError
from lmerge.kafka import BrokerError, KafkaSettings, MissingTopic, TopicAdmin
from services.merge import desired as decide
from services.merge.control import Control
from services.merge.definitions import ID_PATTERN, Desired, InputDefinition, MergeDefinition
from services.merge.desired import Conflict, NotFound
from services.merge.loop import MergeLoop
from services.merge.metrics import Metrics
from services.merge.status import InputStatus, LaneStatus
from services.merge.tokens import Scope, Tokens

MAX_BODY_BYTES: Final = 64 * 1024
"""A definition is a few hundred bytes."""

_Id = Annotated[str, Path(pattern=ID_PATTERN)]
_STATUS: Final[dict[type[LMergeError], tuple[int, str]]] = {
    NotFound: (404, "not_found"),
    Conflict: (409, "conflict"),
    UsageError: (422, "invalid"),
    MissingTopic: (409, "missing_topic"),
    BrokerError: (503, "broker_unavailable"),
}


class MergeView(BaseModel):
    """A merge: what is wanted, and what is."""

    name: str
    definition: MergeDefinition
    origin: int | None
    inputs: dict[str, InputDefinition]
    lanes: list[LaneStatus]


class InputView(BaseModel):
    """An input: what is wanted, and what each lane has of it."""

    name: str
    definition: InputDefinition
    lanes: list[InputStatus | None]


def _problem(status: int, code: str, detail: str) -> JSONResponse:
    body = {"type": "about:blank", "title": code.replace("_", " "), "status": status, "code": code, "detail": detail}
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def make_app(settings: KafkaSettings, control: Control, loop: MergeLoop, metrics: Metrics, tokens: Tokens) -> FastAPI:
    """Build the application around the service's parts."""
    app = FastAPI(title="LMerge", version="1", docs_url="/docs", redoc_url=None)
    _add_errors(app)
    _add_guard(app, tokens)
    _add_merges(app, control, loop)
    _add_inputs(app, settings, control, loop)
    _add_health(app, loop, metrics)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(LMergeError)
    async def refuse(_: Request, error: LMergeError) -> JSONResponse:
        status, code = next((known for kind, known in _STATUS.items() if isinstance(error, kind)), (500, "internal"))
        return _problem(status, code, str(error))

    @app.exception_handler(RequestValidationError)
    async def refuse_body(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return _problem(422, "invalid", f"{where}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def refuse_request(_: Request, error: HTTPException) -> JSONResponse:
        return _problem(error.status_code, "http", str(error.detail))


def _add_guard(app: FastAPI, tokens: Tokens) -> None:
    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if not request.url.path.startswith("/v1"):
            return await call_next(request)
        if int(request.headers.get("content-length") or 0) > MAX_BODY_BYTES:
            return _problem(413, "too_large", f"a body may have {MAX_BODY_BYTES} bytes")
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        scope: Scope | None = tokens.scope_of(token) if kind.lower() == "bearer" else None
        if scope is None:
            return _problem(401, "unauthenticated", "give a known token: Authorization: Bearer …")
        if scope == "read" and request.method != "GET":
            return _problem(403, "forbidden", "this token may only read")
        return await call_next(request)


def _add_merges(app: FastAPI, control: Control, loop: MergeLoop) -> None:
    def view(name: str, desired: Desired) -> MergeView:
        waiting = LaneStatus(state="stalled", reason="no input has said anything yet: attach one")
        lanes = loop.status.get(name) or [waiting] * desired.definition.partitions
        inputs = {each: attachment.definition for each, attachment in desired.inputs.items()}
        return MergeView(name=name, definition=desired.definition, origin=desired.origin, inputs=inputs, lanes=lanes)

    @app.get("/v1/merges")
    def list_merges() -> list[MergeView]:
        """List all merges."""
        return [view(name, desired) for name, desired in sorted(control.desired.items())]

    @app.put("/v1/merges/{name}")
    def put_merge(name: _Id, definition: MergeDefinition) -> MergeView:
        """Define a merge; to define it again in the same way changes nothing."""
        desired = control.change(name, lambda now: decide.put_merge(now, name, definition))
        assert desired is not None
        return view(name, desired)

    @app.get("/v1/merges/{name}")
    def get_merge(name: _Id) -> MergeView:
        """Show a merge: what is wanted, and what is."""
        return view(name, _known(control.desired, name))

    @app.delete("/v1/merges/{name}", status_code=204)
    def delete_merge(name: _Id) -> None:
        """Remove a merge. Its topics stay."""
        _known(control.desired, name)
        control.change(name, lambda _: None)


def _add_inputs(app: FastAPI, settings: KafkaSettings, control: Control, loop: MergeLoop) -> None:
    def view(merge: str, name: str) -> InputView:
        desired = _known(control.desired, merge)
        if name not in desired.inputs:
            raise NotFound(f"merge {merge} has no input {name}")
        lanes = [lane.inputs.get(name) for lane in loop.status.get(merge, [])]
        return InputView(name=name, definition=desired.inputs[name].definition, lanes=lanes)

    @app.get("/v1/merges/{merge}/inputs")
    def list_inputs(merge: _Id) -> list[InputView]:
        """List the inputs of a merge."""
        return [view(merge, name) for name in sorted(_known(control.desired, merge).inputs)]

    @app.put("/v1/merges/{merge}/inputs/{name}")
    def put_input(merge: _Id, name: _Id, definition: InputDefinition) -> InputView:
        """Attach an input."""
        partitions = _known(control.desired, merge).definition.partitions
        has = TopicAdmin(settings).describe(definition.topic)[definition.topic].partitions
        if has != partitions:
            raise Conflict(
                f"topic {definition.topic} has {has} partitions, merge {merge} {partitions}: they must agree"
            )
        control.change(merge, lambda now: decide.put_input(now, merge, name, definition, lambda: uuid.uuid4().hex))
        return view(merge, name)

    @app.get("/v1/merges/{merge}/inputs/{name}")
    def get_input(merge: _Id, name: _Id) -> InputView:
        """Show an input."""
        return view(merge, name)

    @app.delete("/v1/merges/{merge}/inputs/{name}", status_code=204)
    def delete_input(merge: _Id, name: _Id) -> None:
        """Detach an input."""
        control.change(merge, lambda now: decide.delete_input(now, merge, name))


def _add_health(app: FastAPI, loop: MergeLoop, metrics: Metrics) -> None:
    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        """Tell that the process is alive."""
        return {"status": "alive"}

    @app.get("/readyz")
    def readyz() -> Response:
        """Tell whether the loop runs."""
        return Response("ready\n") if loop.is_running else _problem(503, "not_ready", "the loop has not begun")

    @app.get("/metrics")
    def show_metrics() -> Response:
        """Show the metrics to Prometheus."""
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")


def _known(desired: Mapping[str, Desired], name: str) -> Desired:
    if name not in desired:
        raise NotFound(f"there is no merge {name}")
    return desired[name]
