"""The merge service's API, as its clients call it: one method per kind of call, errors in words.

LMergeError
├── Unreachable    nobody answers, or cannot now: try again
└── NotGranted     the service refused, and says why
"""

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from lmerge.errors import LMergeError, UsageError
from lmerge.kafka.closing import Closing

TIMEOUT_SECONDS: Final = 35.0
"""A little longer than the service itself waits for Kafka."""

DEVELOPMENT_FILE: Final = Path(".run/merge-token")
"""Where a merge service that was started here without any token keeps the one that it made."""

_PAGE: Final = 500


class Unreachable(LMergeError):
    """The merge service does not answer, or cannot now."""


class NotGranted(LMergeError):
    """The merge service refused.

    Args:
        text: why.
        status: of its answer; None where it was not asked.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


def find_token(token: str | None, file: Path | None) -> str | None:
    """Return the token that was given, in one way or another.

    Raises:
        UsageError: the file cannot be read, or is empty.
    """
    if token is not None:
        return token.strip()
    if file is None:
        if not DEVELOPMENT_FILE.is_file():
            return None
        file = DEVELOPMENT_FILE
    try:
        lines = [line.split() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"token file {file}: cannot be read: {why}") from None
    tokens = [words[-1] for words in lines if words and not words[0].startswith("#")]
    if not tokens:
        raise UsageError(f"token file {file}: there is no token in it")
    return tokens[0]


class Api(Closing):
    """A connection to the merge service.

    Args:
        url: where it listens.
        token: who we are; None: nobody, which the service will refuse.
        ca: a file of certificates to trust beside the usual ones.
        option: where the address was given, for errors.
        timeout_seconds: how long to wait for an answer.
        transport: another way to the service, for tests.

    Raises:
        UsageError: the address, the token or the file cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        ca: Path | None = None,
        option: str = "--url",
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{option} {url}: give an address such as http://127.0.0.1:8080")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("the token has characters that no token has: is the file the right one?")
        self._url = url
        self._option = option
        self._timeout_seconds = timeout_seconds
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # No proxies from the environment: the token goes to the service and to nobody else.
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=timeout_seconds,
            trust_env=False,
            verify=_trust(ca) if url.startswith("https://") else False,
            transport=transport,
        )

    def get(self, path: str, **parameters: str | int) -> Any:
        """Read something."""
        return self._call("GET", path, params=parameters).json()

    def items(self, path: str) -> Iterator[Any]:
        """Read a list, page by page."""
        after = ""
        while after is not None:
            page = self.get(path, limit=_PAGE, after=after)
            yield from page["items"]
            after = page["next"]

    def put(self, path: str, body: Mapping[str, Any], why: str = "") -> tuple[bool, Any]:
        """Ask for something to be there; return whether it is new, and what is there."""
        response = self._call("PUT", path, json=body, headers=_reason(why))
        return response.status_code == httpx.codes.CREATED, response.json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, why: str = "") -> Any:
        """Order something."""
        return self._call("POST", path, json=body, headers=_reason(why)).json()

    def delete(self, path: str, why: str = "") -> None:
        """Remove something."""
        self._call("DELETE", path, headers=_reason(why))

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise UsageError(f"{self._option} {self._url}: {error}") from error
        except httpx.TransportError as error:
            raise Unreachable(self._why_not(error)) from error
        if response.is_success:
            return response
        detail = f"{_detail(response)}{_hint(response.status_code)}"
        if response.is_server_error:
            raise Unreachable(f"the merge service cannot do this now ({response.status_code}): {detail}")
        raise NotGranted(detail, response.status_code)

    def _why_not(self, error: httpx.TransportError) -> str:
        if isinstance(error, httpx.TimeoutException):
            return f"the merge service at {self._url} did not answer within {self._timeout_seconds:g} s: try again"
        text = f"no merge service answers at {self._url}: {error}"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return f"{text}; give the certificate of its authority by --ca"
        return f"{text}; is it running? Another address: {self._option}"

    def _close(self) -> None:
        self._http.close()


def _trust(ca: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except OSError as error:  # an SSLError is one
            raise UsageError(f"--ca {ca}: no certificates can be read from it: {error.strerror or error}") from None
    return context


def _reason(why: str) -> dict[str, bytes]:
    return {"X-Reason": why.encode()} if why else {}


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {response.status_code}, without a reason: is this the merge service?"


def _hint(status: int) -> str:
    if status == httpx.codes.UNAUTHORIZED:
        return " (give --token-file, --token or LMERGE_TOKEN)"
    return ""
