"""The application: the guard around the calls."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.merge.api.guard import Guard, Limits
from services.merge.api.health import health
from services.merge.api.inputs import inputs
from services.merge.api.merges import merges
from services.merge.api.problems import CODES, FieldProblem, Problem, add_handlers, defect
from services.merge.api.seam import Parts
from services.merge.tokens import Tokens

VERSION: Final = "1"

_DESCRIPTION: Final = """\
Define merges, attach and detach their inputs, and see what is wanted and what is, side by side.

Every call under /v1 needs `Authorization: Bearer …` with a token of scope `read` (GET, `:validate`) or `admin` (all).
PUT is idempotent: 201 when something was made, 200 when it was there already. A change is durable when the call
returns, and in force when `observed` shows it. Lists have pages: `?limit=&after=`, and `next` in the answer.

What is refused is `application/problem+json` (RFC 9457) with a stable `code`:

| code | status | meaning |
|---|---|---|
"""


def make_app(parts: Parts, tokens: Tokens, limits: Limits | None = None) -> FastAPI:
    """Build the application around the parts of the service."""
    app = FastAPI(title="LMerge", version=VERSION, docs_url="/docs", redoc_url=None, redirect_slashes=False)
    for calls in (merges(parts), inputs(parts), health(parts)):
        app.include_router(calls)
    add_handlers(app)
    app.add_middleware(_Apology)
    app.add_middleware(Guard, tokens=tokens, limits=limits or Limits())
    app.openapi = lambda: document(app)  # type: ignore[method-assign]  # FastAPI's own way to change the document
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document."""
    if app.openapi_schema is None:
        codes = "".join(f"| `{code}` | {status} | {meaning} |\n" for code, (status, meaning) in CODES.items())
        found = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION + codes, routes=app.routes)
        schemas = found["components"]["schemas"]
        for model in (FieldProblem, Problem):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schema.pop("$defs", None)
            schemas[model.__name__] = schema
        app.openapi_schema = found
    return app.openapi_schema


class _Apology:
    """Answers where the service is at fault; Starlette's own answer would write the error's text to the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:  # noqa: BLE001  # the outermost frame of a request
            response = defect(scope, error)
            if not begun:
                await response(scope, receive, send)
