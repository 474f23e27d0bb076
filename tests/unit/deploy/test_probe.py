import socket
import struct

import pytest

from deploy.local.errors import StackError
from deploy.local.ports import HOST, choose, is_free, require_free
from deploy.local.probe import parse_nodes, registered_nodes


def metadata(*nodes: int, correlation_id: int = 1, rack: bytes | None = None) -> bytes:
    body = struct.pack(">ii", correlation_id, len(nodes))
    for node in nodes:
        body += struct.pack(">ih9si", node, 9, b"127.0.0.1", 9092)
        body += struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack
    return body + struct.pack(">ii", 1, 0)


def test_nodes_are_read_from_a_metadata_answer() -> None:
    assert parse_nodes(metadata(1, 2, 3)) == {1, 2, 3}
    assert parse_nodes(metadata(4, 5, rack=b"west")) == {4, 5}
    assert parse_nodes(metadata()) == frozenset()


def test_answer_to_another_request_says_nothing() -> None:
    assert parse_nodes(metadata(1, correlation_id=2)) == frozenset()


def test_answer_cut_off_is_an_error() -> None:
    with pytest.raises(struct.error):
        parse_nodes(metadata(1, 2)[:30])


def test_nobody_at_the_port_means_no_nodes() -> None:
    (port,) = choose(1)
    assert registered_nodes(port) == frozenset()


def test_taken_port_is_seen_and_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(StackError, match=f"port {port} is taken"):
            require_free([port])
    assert is_free(port)
