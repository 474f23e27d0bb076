"""Asking a broker who is in its cluster: the one request of Kafka's protocol that readiness needs.

A broker lists itself and others only once the controller has registered and unfenced them. When every broker lists
all of them, clients can create topics with a replica on each. An open port, or an answer to ApiVersions, comes
earlier and says less.
"""

import socket
import struct

from deploy.local.ports import HOST

_METADATA, _VERSION, _CORRELATION_ID = 3, 1, 1
_NO_CLIENT_ID, _NO_TOPICS = -1, 0
_LARGEST_ANSWER = 1 << 16  # three brokers take 100 bytes; more than this is no broker
_ANSWER_SECONDS = 2.0


def registered_nodes(port: int) -> frozenset[int]:
    """Return the ids of the brokers that the broker at this port knows to be up; empty if it does not answer."""
    request = struct.pack(">hhihi", _METADATA, _VERSION, _CORRELATION_ID, _NO_CLIENT_ID, _NO_TOPICS)
    try:
        with socket.create_connection((HOST, port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                return parse_nodes(answer.read(max(0, min(size, _LARGEST_ANSWER))))
    except (OSError, struct.error):
        return frozenset()


def parse_nodes(answer: bytes) -> frozenset[int]:
    """Return the broker ids in a Metadata answer, version 1, without its length.

    Raises:
        struct.error: the answer ends early.
    """
    correlation_id, count = struct.unpack_from(">ii", answer)
    if correlation_id != _CORRELATION_ID:
        return frozenset()
    nodes: set[int] = set()
    position = 8
    for _ in range(count):
        node, host_length = struct.unpack_from(">ih", answer, position)
        position += 6 + host_length + 4  # the host, then the port
        (rack_length,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(rack_length, 0)
        nodes.add(node)
    return frozenset(nodes)
