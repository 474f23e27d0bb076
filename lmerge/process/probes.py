"""Liveness, readiness and metrics of a process without a REST interface: three addresses, for machines, by HTTP.

GET /healthz    200 while the process answers
GET /readyz     200 with what it does, 503 with why it does not do its work
GET /metrics    Prometheus' text format
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Final, NamedTuple, Self

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from lmerge.errors import UsageError

_SECONDS: Final = 5.0
"""How long a caller may take to ask."""


class Readiness(NamedTuple):
    """Whether a process does its work, and what it does or lacks."""

    is_ready: bool
    status: str


class Probes:
    """Answers while it is entered, in threads of its own.

    Args:
        host: where to listen.
        port: where to listen; 0 takes a free one.
        registry: the metrics.
        readiness: asked for each call.

    Raises:
        UsageError: the address is taken, or not ours.
    """

    def __init__(
        self, host: str, port: int, *, registry: CollectorRegistry, readiness: Callable[[], Readiness]
    ) -> None:
        class Handler(_Handler):
            pages: ClassVar = {
                "/healthz": lambda: _status(Readiness(is_ready=True, status="alive")),
                "/readyz": lambda: _status(readiness()),
                "/metrics": lambda: _Page(200, "text/plain; version=0.0.4", generate_latest(registry)),
            }

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise UsageError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}"
        """Where it listens."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Page(NamedTuple):
    code: int
    kind: str
    body: bytes


def _status(readiness: Readiness) -> _Page:
    body = msgspec.json.encode({"status": readiness.status})
    return _Page(200 if readiness.is_ready else 503, "application/json", body)


class _Handler(BaseHTTPRequestHandler):
    """Answers one call."""

    timeout = _SECONDS
    pages: ClassVar[dict[str, Callable[[], _Page]]]

    def do_GET(self) -> None:  # the name that http.server looks for
        """Answer."""
        make = self.pages.get(self.path.partition("?")[0])
        page = _Page(404, "application/json", b'{"status":"no such page"}') if make is None else make()
        with suppress(ConnectionError):  # who asked did not wait, as Prometheus does not for ever
            self.send_response(page.code)
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that http.server gives
        """Say nothing: a probe every few seconds is no event."""
