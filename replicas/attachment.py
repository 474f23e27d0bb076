"""A replica as an input of its merge: it attaches itself over REST, and detaches when it is stopped.

Attaching runs in a thread of its own: a merge service that is away holds nobody's batches up. A refusal ends the
replica, since it was asked for what cannot be. A replica that fails or is killed stays attached: it will come back.
"""

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from lmerge.errors import LMergeError
from lmerge.process.api import Api, NotGranted, Unreachable
from replicas.errors import NotAttached
from replicas.metrics import Metrics
from replicas.settings import ReplicaSettings

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
"""For one call: the time that a supervisor gives a process to stop is often 30 s. What was not answered is repeated."""

_RETRY_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 30.0
"""Between two attempts: twice as long each time, up to this."""

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429

_WHY: Final = {"attach": "the replica has started", "detach": "the replica was stopped"}


def connect(url: str, token: str | None, ca: Path | None) -> Api:
    """Return a client of the merge service.

    Raises:
        UsageError: the address, the token or the file cannot be used.
    """
    return Api(url, token, ca=ca, option="--api", timeout_seconds=_TIMEOUT_SECONDS)


class Attachment:
    """Attaches a replica while it is entered.

    Args:
        api: the merge service.
        settings: which replica.
        metrics: told whether it is attached.
    """

    def __init__(self, api: Api, settings: ReplicaSettings, metrics: Metrics) -> None:
        self._api = api
        self._merge, self._replica, self._topic = settings.merge, settings.replica, settings.topic
        self._path = f"/v1/merges/{settings.merge}/inputs/{settings.replica}"
        self._metrics = metrics
        self._metrics.attached(is_attached=False)
        self._leaving = threading.Event()
        # Whether a call of ours may have attached it; then a clean stop takes it back.
        self._is_ours = False
        self._refusal: LMergeError | None = None
        self._thread = threading.Thread(target=self._run, name="attachment", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def check(self) -> None:
        """See that the service has not refused.

        Raises:
            NotAttached: it has, and says why.
        """
        if self._refusal is not None:
            raise NotAttached(
                f"merge {self._merge} does not take {self._topic} as input {self._replica}: {self._refusal}"
            ) from self._refusal

    def detach(self) -> None:
        """Take the replica out of its merge, if this process has put it there; what hinders it is logged."""
        self._end()
        if not self._is_ours:
            return
        try:
            self._api.delete(self._path, _WHY["detach"])
        except LMergeError as error:
            if isinstance(error, NotGranted) and error.status == _NOT_FOUND:
                return  # somebody was faster
            log.warning("still attached: %s. Detach it: lmerge detach %s %s", error, self._merge, self._replica)
        else:
            log.info("detached from %s", self._merge)

    def _end(self) -> None:
        self._leaving.set()
        self._thread.join()

    def _run(self) -> None:
        wait_seconds, said = _RETRY_SECONDS, ""
        while not self._leaving.is_set():
            try:
                self._attach()
            except Unreachable as error:
                if str(error) != said:
                    log.warning("not attached to %s yet, trying on: %s", self._merge, error)
                said = str(error)
            except LMergeError as error:
                self._refusal = error
                return
            else:
                self._metrics.attached(is_attached=True)
                return
            self._leaving.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_SECONDS)

    def _attach(self) -> None:
        """Try once.

        Raises:
            Unreachable: try again.
            LMergeError: refused.
        """
        before, self._is_ours = self._is_ours, True  # an answer that got lost may have been a yes
        try:
            made, _ = self._api.put(self._path, {"topic": self._topic}, _WHY["attach"])
        except NotGranted as error:
            if error.status == _TOO_MANY:
                self._is_ours = before
                raise Unreachable(str(error)) from error
            self._is_ours = False
            if error.status != _CONFLICT or not self._is_input():
                raise
            log.info("is an input of %s already, attached by somebody else, who may detach it", self._merge)
        else:
            log.info("attached to %s%s", self._merge, "" if made else ", as before")

    def _is_input(self) -> bool:
        """Tell whether our topic is this input all the same, with properties or a joins_at that we did not give."""
        try:
            found = self._api.get(self._path)
        except NotGranted:
            return False
        return bool(found["desired"]["definition"]["topic"] == self._topic)
