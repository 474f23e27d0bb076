"""Choosing ports that stay a broker's own, also while it is down."""

import random
import socket
from collections.abc import Container, Iterable

from deploy.local.errors import StackError

HOST = "127.0.0.1"

_CANDIDATES = range(20_000, 32_000)
"""Below the ports that outgoing connections get (Linux from 32768, macOS from 49152): a client that keeps calling a
killed broker could otherwise be given that very port, connect to itself and hold it."""


def is_free(port: int) -> bool:
    """Whether a broker could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the JVM does: old connections do not count
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(count: int, *, avoid: Container[int] = ()) -> list[int]:
    """Return free ports, none of them in `avoid` (ports of stacks that are down but may come back)."""
    chosen: list[int] = []
    # Not for secrecy: a random order keeps stacks of different checkouts apart.
    for port in random.sample(_CANDIDATES, k=len(_CANDIDATES)):
        if len(chosen) == count:
            break
        if port not in avoid and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise StackError(f"no free port between {_CANDIDATES.start} and {_CANDIDATES.stop}: stop some stacks")
    return chosen


def require_free(ports: Iterable[int]) -> None:
    """Raise StackError if one of the ports is taken."""
    for port in ports:
        if not is_free(port):
            raise StackError(
                f"port {port} is taken: another process listens on {HOST}:{port}. "
                "Name another one with --port, or none to get a free one."
            )
