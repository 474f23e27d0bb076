"""What a local cluster looks like: its identity, nodes and ports, kept in `stack.json`.

It must stay the same for the cluster's data to be used again, but for the ports.
"""

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from deploy.local import ports
from deploy.local.errors import StackError

_FILE = "stack.json"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One broker: its id and the ports for clients and for the controllers' quorum."""

    id: int
    port: int
    controller_port: int

    @property
    def ports(self) -> tuple[int, int]:
        """All ports that the broker listens on."""
        return self.port, self.controller_port


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's identity and nodes.

    `settings` are Kafka's own settings where its brokers differ from those of `deploy.local.settings`.
    """

    cluster_id: str
    nodes: tuple[Node, ...]
    settings: dict[str, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients."""
        return ",".join(f"{ports.HOST}:{node.port}" for node in self.nodes)

    @property
    def ports(self) -> frozenset[int]:
        """All ports that the cluster listens on."""
        return frozenset(port for node in self.nodes for port in node.ports)


def read_layout(directory: Path) -> Layout | None:
    """Return the layout of the stack in a directory, or None if there is none.

    Raises:
        StackError: the file is damaged.
    """
    file = directory / _FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Layout)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise StackError(f"{file} is damaged ({error}): end its brokers and delete {directory}") from error


def write_layout(directory: Path, layout: Layout) -> None:
    """Put the layout into a directory, wholly or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f"{_FILE}.draft"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(layout)))
    draft.replace(directory / _FILE)


def layouts(run: Path) -> Iterator[tuple[str, Layout]]:
    """Yield name and layout of every stack, running or not, by name."""
    for directory in sorted(run.iterdir()) if run.is_dir() else ():
        if (layout := read_layout(directory)) is not None:
            yield directory.name, layout


def plan(*, brokers: int, port: int | None, avoid: frozenset[int]) -> Layout:
    """Return the layout of a new cluster.

    Args:
        brokers: how many nodes.
        port: the first node's port for clients, the others' follow; free ones if None.
        avoid: ports not to choose.
    """
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    cluster_id = cluster_id.replace("-", "A")  # in front it would be an option to Kafka's tool
    asked = range(port, port + brokers) if port is not None else ()
    free = ports.choose(2 * brokers, avoid=avoid.union(asked))
    for_clients = asked or free[brokers:]
    return Layout(
        cluster_id=cluster_id,
        nodes=tuple(
            Node(id=number, port=client, controller_port=controller)
            for number, client, controller in zip(range(1, brokers + 1), for_clients, free, strict=False)
        ),
    )
