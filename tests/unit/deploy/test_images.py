"""The Dockerfile by its text: what is in the images and what is not, who they run as, and what they say they are."""

import re
import tomllib
from typing import Final

import pytest

from deploy.local import places
from tests.support.compose import HEALTHCHECK, read_file

TEXT: Final = (places.CHECKOUT / "deploy/images/Dockerfile").read_text()
COMMENT: Final = re.compile(r"^#.*\n", re.MULTILINE)
STAGES: Final = {
    name: (parent, COMMENT.sub("", body))
    for parent, name, body in re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", TEXT, re.MULTILINE | re.DOTALL)
}
VERSION: Final[str] = tomllib.loads((places.CHECKOUT / "pyproject.toml").read_text())["project"]["version"]

every_image = pytest.mark.parametrize("name", ["service", "replica"])


def whole(name: str) -> str:
    """Give what an image is made by: its stage, those before it, and those that it copies from."""
    parent, body = STAGES[name]
    used = [parent, *re.findall(r"COPY --from=(\S+)", body)]
    return "".join([*(whole(each) for each in used if each in STAGES), body])


def test_only_the_replica_has_a_jvm() -> None:
    jvm = re.compile(r"jre|jdk|java|requirements-replica", re.IGNORECASE)
    assert not jvm.search(whole("service"))
    assert set(jvm.findall(whole("replica"))) == {"jre", "jdk", "requirements-replica"}


@every_image
def test_an_image_runs_as_nobody_and_is_checked(name: str) -> None:
    _, body = STAGES[name]
    assert re.findall(r"^USER (.+)$", body, re.MULTILINE) == ["lmerge"]
    assert not re.search(r"^(RUN|COPY) ", body.partition("\nUSER ")[2], re.MULTILINE)
    assert re.search(r"useradd --uid 10001 .* lmerge\b", whole(name))
    assert f"COPY deploy/images/healthcheck.py {HEALTHCHECK}\n" in whole(name)
    checks = re.findall(r"^HEALTHCHECK .*\n +CMD (.*)$", body, re.MULTILINE)
    assert len(checks) == 1
    assert HEALTHCHECK in checks[0]


@every_image
def test_an_image_says_what_it_is(name: str) -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', whole(name)))
    assert labels.pop("description")
    assert labels == {
        "vendor": "LMerge",
        "licenses": "Apache-2.0",
        "title": f"lmerge/{name}",
        "version": "${VERSION}",
        "revision": "${REVISION}",
    }


def test_the_version_is_the_same_everywhere() -> None:
    assert re.findall(r"^ARG VERSION=(.*)$", TEXT, re.MULTILINE) == [VERSION, VERSION]
    images = {service["image"] for service in read_file()["services"].values()}
    ours = {image for image in images if image.startswith("lmerge/")}
    assert ours == {f"lmerge/service:{VERSION}", f"lmerge/replica:{VERSION}"}
