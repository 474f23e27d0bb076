"""Bearer tokens: who may call the API. Two scopes, read and admin; compared in constant time."""

import hmac
import secrets
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

Scope = Literal["read", "admin"]


class Tokens(BaseModel):
    """The tokens that are known. An admin may read."""

    model_config = ConfigDict(frozen=True)

    admin: SecretStr
    read: SecretStr | None = None

    def scope_of(self, token: str) -> Scope | None:
        """Return what a token allows; None if it is not known."""
        # Compare with all of them, whichever matches: time must not tell which one was nearly right.
        is_admin = hmac.compare_digest(token.encode(), self.admin.get_secret_value().encode())
        read = "" if self.read is None else self.read.get_secret_value()
        is_read = hmac.compare_digest(token.encode(), read.encode()) and bool(read)
        return "admin" if is_admin else "read" if is_read else None


def development_token(file: Path) -> tuple[str, bool]:
    """Return the token of a development set-up, and whether it was made just now; only the owner can read the file."""
    if file.exists():
        return file.read_text().strip(), False
    token = secrets.token_urlsafe(24)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(token + "\n")
    return token, True
