"""A broker that wants TLS and a login, and denies what was not granted: the service runs on it as on any other.

Granted is what `lmerge topics -f` prints and nothing else; what is wrong if the service cannot run, it says.
"""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import trustme
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its hints forget most of them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from deploy.local import LocalStack, ports
from lmerge import Element, Event
from lmerge.codec import encode_batch
from lmerge.kafka import (
    KafkaSettings,
    MergedReader,
    Refused,
    TailReader,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
)
from lmerge.process.kafka_options import read_client
from replicas.sink import Sink
from replicas.state import Tag
from services.cli.acls import CONSUMER_GROUP
from tests.support.cli import run_cli
from tests.support.kafka import wait_until
from tests.support.merge_service import ROOT, Service, merged, several
from tests.support.streams import hello, ins, stb
from tests.support.wire import second_door

A = b'"A"'
PASSWORD = "a-password-that-nobody-may-read"

USERS: Final = {"merge service": "lmerge", "replica": "replica", "consumer": "reader"}
"""Who logs in as whom, by the words of `lmerge topics`."""

GROUP: Final = "billing"
"""Of the consumer."""

OPERATIONS: Final = {each.name.title().replace("_", ""): each for each in AclOperation}
"""By the names that Kafka's own tools take, such as DescribeConfigs."""


class Secured(NamedTuple):
    """A broker with two doors: whoever comes in by the plain one may do everything."""

    plain: KafkaSettings
    servers: str
    ca: Path

    def admin(self) -> AdminClient:
        """Give a client that may do everything."""
        return AdminClient({"bootstrap.servers": self.plain.bootstrap_servers, "log_level": 2})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a broker with a second listener, that wants TLS and a login, and with rules for who comes in there."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "broker.pem").write_bytes(b"".join([pem, *(blob.bytes() for blob in issued.cert_chain_pems)]))
    port, door = ports.choose(2)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS.values())
    settings = {
        **second_door("SECURE", "SASL_SSL", port=port, door=door, told=door),
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(directory / "broker.pem"),
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalStack(port=port, settings=settings) as stack:
        yield Secured(KafkaSettings(stack.bootstrap_servers), f"127.0.0.1:{door}", directory / "ca.pem")


def client_file(secured: Secured, directory: Path, password: str, user: str = "lmerge") -> Path:
    file = directory / f"{user}.properties"
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        f"sasl.username={user}",
        f"sasl.password={password}",
        f"ssl.ca.location={secured.ca}",
    ]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module", autouse=True)
def shut_out(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    """Start a service with a wrong password beside all else: it tries for as long as a broker may take to start."""
    file = client_file(secured, tmp_path_factory.mktemp("shut-out"), "a-wrong-password")
    command = [sys.executable, "-m", "services.merge", "--bootstrap-servers", secured.servers]
    process = subprocess.Popen(
        [*command, "--kafka-config", str(file), "--port", str(ports.choose(1)[0])],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LMERGE_ADMIN_TOKEN": "t"},
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()


def login(secured: Secured, directory: Path, user: str) -> KafkaSettings:
    """Give the settings of a user."""
    return KafkaSettings(secured.servers, read_client(client_file(secured, directory, PASSWORD, user)))


def prepare(secured: Secured, directory: Path) -> str:
    """Name a merge with the inputs r1 and r2, and grant what is printed for it: it is not defined yet."""
    name = f"m{uuid.uuid4().hex[:8]}"
    file = directory / "merge.yaml"
    file.write_text(f"merge: {name}\ninputs: {{r1: {{topic: {name}.r1}}, r2: {{topic: {name}.r2}}}}\n")
    (printed,) = run_cli("topics", "-f", str(file), "--json").report
    bindings = [binding(acl, operation) for acl in printed["acls"] for operation in acl["operations"]]
    admin = secured.admin()
    for future in admin.create_acls(bindings).values():
        future.result(10)
    # The controller has them when it answers, and the broker some milliseconds later; this asks the broker.
    every = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),  # type: ignore[arg-type]  # None: any
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    wait_until(
        lambda: set(bindings) <= set(admin.describe_acls(every).result(10)), "the broker knows the rules", every=0.05
    )
    return name


def binding(acl: dict[str, Any], operation: str) -> AclBinding:
    """Make one permission of what was printed."""
    return AclBinding(
        restype=ResourceType[acl["resource"].upper().replace("-", "_")],
        name=GROUP if acl["name"] == CONSUMER_GROUP else acl["name"],
        resource_pattern_type=ResourcePatternType.PREFIXED if acl["prefixed"] else ResourcePatternType.LITERAL,
        principal=f"User:{USERS[acl['who']]}",
        host="*",
        operation=OPERATIONS[operation],
        permission_type=AclPermissionType.ALLOW,
    )


def write(settings: KafkaSettings, topic: str, elements: list[Element]) -> None:
    """Write elements as a replica does, after a hello."""
    with Sink(settings, topic=topic, transactional_id=topic, lanes=1) as sink:
        sink.hello(hello())
        assert sink.write(Tag(1, 0), {0: [(None, value) for value in encode_batch(elements)]})


def test_a_merge_runs_over_tls_with_a_login_and_the_permissions_that_are_printed_for_it(
    secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = prepare(secured, tmp_path)
    file = client_file(secured, tmp_path, PASSWORD)
    settings = login(secured, tmp_path, "lmerge")
    replica, reader = login(secured, tmp_path, "replica"), login(secured, tmp_path, "reader")
    TopicAdmin(replica).ensure(*(TopicSpec(f"{name}.{each}", 1) for each in ("r1", "r2")))
    with several(settings, 2, {"LMERGE_KAFKA_CONFIG": str(file)}) as services:
        service: Service = services[0]
        service.put(name, {})
        service.attach(name, "r1", "r2")
        write(replica, f"{name}.r1", [ins(A, 6, 20), stb(20)])
        write(replica, f"{name}.r2", [ins(A, 6, 20), stb(30)])
        wait_until(lambda: merged(secured.plain, f"{name}.merged")[-1:] == [stb(30)], "it is merged", seconds=60)

        # Without AlterConfigs the service would go on, by the classic protocol.
        admin = secured.admin()
        found = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(10)
        assert f"lmerge.{name}" in {group.group_id for group in found.valid}

        order = f"/v1/merges/{name}/inputs/r1:fast-forward"
        wait_until(lambda: service.call("POST", order, {"before": 20})[0] == 200, "r1 may skip ahead", every=0.1)
        with TailReader(replica) as tail:
            wait_until(lambda: tail.read_tail(f"{name}.feedback", 0) is not None, "r1 is told so", every=0.05)

        with MergedReader(reader, f"{name}.merged", group=GROUP, follow=False) as events:
            assert [*events.events()] == [Event(A, 6, 20)]
            events.commit()
        answers = [service.call("GET", path) for path in (f"/v1/merges/{name}", "/v1/merges", "/metrics")]
    assert PASSWORD not in str(answers)
    said = capfd.readouterr()
    assert "took over" in said.err
    assert PASSWORD not in said.out + said.err


def test_nobody_but_the_service_may_write_the_merged_topic(secured: Secured, tmp_path: Path) -> None:
    name = prepare(secured, tmp_path)
    topic, own = f"{name}.merged", f"{name}.r1"
    TopicAdmin(secured.plain).ensure(TopicSpec(topic, 1), TopicSpec(own, 1))
    reader, replica = login(secured, tmp_path, "reader"), login(secured, tmp_path, "replica")
    with (
        TransactionalWriter(reader, topic) as writer,
        pytest.raises(Refused, match=f"{topic}.*TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ):
        writer.fence()  # a consumer has no id to write under, whatever the topic
    with TransactionalWriter(replica, own) as writer:
        writer.fence()
        with pytest.raises(Refused, match=f"{topic}.*TOPIC_AUTHORIZATION_FAILED"), writer.transaction():
            writer.write(topic, 0, [(None, b"mine")])


def test_a_wrong_password_is_one_sentence_without_it(secured: Secured, shut_out: "subprocess.Popen[str]") -> None:
    _, said = shut_out.communicate(timeout=60)
    assert shut_out.returncode != 0
    assert "Traceback" not in said
    assert secured.servers in said
    assert "a-wrong-password" not in said
