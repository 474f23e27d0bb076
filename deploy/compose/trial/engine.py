"""A Docker engine of our own: started by hand, with its own data, and gone without a trace when the block ends."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from deploy.compose.trial.firewall import undo
from deploy.local.errors import StackError

PROGRAMS: Final = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "git": "git",
    "curl": "curl",
    "kcat": "kcat",
}
"""What the trial runs, and Debian's packages of it."""

_BRIDGE: Final = "docker0"
_FORWARD: Final = Path("/proc/sys/net/ipv4/ip_forward")
_GROUPS: Final = Path("/sys/fs/cgroup")
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.2


def require_machine() -> None:
    """See that the trial can run here.

    Raises:
        StackError: it cannot; the text says what to do.
    """
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        raise StackError(
            f"the trial runs on Debian and needs more: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    if os.geteuid() != 0:
        raise StackError("an engine is root's: run the trial as root, on a machine that is there for such things")
    if Path("/sys/class/net", _BRIDGE).exists():
        raise StackError(f"there is a {_BRIDGE}: another engine runs here, or has left it; the trial needs one alone")


class Engine:
    """The engine.

    Args:
        directory: for its data, which go with it; on a disk that overlayfs takes.
        plugin: Docker Compose, as a program.
        log: where everything is told.
    """

    def __init__(self, directory: Path, *, plugin: Path, log: IO[bytes]) -> None:
        self._directory = directory
        self._plugin = plugin
        self._log = log
        # Sockets have short names only, and the checkout's may be long.
        self._run = Path(tempfile.mkdtemp(prefix="lmerge-trial-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._rules = ""
        self._forward = ""

    @property
    def environment(self) -> dict[str, str]:
        """What `docker` needs to talk to this engine, and to know Compose."""
        return {
            "DOCKER_HOST": f"unix://{self._run}/docker.sock",
            "DOCKER_CONFIG": str(self._run / "config"),
            "DOCKER_BUILDKIT": "0",  # BuildKit is a plugin of its own, which Debian 12 does not have
        }

    def __enter__(self) -> Self:
        self._rules = _saved_rules()
        self._forward = _FORWARD.read_text()
        plugins = self._run / "config" / "cli-plugins"
        plugins.mkdir(parents=True)
        (plugins / "docker-compose").symlink_to(self._plugin)
        self._process = subprocess.Popen(
            [
                *("dockerd", "--data-root", str(self._directory / "data"), "--exec-root", str(self._run / "exec")),
                *("--pidfile", str(self._run / "pid"), "--host", f"unix://{self._run}/docker.sock"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for us, who then end it in good order
        )
        try:
            self._wait_until_up()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait_until_up(self) -> None:
        assert self._process is not None  # noqa: S101
        deadline = time.monotonic() + _START_SECONDS
        while self._call("docker", "version"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StackError("the engine does not come up; its log says why")
            time.sleep(_POLL_SECONDS)

    def _end(self) -> None:
        """End the engine by its own process, and take back what it did to the network."""
        assert self._process is not None  # noqa: S101
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for arguments in undo(self._rules, _saved_rules()):
            self._call("iptables", *arguments)
        self._call("ip", "link", "delete", _BRIDGE)
        _FORWARD.write_text(self._forward)
        for group in [*_GROUPS.glob("docker"), *_GROUPS.glob("*/docker")]:  # of the second and the first version
            with suppress(OSError):  # another engine may have made them, and use them
                group.rmdir()
        shutil.rmtree(self._directory / "data", ignore_errors=True)
        shutil.rmtree(self._run, ignore_errors=True)

    def _call(self, *command: str) -> int:
        """Run a command for its exit code."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, stdout=self._log, stderr=self._log, check=False).returncode


def _saved_rules() -> str:
    command = ["iptables-save"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
