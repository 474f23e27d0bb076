"""docker-compose.yml on this machine without an engine: the same commands, variables and health checks as processes.

What a container would give is translated, and nothing else: names and ports of services to the loopback interface,
mounted paths to directories here, `python` and `lmerge` to those of this environment. The broker is a local one with
the settings that the file gives to Kafka; Prometheus is Debian's, with the targets of its configuration translated too.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import yaml

from deploy.local import LocalStack, places, ports, prometheus
from tests.support.kafka import wait_until
from tests.support.processes import descendants, end_tree

FILE: Final = places.CHECKOUT / "docker-compose.yml"
HEALTHCHECK: Final = "/usr/local/lib/lmerge/healthcheck.py"
BROKER: Final = "kafka"
PROMETHEUS: Final = "prometheus"
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104  # what is looked for, to be replaced
SECONDS: Final = 240
"""For a start of Spark on a machine that is busy with others."""

_VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")
_OF_THE_CONTAINER: Final = (
    *("HEAP_OPTS", "NODE_ID", "PROCESS_ROLES", "CONTROLLER_QUORUM_VOTERS", "CONTROLLER_LISTENER_NAMES"),
    *("INTER_BROKER_LISTENER_NAME", "LISTENERS", "ADVERTISED_LISTENERS", "LISTENER_SECURITY_PROTOCOL_MAP", "LOG_DIRS"),
)
"""What Kafka is told about its container, and a local broker is told otherwise."""

_PROGRAMS: Final[Mapping[str, Callable[[], Path]]] = {
    "python": lambda: Path(sys.executable),
    "lmerge": lambda: Path(sys.executable).with_name("lmerge"),
    "promtool": lambda: prometheus.find("promtool"),
    HEALTHCHECK: lambda: places.CHECKOUT / "deploy/images/healthcheck.py",
}
"""Where programs of the images are here."""


class Mount(NamedTuple):
    """Something of the host in a container."""

    source: str
    target: str
    options: str = ""


def read_file(file: Path = FILE) -> dict[str, Any]:
    """Read the file as it is without any .env: every variable has its default."""
    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(lambda each: each[2], file.read_text()))
    return found


def mounts(service: Mapping[str, Any]) -> list[Mount]:
    """Give what is mounted in a service."""
    return [Mount(*text.split(":")) for text in service.get("volumes", ())]


def port_of(service: Mapping[str, Any]) -> str | None:
    """Give the port that a service listens on: what it is told, else what is published of it; None if it is neither."""
    environment: Mapping[str, str] = service.get("environment", {})
    told = [str(value) for name, value in environment.items() if name.endswith("_PORT")]
    published = [each.rpartition(":")[2] for each in service.get("ports", ())]
    return next(iter([*told, *published]), None)


def kafka_settings(service: Mapping[str, Any]) -> dict[str, str]:
    """Translate the variables of Kafka's image as its start script does, but for those about the container."""
    found = {name.removeprefix("KAFKA_"): str(value) for name, value in service["environment"].items()}
    return {name.lower().replace("_", "."): value for name, value in found.items() if name not in _OF_THE_CONTAINER}


class ComposeProcesses:
    """The services of the file as processes, ended with the block.

    Args:
        directory: for logs and volumes.
        file: what docker compose would be given.
    """

    def __init__(self, directory: Path, file: Path = FILE) -> None:
        self.services: dict[str, dict[str, Any]] = read_file(file)["services"]
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._broker = LocalStack(settings=kafka_settings(self.services[BROKER]))
        told = [name for name, service in self.services.items() if port_of(service)]
        self._ports: dict[str, str] = dict(zip(told, map(str, ports.choose(len(told))), strict=True))

    def __enter__(self) -> Self:
        self._broker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            end_tree(process)
        self._broker.__exit__(kind, error, trace)

    @property
    def bootstrap_servers(self) -> str:
        """The broker."""
        return self._broker.bootstrap_servers

    def url(self, name: str) -> str:
        """Give where a service listens here."""
        return f"http://{ports.HOST}:{self._ports[name]}"

    def up(self, *names: str) -> None:
        """Start services, each after what it depends on, and wait until all of them are as `up --wait` wants them."""
        for name in names:
            self._start(name)
        for name in names:
            self._wait_for(name, self._wanted(name))

    def run(self, name: str, **replaced: str) -> str:
        """Run a service that ends by itself, with some words of its command replaced, and give what it printed."""
        words = [replaced.get(word, word) for word in self.services[name]["command"]]
        done = subprocess.run(
            self._translate(name, words),
            cwd=self._home(name),
            env=self._environment(name),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (name, done.stdout, done.stderr)
        return done.stdout

    def stop(self, name: str) -> int:
        """Stop a service as `docker compose stop` does, and give its exit code."""
        self._processes[name].terminate()
        return self._processes[name].wait(SECONDS)

    def log(self, name: str) -> str:
        """Give what a service has written."""
        return self._log(name).read_text(errors="replace")

    def processes_of(self, name: str) -> dict[int, str]:
        """Give the processes of a service."""
        return descendants(self._processes[name].pid)

    def is_healthy(self, name: str) -> bool:
        """Run the health check of a service; what ended by itself never will be."""
        if name in self._processes:
            assert self._processes[name].poll() is None, (name, self.log(name)[-3_000:])
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        done = subprocess.run(
            self._translate(name, words), env=self._environment(name), capture_output=True, timeout=30, check=False
        )
        return done.returncode == 0

    def _start(self, name: str) -> None:
        if name in self._processes or name == BROKER:
            return
        for other, wanted in self.services[name].get("depends_on", {}).items():
            self._start(other)
            self._wait_for(other, wanted["condition"])
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name),
                cwd=self._home(name),
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _wanted(self, name: str) -> str:
        """What `up --wait` waits for: the end of what others want to have ended, else health, else that it runs."""
        for service in self.services.values():
            condition: str = service.get("depends_on", {}).get(name, {}).get("condition", "")
            if condition == "service_completed_successfully":
                return condition
        has_check = "test" in self.services[name].get("healthcheck", {})
        return "service_healthy" if has_check else "service_started"

    def _wait_for(self, name: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            assert self._processes[name].wait(SECONDS) == 0, (name, self.log(name))
        elif condition == "service_healthy":
            wait_until(lambda: self.is_healthy(name), f"{name} is healthy", seconds=SECONDS, every=0.5)
        else:
            assert self._processes[name].poll() is None, (name, self.log(name))

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _home(self, name: str) -> Path:
        """The directory in which a service runs: empty, as in the image."""
        home = self._directory / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, name: str) -> dict[str, str]:
        """What the file gives, and of ours only what finds programs; LMERGE_… of this machine must not leak in."""
        ours = {each: os.environ[each] for each in ("PATH", "JAVA_HOME") if each in os.environ}
        temporary = self._directory / "tmp"
        temporary.mkdir(exist_ok=True)
        given = {key: str(value) for key, value in self.services[name].get("environment", {}).items()}
        local = dict(zip(given, self._translate(name, given.values()), strict=True))
        return {**ours, "TMPDIR": str(temporary), "PYTHONPATH": str(places.CHECKOUT), **local}

    def _command(self, name: str) -> list[str]:
        words = self._translate(name, self.services[name]["command"])
        if name == PROMETHEUS:  # its image runs the program, and that listens on a port of its own choice
            listen = f"--web.listen-address={ports.HOST}:{self._ports[name]}"
            return [str(prometheus.find(PROMETHEUS)), *words, listen]
        return words

    def _translate(self, name: str, words: Iterable[str]) -> list[str]:
        return [self._local(name, word) for word in words]

    def _local(self, name: str, word: str) -> str:
        """Translate one word of a command, or the value of a variable."""
        if word in _PROGRAMS:
            return str(_PROGRAMS[word]())
        if word == port_of(self.services[name]):
            return self._ports[name]
        if word.startswith("--") and "=" in word:
            option, _, value = word.partition("=")
            return f"{option}={self._local(name, value)}"
        for mount in mounts(self.services[name]):
            if word == mount.target or word.startswith(f"{mount.target}/"):
                return f"{self._source(mount)}{word.removeprefix(mount.target)}"
        return self._address(name, ports.HOST if word == EVERYWHERE else word)

    def _source(self, mount: Mount) -> Path:
        if places.CHECKOUT / mount.source == prometheus.DEPLOYED:
            return prometheus.configure(self._directory / "configured", self._targets())
        if mount.source.startswith("./"):
            return places.CHECKOUT / mount.source
        volume = self._directory / "volumes" / mount.source
        volume.mkdir(parents=True, exist_ok=True)
        return volume

    def _targets(self) -> dict[str, dict[str, str]]:
        """Give the targets of Prometheus' configuration, by job, with where they listen here."""
        return {
            file.stem: {
                target: f"{ports.HOST}:{self._ports[target.partition(':')[0]]}"
                for entry in yaml.safe_load(file.read_text())
                for target in entry["targets"]
            }
            for file in (prometheus.DEPLOYED / "targets").glob("*.yml")
        }

    def _address(self, name: str, word: str) -> str:
        """Translate addresses of services to where they listen here."""
        word = word.replace("kafka:9094", self.bootstrap_servers)
        if name == BROKER:
            return word.replace("127.0.0.1/9092", self.bootstrap_servers.replace(":", "/"))
        for other, port in self._ports.items():
            aliases = self.services[other].get("networks", {}).get("default", {}).get("aliases", [])
            for host in (other, *aliases):
                word = word.replace(f"//{host}:{port_of(self.services[other])}", f"//{ports.HOST}:{port}")
        own = port_of(self.services[name])
        return word.replace(f"//127.0.0.1:{own}", f"//127.0.0.1:{self._ports[name]}") if own else word
