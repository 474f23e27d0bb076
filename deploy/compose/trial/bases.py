"""The images that docker-compose.yml pulls, made from Debian's packages and Kafka's jars, under the official names.

Nothing is pulled, so the trial runs where no registry can be reached. Grafana has no package and is left out.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.local import places
from deploy.local.artifacts import KAFKA, ensure
from deploy.local.settings import LOG4J

Run = Callable[..., str]
"""Runs a command, and gives what it printed."""

_CONTEXTS: Final = Path(__file__).parent / "images"
_SUITE: Final = "bookworm"
_DEBIAN: Final = f"lmerge-trial/debian:{_SUITE}"


def names(compose: str) -> dict[str, str]:
    """Give the names of the images that the trial makes, by context, as docker-compose.yml has them."""
    patterns = {
        "python": r"\$\{PYTHON_IMAGE:-(\S+?)\}",
        "kafka": r"image: (apache/kafka:\S+)",
        "prometheus": r"image: (prom/prometheus:\S+)",
    }
    return {context: re.findall(pattern, compose)[0] for context, pattern in patterns.items()}


def make(run: Run, compose: str, scratch: Path, *, cache: Path = places.CACHE) -> None:
    """Make all of them in the engine.

    Args:
        run: runs a command.
        compose: the text of docker-compose.yml.
        scratch: a directory for what is needed meanwhile.
        cache: where Debian's root file system is kept for the next time.
    """
    run("docker", "import", str(_root(run, scratch, cache)), _DEBIAN)
    for context, name in names(compose).items():
        directory = scratch / context
        shutil.copytree(_CONTEXTS / context, directory)
        if context == "kafka":
            shutil.copytree(ensure(KAFKA), directory / "libs")
            (directory / "log4j2.properties").write_text(LOG4J)
        run("docker", "build", "--build-arg", f"DEBIAN={_DEBIAN}", "--tag", name, str(directory))


def _root(run: Run, scratch: Path, cache: Path) -> Path:
    """Return Debian's root file system as an archive; debootstrap knows by itself where to get it."""
    archive = cache / "compose-trial" / f"debian-{_SUITE}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        root, fresh = scratch / "root", scratch / "root.tar"
        run("unshare", "--mount", "debootstrap", "--variant=minbase", _SUITE, str(root))
        run("tar", "--create", "--file", str(fresh), "--directory", str(root), ".")
        shutil.rmtree(root)
        shutil.move(fresh, archive)
    return archive


def clone(run: Run, target: Path) -> None:
    """Copy what git knows, or would, of this checkout: what somebody has who has just fetched it."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=places.CHECKOUT)
    for name in filter(None, listed.split("\0")):
        source = places.CHECKOUT / name
        if source.is_file():  # not what was deleted and is not committed yet
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)


def trust_what_this_machine_trusts(target: Path) -> None:
    """Let image builds trust the authorities of this machine, where it has some of its own."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if bundle.exists():
        shutil.copy(bundle, target / "deploy/images/certificates/machine.crt")
