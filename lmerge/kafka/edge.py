"""The edge of one client: here librdkafka's exceptions become ours, with the reason that it gave elsewhere.

A call that cannot reach a broker fails with "timed out" or "transport failure". *Why* (refused connection, unknown
host, wrong password) librdkafka says only to a callback, and the callback runs only while the client is polled. So
each client has an `Edge` that keeps the last such reason and puts it into the message of the call that fails.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaError, KafkaException

from lmerge.kafka.errors import (
    BrokerError,
    Refused,
    RetryError,
    StopError,
    is_login_failure,
    is_summary,
    translate,
)


class Edge:
    """Translates the errors of one client.

    Args:
        servers: the bootstrap servers, named when none of them answers.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        # The reason of the last failed connection. A call that succeeds outdates it.
        self._reason: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Remember a background error; this is the client's `error_cb`."""
        if self._reason is None or not is_summary(error):
            self._reason = error

    def translate(self, error: KafkaError, fact: str, *, otherwise: type[BrokerError] = StopError) -> BrokerError:
        """Make our error of a failed call, adding the background reason where the call only found nobody."""
        ours = translate(error, fact, otherwise=otherwise)
        if not isinstance(ours, RetryError):
            return ours
        if self._reason is not None and is_login_failure(self._reason):
            return Refused(f"{fact}: {self._servers}: {self._reason.str()}; {Refused.advice}")
        reason = f": {self._reason.str()}" if self._reason is not None else ""
        return RetryError(f"{ours} (servers {self._servers}{reason})")

    @contextmanager
    def calling(
        self, fact: str, serve: Callable[[float], object], *, otherwise: type[BrokerError] = StopError
    ) -> Iterator[None]:
        """Translate what the calls inside raise.

        Args:
            fact: what could not be done if one of them fails.
            serve: the client's `poll`, which runs the callback. (Not kept: a reference here would keep a dropped
                client alive.) It may swallow a message; whoever failed starts over anyway.
            otherwise: the class for unknown codes, as in `translate`.

        Raises:
            BrokerError: in the class that says what to do.
        """
        try:
            yield
        except KafkaException as failure:
            self.collect(serve)
            raise self.translate(failure.args[0], fact, otherwise=otherwise) from failure
        self._reason = None

    def collect(self, serve: Callable[[float], object]) -> None:
        """Let the client run its callbacks."""
        # A pending fatal error is raised by poll, as SystemError if another callback comes after it.
        with suppress(KafkaException, SystemError):
            serve(0.0)
