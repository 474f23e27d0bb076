"""A broker that wants TLS and a login: the service runs on it as on any other, and says what is wrong if it cannot."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from deploy.local import LocalStack, ports
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from lmerge.process.kafka_options import read_client
from tests.support.kafka import wait_until
from tests.support.merge_service import ROOT, Service, append, merged, several
from tests.support.streams import ins, stb

A = b'"A"'
PASSWORD = "a-password-that-nobody-may-read"


class Secured(NamedTuple):
    """A broker with two doors."""

    plain: KafkaSettings
    servers: str
    ca: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a broker once to have its ports, and again with a listener that wants TLS and a login."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "broker.pem").write_bytes(b"".join([pem, *(blob.bytes() for blob in issued.cert_chain_pems)]))
    name = f"secured-{uuid.uuid4().hex[:8]}"
    first = LocalStack(name=name).start()
    (node,) = first.layout.nodes
    first.stop(keep_data=True)
    (port,) = ports.choose(1)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = (
        f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port},SECURE://127.0.0.1:{port}"
    )
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(directory / "broker.pem"),
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{module} required user_lmerge="{PASSWORD}";',
    }
    with LocalStack(name=name, settings=settings) as stack:
        yield Secured(KafkaSettings(stack.bootstrap_servers), f"127.0.0.1:{port}", directory / "ca.pem")


def client_file(secured: Secured, directory: Path, password: str) -> Path:
    file = directory / "client.properties"
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        "sasl.username=lmerge",
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


def test_a_merge_runs_over_tls_with_a_login(
    secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = client_file(secured, tmp_path, PASSWORD)
    settings = KafkaSettings(secured.servers, read_client(file))
    name = f"m{uuid.uuid4().hex[:8]}"
    with several(settings, 2, {"LMERGE_KAFKA_CONFIG": str(file)}) as services:
        service: Service = services[0]
        TopicAdmin(settings).ensure(*(TopicSpec(f"{name}.{each}", 1) for each in ("r1", "r2")))
        service.put(name, {})
        service.attach(name, "r1", "r2")
        append(settings, f"{name}.r1", [ins(A, 6, 20), stb(20)])
        append(settings, f"{name}.r2", [ins(A, 6, 20), stb(30)])
        wait_until(lambda: merged(secured.plain, f"{name}.merged")[-1:] == [stb(30)], "it is merged", seconds=60)
        answers = [service.call("GET", path) for path in (f"/v1/merges/{name}", "/v1/merges", "/metrics")]
    assert PASSWORD not in str(answers)
    said = capfd.readouterr()
    assert "took over" in said.err
    assert PASSWORD not in said.out + said.err


def test_a_wrong_password_is_one_sentence_without_it(secured: Secured, shut_out: "subprocess.Popen[str]") -> None:
    _, said = shut_out.communicate(timeout=60)
    assert shut_out.returncode != 0
    assert "Traceback" not in said
    assert secured.servers in said
    assert "a-wrong-password" not in said
