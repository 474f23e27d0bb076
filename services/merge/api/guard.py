"""The guard before every call under /v1: who calls, how often, and how large the body is.

It is plain ASGI, so that nothing of a body is read before the caller is known, and no more of it than is allowed, also
where no length was announced.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.merge.api.problems import refusal
from services.merge.tokens import Caller, Tokens

VALIDATE: Final = "/v1/merges:validate"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SECURITY: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Limits(NamedTuple):
    """What a caller may ask for."""

    body_bytes: int = 64 * 1024
    """A definition is a few hundred bytes."""
    body_seconds: float = 10.0
    """How long a body may take to come."""
    per_second: float = 50.0
    """Requests per second and token in the long run: a script that attaches a thousand inputs takes 20 s."""
    burst: float = 100.0
    """Requests at once after a pause."""


class Bucket:
    """A token bucket: `burst` requests at once, `per_second` in the long run."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._left = limits.burst
        self._at = now

    def wait(self, now: float) -> float:
        """Take one request; return 0.0, or for how many seconds to wait if there is none left."""
        self._left = min(self._limits.burst, self._left + (now - self._at) * self._limits.per_second)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._limits.per_second
        self._left -= 1.0
        return 0.0


class Guard:
    """Lets through who may pass. The caller is in the request's state as `caller`.

    Args:
        app: what is guarded.
        tokens: who is known.
        limits: what a caller may ask for.
        clock: seconds, as `time.monotonic` has them.
    """

    def __init__(
        self, app: ASGIApp, tokens: Tokens, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}  # by the name of the token; "": all that is not known
        # Requests run in one event loop, and nothing here waits between looking and taking: no lock is needed.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_security_headers(scope["path"], send)
        if not _is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        caller = self._caller(headers)
        refused = self._refuse(scope, headers, caller)
        if refused is None:
            body = await self._read(receive)
            if isinstance(body, bytes) and body and not _is_json(headers):
                body = refusal("not_json", "send the body with Content-Type: application/json")
            if isinstance(body, bytes):
                scope.setdefault("state", {})["caller"] = caller
                await self._app(scope, _replay(body, receive), send)
                return
            refused = body
        await refused(scope, receive, send)

    def _caller(self, headers: Headers) -> Caller | None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        return self._tokens.find(token.strip()) if kind.lower() == "bearer" and token.strip() else None

    def _refuse(self, scope: Scope, headers: Headers, caller: Caller | None) -> Response | None:
        name = "" if caller is None else caller.name
        now = self._clock()
        wait = self._buckets.setdefault(name, Bucket(self._limits, now)).wait(now)
        if wait > 0:
            after = str(int(wait) + 1)
            return refusal("rate_limited", f"wait {after} s, then go on more slowly", headers={"Retry-After": after})
        if caller is None:
            return refusal(
                "unauthenticated",
                "give a token that the service knows: Authorization: Bearer …",
                headers={"WWW-Authenticate": 'Bearer realm="lmerge"'},
            )
        if caller.scope == "read" and scope["method"] not in _READING and scope["path"] != VALIDATE:
            return refusal("forbidden", "this token may only read: use one of scope admin")
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._limits.body_bytes:
            return self._too_large()
        return None

    async def _read(self, receive: Receive) -> bytes | Response:
        """Return the whole body, or why it is refused."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message["type"] == "http.request" and message.get("more_body", False)
                    if len(body) > self._limits.body_bytes:
                        return self._too_large()
        except TimeoutError:
            return refusal("too_slow", f"a body may take {self._limits.body_seconds:g} s to come")
        return bytes(body)

    def _too_large(self) -> Response:
        return refusal("too_large", f"a body may have {self._limits.body_bytes} bytes")


def _is_guarded(path: str) -> bool:
    return path == "/v1" or path.startswith("/v1/")


def _is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what gives the body that was read, and after it whatever comes: that the caller has gone."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_security_headers(path: str, send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
            if path != "/docs":  # the page needs its script
                headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        await send(message)

    return add
