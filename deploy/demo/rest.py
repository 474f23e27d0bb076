"""The merge service over REST, as any user of it would call it."""

from typing import Any, Final

import httpx
import msgspec

from deploy.demo import query
from deploy.demo.errors import DemoError
from deploy.demo.observe import Lane
from lmerge.kafka.closing import Closing

_ANSWER_SECONDS: Final = 10.0


class _Observed(msgspec.Struct, frozen=True):
    lanes: list[Lane]


class _Merge(msgspec.Struct, frozen=True):
    observed: _Observed


class MergeApi(Closing):
    """A client of the merge service.

    Args:
        address: where it is.
        token: the admin's.
    """

    def __init__(self, address: str, token: str) -> None:
        self._client = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_ANSWER_SECONDS,
            trust_env=False,  # no proxy stands between us and this machine
        )
        self._merge = f"/v1/merges/{query.MERGE}"

    def is_ready(self) -> bool:
        """Whether it answers and its loop runs."""
        try:
            return self._client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def define_merge(self) -> None:
        """Define the merge, with no inputs yet."""
        feedback = {"lag_ms": query.LAG_MS, "interval_ms": query.TELL_AGAIN_MS}
        self._call("PUT", self._merge, {"partitions": query.LANES, "feedback": feedback})

    def attach(self, name: str) -> bool:
        """Attach a replica's topic; False if that does not exist yet."""
        body = {"topic": query.replica_topic(name)}
        return self._call("PUT", f"{self._merge}/inputs/{name}", body, fine="missing_topic") is not None

    def detach(self, name: str) -> None:
        """Detach a replica's topic."""
        self._call("DELETE", f"{self._merge}/inputs/{name}")

    def lanes(self) -> list[Lane]:
        """Ask for what is committed, lane by lane."""
        return msgspec.convert(self._call("GET", self._merge), _Merge).observed.lanes

    def _close(self) -> None:
        self._client.close()

    def _call(self, method: str, path: str, body: object = None, *, fine: str = "") -> Any:
        """Call, and return the answer; None if it was refused with the code that is fine."""
        try:
            response = self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            raise DemoError(f"the merge service does not answer {method} {path}: {error}") from error
        if response.is_success:
            return response.json() if response.content else {}
        if fine and response.json().get("code") == fine:
            return None
        raise DemoError(f"the merge service refuses {method} {path}: {response.status_code} {response.text}")
