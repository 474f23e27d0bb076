"""The jars that the local stack needs: what they are, where they are, and that they are the right ones.

A set is fetched into a temporary directory, compared with its committed list and renamed into place. The rename is
atomic, so a directory in place was verified, and looking again only costs a listing. Downloading itself is `ivy.py`.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local import places
from deploy.local.checksums import RECORD, contents_differ, names_differ, read_checksums
from deploy.local.errors import StackError
from deploy.local.ivy import Coordinate, Ivy
from deploy.local.java import find_java

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSet:
    """Jars that belong together, pinned.

    Attributes:
        name: the directory's name under the cache.
        checksums: the committed list of SHA-256.
        coordinates: what to ask Ivy for.
    """

    name: str
    checksums: Path
    coordinates: tuple[Coordinate, ...]


KAFKA = ArtifactSet(
    name="kafka",
    checksums=_HERE / "kafka-4.3.1.sha256",
    coordinates=(
        Coordinate("org.apache.kafka", "kafka_2.13", "4.3.1", transitive=True),
        # Kafka leaves the choice of a log binding to its distribution; without one it logs nowhere.
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
)

SPARK_CONNECTOR = ArtifactSet(
    name="spark-connector",
    checksums=_HERE / "spark-connector-4.2.0.sha256",
    coordinates=(
        Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        # 4.0.0 because not every mirror has another version of this one. It links against 4.2.0 but for
        # KafkaDelegationTokenProvider (Hadoop delegation tokens), which plain, SASL and TLS clients never load.
        # On a cluster take the whole set at 4.2.0 with --packages.
        Coordinate("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        # The versions that the connector asks for; the broker's kafka-clients 4.3 must not mix with them.
        Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"),
        Coordinate("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
)


def ensure(artifacts: ArtifactSet, *, cache: Path = places.CACHE, verify: bool = False) -> Path:
    """Return the directory that holds the set's jars, after fetching them if it is not there.

    Args:
        artifacts: the set.
        cache: where sets are kept.
        verify: also read and compare a set that is there already.

    Raises:
        StackError: the download failed, or the files are not exactly those of the list.
        OSError: the disk is full or not writable.
    """
    directory = cache / artifacts.name
    expected = read_checksums(artifacts.checksums)
    with places.exclusive(cache / ".lock"):  # Ivy's cache is not made for two at once
        if _is_current(directory, artifacts):
            differences = (contents_differ if verify else names_differ)(directory, expected)
            _require_none(differences, delete=directory)
        else:
            _fetch(artifacts, expected, directory)
    return directory


def _is_current(directory: Path, artifacts: ArtifactSet) -> bool:
    """Whether the set in place was verified against the list of today; another list means other pins."""
    try:
        return (directory / RECORD).read_bytes() == artifacts.checksums.read_bytes()
    except FileNotFoundError:
        return False


def _fetch(artifacts: ArtifactSet, expected: dict[str, str], directory: Path) -> None:
    ivy = Ivy(java=find_java(), cache=directory.parent / "ivy")
    with _scratch(directory.parent / "fetching") as scratch:
        fresh = scratch / "fresh"
        fresh.mkdir()
        ivy.retrieve(artifacts.coordinates, into=fresh, label=artifacts.name, jars=len(expected))
        _require_none(contents_differ(fresh, expected), delete=ivy.cache)
        shutil.copyfile(artifacts.checksums, fresh / RECORD)
        if directory.exists():
            directory.rename(scratch / "outdated")
        fresh.rename(directory)


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """Give an empty directory for the block; a fixed one, so that what a killed fetch left goes with the next."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _require_none(differences: list[str], *, delete: Path) -> None:
    if differences:
        raise StackError(
            f"the jars are not those of the committed list of SHA-256: {'; '.join(differences)}.\n"
            f"Delete what was downloaded and fetch again: rm -r {os.path.relpath(delete)}"
        )
