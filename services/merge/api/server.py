"""REST in a thread of its own: uvicorn, with the limits that belong to connections."""

import socket
import ssl
import threading
from types import TracebackType
from typing import Final, Self

import uvicorn
from fastapi import FastAPI

from lmerge.errors import LMergeError
from services.merge.options import RestSettings

MAX_CONNECTIONS: Final = 100
"""Beyond that uvicorn answers 503 by itself; metrics, probes and a few operators need a handful."""


class CannotListen(LMergeError):
    """REST could not begin."""


class RestServer:
    """Serves the application while it is entered.

    Args:
        app: the application.
        settings: where and how to listen. Port 0 takes a free one.

    Raises:
        CannotListen: the address is taken, or the certificate does not fit its key.
    """

    def __init__(self, app: FastAPI, settings: RestSettings) -> None:
        config = uvicorn.Config(
            app,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            log_level="critical",  # what is worth saying is said by the application
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=5,
        )
        # Both here, in the caller's thread, so that what is wrong is an exception and not a thread that ends.
        try:
            config.load()
            family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
            self._socket = socket.create_server((settings.host, settings.port), family=family)
        except (OSError, ssl.SSLError) as error:
            raise CannotListen(f"REST at {settings.url}: {error.strerror or error}") from error
        self.url = settings._replace(port=self._socket.getsockname()[1]).url
        self._server = uvicorn.Server(config)
        sockets = [self._socket]
        self._thread = threading.Thread(target=lambda: self._server.run(sockets), name="rest", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()  # whoever connects before it listens waits in the socket's queue
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._socket.close()
