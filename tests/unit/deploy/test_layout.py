from pathlib import Path

import pytest

from deploy.local.errors import StackError
from deploy.local.layout import Layout, Node, layouts, plan, read_layout, write_layout
from deploy.local.settings import server_properties

_ONE = Layout(cluster_id="c" * 22, nodes=(Node(id=1, port=9092, controller_port=9093),))
_THREE = Layout(
    cluster_id="c" * 22,
    nodes=tuple(Node(id=number, port=9000 + number, controller_port=9100 + number) for number in (1, 2, 3)),
)


def properties(layout: Layout, index: int) -> dict[str, str]:
    lines = server_properties(layout, layout.nodes[index]).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_one_broker_is_its_own_quorum_and_replica() -> None:
    settings = properties(_ONE, 0)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9093"
    assert settings["transaction.state.log.replication.factor"] == "1"
    assert settings["transaction.state.log.min.isr"] == "1"
    assert settings["min.insync.replicas"] == "1"


def test_three_brokers_replicate_to_all_and_count_on_two() -> None:
    settings = properties(_THREE, 1)
    assert settings["node.id"] == "2"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103"
    assert settings["default.replication.factor"] == "3"
    assert settings["offsets.topic.replication.factor"] == "3"
    assert settings["transaction.state.log.min.isr"] == "2"
    assert settings["min.insync.replicas"] == "2"
    assert settings["broker.session.timeout.ms"] == "3000"


@pytest.mark.parametrize("layout", [_ONE, _THREE], ids=["one", "three"])
def test_brokers_listen_on_the_loopback_interface_only(layout: Layout) -> None:
    settings = properties(layout, 0)
    for key in ("listeners", "advertised.listeners"):
        assert all("://127.0.0.1:" in listener for listener in settings[key].split(","))


def test_bootstrap_servers_name_every_node() -> None:
    assert _THREE.bootstrap_servers == "127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003"


def test_layout_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_layout(tmp_path / "b", _THREE)
    write_layout(tmp_path / "a", _ONE)
    (tmp_path / "no-stack").mkdir()
    (tmp_path / ".lock").touch()
    assert list(layouts(tmp_path)) == [("a", _ONE), ("b", _THREE)]
    assert list(layouts(tmp_path / "nowhere")) == []


def test_damaged_layout_names_the_directory_to_delete(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"cluster_id":')
    with pytest.raises(StackError, match=r"stack.json is damaged .* delete"):
        read_layout(tmp_path)


def test_plan_takes_the_asked_ports_for_clients() -> None:
    layout = plan(brokers=3, port=9092, avoid=frozenset())
    assert [node.port for node in layout.nodes] == [9092, 9093, 9094]
    assert len(layout.ports) == 6


def test_plan_avoids_ports_of_others_and_of_outgoing_connections() -> None:
    avoid = frozenset(range(20_000, 31_000))
    layout = plan(brokers=3, port=None, avoid=avoid)
    assert len(layout.ports) == 6
    assert not layout.ports & avoid
    assert max(layout.ports) < 32_768


def test_cluster_id_never_looks_like_an_option() -> None:
    ids = {plan(brokers=1, port=None, avoid=frozenset()).cluster_id for _ in range(50)}
    assert len(ids) == 50
    assert {len(cluster_id) for cluster_id in ids} == {22}
    assert not any("-" in cluster_id for cluster_id in ids)
