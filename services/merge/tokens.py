"""Bearer tokens: who may call the API. Two scopes, read and admin; an admin may read.

They come from the environment (`LMERGE_ADMIN_TOKEN`, `LMERGE_READ_TOKEN`) and from a file with lines
``name scope token``, which is read again when it changes, so that tokens are rotated without a restart: add the new
line, move the clients, remove the old line. A line with a token alone is an admin named ``development``. Only digests
are kept, and they are compared in constant time.
"""

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from lmerge.errors import UsageError
from services.log import log

Scope: TypeAlias = Literal["read", "admin"]

DEVELOPMENT: Final = "development"
MAX_TOKENS: Final = 1_000
"""Each request is compared with all of them: a thousand take a millisecond."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Caller(NamedTuple):
    """Who calls, by the name of the token, and what that allows."""

    name: str
    scope: Scope


class Token(NamedTuple):
    """A token as it is kept."""

    digest: bytes
    caller: Caller


class Tokens:
    """The tokens that are known now.

    Args:
        fixed: those of the environment.
        file: a file of further ones, read again when it changes. While it cannot be read, the last ones that could be
            stay, and the log says so.

    Raises:
        UsageError: the file cannot be read, or there is no token at all.
    """

    def __init__(self, fixed: tuple[Token, ...] = (), file: Path | None = None) -> None:
        self._fixed = fixed
        self._file = file
        self._lock = threading.Lock()
        self._version = _version(file)
        self._known = fixed + (() if file is None else parse(_read(file), str(file)))
        if not self._known:
            raise UsageError("no token is configured: nobody could call the API; give LMERGE_ADMIN_TOKEN or a file")

    def find(self, token: str) -> Caller | None:
        """Return whose token it is; None: nobody's."""
        self._follow_file()
        digest = _digest(token)
        found = None
        for known in self._known:  # all of them, whichever matches: time must not tell
            if hmac.compare_digest(digest, known.digest):
                found = known.caller
        return found

    def _follow_file(self) -> None:
        if self._file is None or _version(self._file) == self._version:
            return
        with self._lock:
            version = _version(self._file)
            if version == self._version:
                return
            self._version = version
            try:
                self._known = self._fixed + parse(_read(self._file), str(self._file))
            except UsageError as error:
                log("error", "tokens not replaced: the last ones stay", error=str(error))
            else:
                log("info", "tokens replaced", file=str(self._file), tokens=len(self._known))


def from_environment(environment: Mapping[str, str]) -> tuple[Token, ...]:
    """Return the tokens that the environment gives."""
    scopes: tuple[Scope, ...] = ("admin", "read")
    given = [(scope, environment.get(f"LMERGE_{scope.upper()}_TOKEN", "").strip()) for scope in scopes]
    return tuple(Token(_digest(token), Caller(scope, scope)) for scope, token in given if token)


def parse(text: str, where: str) -> tuple[Token, ...]:
    """Read the lines of a token file; empty lines and those that begin with # say nothing.

    Raises:
        UsageError: a line is none; it is named by its number, and nothing of it is shown.
    """
    tokens = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name, scope, token = words if len(words) == 3 else (DEVELOPMENT, "admin", words[0])
        sound = len(words) in (1, 3) and scope in ("read", "admin") and _NAME.fullmatch(name) and token.isascii()
        if not sound:
            raise UsageError(f"{where}, line {number}: give a name, a scope (read or admin) and a token in ASCII")
        tokens.append(Token(_digest(token), Caller(name, "read" if scope == "read" else "admin")))
    if not tokens or len(tokens) > MAX_TOKENS:
        raise UsageError(f"{where}: {len(tokens)} tokens; give between 1 and {MAX_TOKENS}")
    return tuple(tokens)


def development_token(file: Path) -> str | None:
    """Make the token of a development set-up, once, in a file that only its owner can read; None: it is there."""
    if file.exists():
        return None
    token = secrets.token_urlsafe(24)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(token + "\n")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"token file {file}: cannot be read: {why}") from None


def _version(file: Path | None) -> tuple[int, int, int] | None:
    """Tell one state of the file from another; None: it is not there."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
