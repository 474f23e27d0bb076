"""Prometheus and promtool for tests and pictures: Debian's package, unpacked under the cache and not installed.

Nothing of it runs as a service. Outside the checkout nothing changes but apt's lists of packages, and those only if the
package is not found in them: then `apt-get update` is run, which needs root. Where there is no apt, the programs on
PATH are taken.
"""

import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import yaml

from deploy.local import places, ports
from deploy.local.errors import StackError
from deploy.local.processes import bound_to_us

DEPLOYED: Final = places.CHECKOUT / "deploy" / "prometheus"
"""The configuration that is deployed."""

_PACKAGE: Final = "prometheus"
_CACHED: Final = places.CACHE / "prometheus"
_APT_SECONDS: Final = 300
_READY_SECONDS: Final = 30
_POLL_SECONDS: Final = 0.05
_WAY_OUT: Final = (
    "install Prometheus (Debian and Ubuntu: apt-get install prometheus; macOS: brew install prometheus) "
    "so that prometheus and promtool are on PATH"
)


def find(program: str, *, cached: Path = _CACHED) -> Path:
    """Return where `prometheus` or `promtool` is: under the cache, or on PATH.

    Raises:
        StackError: it is in neither.
    """
    unpacked = cached / "usr" / "bin" / program
    if unpacked.exists():
        return unpacked
    installed = shutil.which(program)
    if installed is None:
        raise StackError(f"{program} is not there: run `make setup` on a machine with apt, or {_WAY_OUT}")
    return Path(installed)


def ensure(*, cached: Path = _CACHED) -> Path:
    """Return where `prometheus` is, after fetching Debian's package if it is not there.

    Raises:
        StackError: it is not there and cannot be fetched.
    """
    with places.exclusive(cached.parent / ".prometheus-lock"):
        try:
            return find("prometheus", cached=cached)
        except StackError:
            _fetch(cached)
    return find("prometheus", cached=cached)


def _fetch(cached: Path) -> None:
    """Download the package with apt, which checks it against the signed lists, and unpack it without its scripts."""
    scratch = cached.with_name("fetching-prometheus")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        if _try("apt-get", "download", _PACKAGE, directory=scratch):  # else the lists are empty or old
            _run("apt-get", "update", directory=scratch)
            _run("apt-get", "download", _PACKAGE, directory=scratch)
        (package,) = scratch.glob(f"{_PACKAGE}_*.deb")
        _run("dpkg-deb", "-x", package.name, "unpacked", directory=scratch)
        (scratch / "unpacked").rename(cached)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(*command: str, directory: Path) -> None:
    failure = _try(*command, directory=directory)
    if failure:
        raise StackError(f"{' '.join(command)} failed: {failure}\nOr {_WAY_OUT}")


def _try(*command: str, directory: Path) -> str:
    """Run a command; return what it said if it failed."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_APT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr or done.stdout).strip()
    return (said or f"exit code {done.returncode}") if done.returncode else ""


def configure(directory: Path, targets: Mapping[str, Mapping[str, str]], *, seconds: int = 1) -> Path:
    """Write the deployed configuration, for processes of this machine, into a directory, and return that.

    Args:
        directory: where; made if it is not there.
        targets: for each job the addresses of its processes, by what they are to be called.
        seconds: between two scrapes, and between two evaluations of the rules.
    """
    settings = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
    settings["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{seconds}s")
    for job in settings["scrape_configs"]:
        job.pop("dns_sd_configs", None)  # names of docker compose, which nobody on this machine has
    settings["rule_files"] = [str(DEPLOYED / pattern) for pattern in settings["rule_files"]]
    (directory / "targets").mkdir(parents=True, exist_ok=True)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings))
    for job, processes in targets.items():
        listed = [{"targets": [address], "labels": {"instance": name}} for name, address in processes.items()]
        (directory / "targets" / f"{job}.yml").write_text(yaml.safe_dump(listed))
    return directory


class Prometheus:
    """A Prometheus on this machine, with a configuration of the caller's; it goes with this process.

    Args:
        configuration: the directory of `prometheus.yml` and what that names.
        data: where it keeps its samples and its log; made if it is not there.
    """

    def __init__(self, configuration: Path, data: Path) -> None:
        self._configuration = configuration / "prometheus.yml"
        self._data = data
        self.log = data / "prometheus.log"
        (self._port,) = ports.choose(1)
        self.url = f"http://{ports.HOST}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._data.mkdir(parents=True, exist_ok=True)
        command = [
            str(find("prometheus")),
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={self._data / 'samples'}",
            f"--web.listen-address={ports.HOST}:{self._port}",
            "--log.level=warn",
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(bound_to_us(command), stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)  # its samples are not needed any more
            self._process.wait()

    def _wait_until_ready(self) -> None:
        assert self._process is not None  # noqa: S101
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-2_000:]
                raise StackError(f"Prometheus does not come up. The end of {self.log}:\n{tail}")
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):  # noqa: S310  # our own address
                return True
        except (urllib.error.URLError, OSError):
            return False
