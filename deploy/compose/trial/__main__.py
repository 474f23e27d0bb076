"""The acts of `make compose-trial`, one after the other; everything it has made is gone when it ends."""

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import click

from deploy.compose.program import ensure_compose
from deploy.compose.trial.bases import clone, make, trust_what_this_machine_trusts
from deploy.compose.trial.engine import Engine, require_machine
from deploy.compose.trial.readme import script
from deploy.compose.trial.stack import Shell, Stack
from deploy.local import places, ports
from deploy.local.errors import StackError
from lmerge.errors import LMergeError

LOG: Final = places.RUN / "compose-trial.log"
_PORTS: Final = ("LMERGE_PORT", "LMERGE_PORT_2", "LMERGE_KAFKA_PORT", "LMERGE_PROMETHEUS_PORT")
_LABELS: Final = ("title", "description", "version", "revision", "vendor", "licenses")
_OURS: Final = ("merge-1", "merge-2", "heartbeat-1", "heartbeat-2", "workload", "r1", "r2", "r3")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run docker-compose.yml for real on an engine of its own, from the build to `down`, with a replica killed.

    It needs root on Debian, and takes 10 to 20 minutes. Images are not pulled but made of Debian's packages and
    Kafka's jars, so Grafana is left out. The exit code is 0 if all went well.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = places.RUN / "compose-trial"
    try:
        require_machine()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with LOG.open("wb") as log:
            _run(directory, log)
    except KeyboardInterrupt:
        sys.exit("compose-trial: stopped; what it had started is gone")
    except (LMergeError, OSError) as error:
        sys.exit(f"compose-trial: {error}\nWhat was said is in {LOG.relative_to(places.CHECKOUT)}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(directory: Path, log: IO[bytes]) -> None:
    chosen = dict(zip(_PORTS, ports.choose(len(_PORTS)), strict=True))
    with Engine(directory, plugin=ensure_compose(), log=log) as engine:
        shell = Shell({**engine.environment, **{name: str(port) for name, port in chosen.items()}}, log)
        shell.directory = directory / "a-fresh-clone"
        with act("base images are made from Debian's packages"):
            clone(shell.run, shell.directory)
            trust_what_this_machine_trusts(shell.directory)
            make(shell.run, (shell.directory / "docker-compose.yml").read_text(), directory)
        readme = (shell.directory / "README.md").read_text()
        typed = script(readme, api_port=chosen["LMERGE_PORT"], kafka_port=chosen["LMERGE_KAFKA_PORT"])
        stack = Stack(shell.run, api_port=chosen["LMERGE_PORT"], prometheus_port=chosen["LMERGE_PROMETHEUS_PORT"])
        try:
            _play(shell, stack, typed)
        except BaseException:
            log.write(b"$ logs of all containers\n" + stack.compose("--profile", "*", "logs", "--tail", "100").encode())
            raise
    say("the engine, its data and its rules are gone")


def _play(shell: Shell, stack: Stack, typed: str) -> None:
    with act("docker compose up -d --wait, without any .env: images are built, everything is healthy"):
        stack.up()
    say(", ".join(shell.run("docker", "images", "--format", "{{.Repository}} {{.Size}}", "lmerge/*").splitlines()))
    _see_that_they_are_locked_up(stack)
    _see_what_the_images_are(stack)
    with act("Prometheus is added: docker compose up -d --wait prometheus"):
        stack.up("prometheus")
        stack.wait(stack.targets_up, "all targets of Prometheus are up", seconds=60)
    say(f"Prometheus reaches {stack.targets_up()} processes")
    with act("make smoke"):
        say(shell.run("make", "smoke").strip())
    with act("the README's lines: lmerge status, detach and attach by curl, kcat"):
        say(shell.run("bash", "-euo", "pipefail", "-c", typed))
        say(stack.smoke(3))
    say(shell.run("docker", "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}").strip())
    killed = stack.leader()
    with act(f"docker compose kill {killed}, which leads: the merged topic goes on with two"):
        stack.compose("kill", killed)
        say(stack.smoke(2))
    with act(f"docker compose up -d --wait {killed}: it goes on from its checkpoint, three again"):
        stack.up(killed)
        say(stack.smoke(3))
    other = next(name for name in ("r1", "r2", "r3") if name != killed)
    with act(f"the main process of {other} is killed: the engine restarts it"):
        stack.crash(other)
        say(stack.smoke(3))
    with act("docker compose up -d --wait r4: a fourth replica"):
        stack.up("r4")
        say(stack.smoke(4))
        stack.wait(lambda: stack.scrapes("r4:8082"), "Prometheus finds r4 by its name", seconds=60)
    with act("docker compose down and up again: all is found again"):
        shell.run("make", "down")
        stack.up()
        say(stack.smoke(3))
    with act("make down VOLUMES=1: nothing is left"):
        shell.run("make", "down", "VOLUMES=1")
        if left := stack.left_over():
            raise StackError(f"`make down VOLUMES=1` has left {', '.join(left)}")


def _see_that_they_are_locked_up(stack: Stack) -> None:
    """See that our containers run as nobody, without rights, on a root file system that they cannot write."""
    for service in _OURS:
        found = stack.inspect(service)
        host = found["HostConfig"]
        is_so = found["Config"]["User"] == "lmerge" and host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"]
        if not (is_so and host["Memory"] and host["NanoCpus"] and host["PidsLimit"]):
            raise StackError(f"{service} runs with more rights, or fewer limits, than docker-compose.yml gives it")
    say(f"{len(_OURS)} containers of ours run as nobody, read-only, without capabilities, with limits")


def _see_what_the_images_are(stack: Stack) -> None:
    """See that the image of the merge service has no JVM, and that both images carry their labels."""
    stack.compose("exec", "-T", "merge-1", "sh", "-c", "! command -v java")
    for service, title in (("merge-1", "lmerge/service"), ("r1", "lmerge/replica")):
        config = stack.inspect(service)["Config"]
        said = {name: config["Labels"].get(f"org.opencontainers.image.{name}") for name in _LABELS}
        if said["title"] != title or config["Image"] != f"{title}:{said['version']}" or not all(said.values()):
            raise StackError(f"the image of {service} is not labelled as what it is: {said}")
    say("lmerge/service has no Java; both images are labelled")


@contextmanager
def act(what: str) -> Iterator[None]:
    """Announce an act, and tell how long it took."""
    say(what)
    began = time.monotonic()
    yield
    say(f"  … {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    """Tell people."""
    for line in text.splitlines():
        print(f"compose-trial: {line}", flush=True)


if __name__ == "__main__":
    main()
