"""What the merge service is told when it starts: options and environment in, typed settings out."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings
from lmerge.kafka.group import SESSION_MS
from lmerge.process.kafka_options import kafka_options
from services.merge.pace import Pace
from services.merge.tokens import Tokens, development_token, from_environment

DEVELOPMENT_FILE: Final = Path(".run/merge-token")
"""Where a development token is kept, if nothing is configured."""

_FILE: Final = click.Path(dir_okay=False, path_type=Path)

R = TypeVar("R")


class RestSettings(NamedTuple):
    """Where and how REST listens."""

    host: str
    port: int
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    @property
    def url(self) -> str:
        """The address, for people."""
        return f"{'http' if self.tls_certificate is None else 'https'}://{self.host}:{self.port}"


class ServiceSettings(NamedTuple):
    """Everything that the service is told."""

    kafka: KafkaSettings
    rest: RestSettings
    tokens: Tokens
    pace: Pace


def service_options(command: Callable[[ServiceSettings], R]) -> Callable[..., R]:
    """Give a click command the options of the service; it gets the settings.

    Raises:
        UsageError: options that make no sense together, or a file that cannot be read.
    """

    @kafka_options()
    @click.option("--host", default="127.0.0.1", show_default=True, help="Where REST listens.")
    @click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Where REST listens.")
    @click.option("--tls-certificate", type=_FILE, help="PEM file with the certificate and its chain: REST by HTTPS.")
    @click.option("--tls-key", type=_FILE, help="PEM file with the key of the certificate.")
    @click.option(
        "--token-file",
        type=_FILE,
        help="Lines 'name scope token' with scope read or admin; read again when it changes. Beside it count "
        "LMERGE_ADMIN_TOKEN and LMERGE_READ_TOKEN. Without any of these a development token is made once, shown, "
        f"and kept in {DEVELOPMENT_FILE}.",
    )
    @click.option(
        "--session-ms",
        default=SESSION_MS,
        show_default=True,
        type=click.IntRange(500, 300_000),
        help="After how long without a sign of life another process takes the lanes over; at least 6 s where the "
        "broker's minimum for consumer groups is not lowered.",
    )
    @click.option(
        "--commit-ms",
        default=20,
        show_default=True,
        type=click.IntRange(1, 10_000),
        help="How often a lane commits what it has: half of it is added to the latency, a quarter after a silence.",
    )
    @functools.wraps(command)
    def with_settings(
        *,
        kafka: KafkaSettings,
        host: str,
        port: int,
        tls_certificate: Path | None,
        tls_key: Path | None,
        token_file: Path | None,
        session_ms: int,
        commit_ms: int,
        **others: Any,
    ) -> R:
        rest = RestSettings(host, port, tls_certificate, tls_key)
        _check_tls(rest)
        tokens = find_tokens(token_file, os.environ)
        pace = Pace(commit_seconds=commit_ms / 1000, session_ms=session_ms)
        return command(ServiceSettings(kafka, rest, tokens, pace), **others)

    return with_settings


def _check_tls(rest: RestSettings) -> None:
    if (rest.tls_certificate is None) != (rest.tls_key is None):
        raise UsageError("TLS needs both: give --tls-certificate and --tls-key")
    for file in (rest.tls_certificate, rest.tls_key):
        if file is not None and not os.access(file, os.R_OK):
            raise UsageError(f"{file}: there is no such file, or it cannot be read")


def find_tokens(file: Path | None, environment: Mapping[str, str]) -> Tokens:
    """Return the tokens as configured; where nothing is, a development token, which is shown when it is made.

    Raises:
        UsageError: the file cannot be read.
    """
    fixed = from_environment(environment)
    if file is None and not any(token.caller.scope == "admin" for token in fixed):
        file = DEVELOPMENT_FILE
        token = development_token(file)
        if token is not None:
            click.echo(f"merge service: made a development token (kept in {file}): {token}", err=True)
    return Tokens(fixed, file)
