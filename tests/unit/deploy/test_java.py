from pathlib import Path

import pytest

from deploy.local.errors import StackError
from deploy.local.java import find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1)', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "21.0.4" 2024-07-16 LTS\nOpenJDK Runtime Environment Temurin-21.0.4+7', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('openjdk version "17.0.11-internal" 2024-04-16', 17),
        ('java version "1.8.0_402"\nJava(TM) SE Runtime Environment (build 1.8.0_402-b08)', 8),
        ('java version "11.0.22" 2024-01-16 LTS', 11),
        ('java version "23.0.1" 2024-10-15\nOracle GraalVM 23.0.1+11.1', 23),
        ('semeru version "17.0.9" 2023-10-17\nEclipse OpenJ9 VM', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "18.0.2" 2022-07-19', 18),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_of_every_vendor_is_understood(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def java_home(tmp_path: Path, script: str) -> dict[str, str]:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    environment = java_home(tmp_path, """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")
    assert find_java(environment) == tmp_path / "bin" / "java"


def test_java_on_path_is_found(tmp_path: Path) -> None:
    java_home(tmp_path, """echo 'openjdk version "21" 2023-09-19' >&2""")
    assert find_java({"PATH": str(tmp_path / "bin")}) == tmp_path / "bin" / "java"


def test_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    environment = java_home(tmp_path, """echo 'java version "1.8.0_402"' >&2""")
    with pytest.raises(StackError, match=r"too old: .*/bin/java is version 8. Install a JDK 17 or newer"):
        find_java(environment)


def test_missing_java_says_what_to_install() -> None:
    with pytest.raises(StackError, match=r"missing: there is no `java` on PATH .* Install a JDK 17 or newer"):
        find_java({"PATH": "/nowhere"})


def test_java_home_without_java_is_named() -> None:
    with pytest.raises(StackError, match=r"JAVA_HOME is /nowhere, but there is no /nowhere/bin/java"):
        find_java({"JAVA_HOME": "/nowhere"})


def test_java_that_does_not_run_tells_its_own_reason(tmp_path: Path) -> None:
    environment = java_home(tmp_path, "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    with pytest.raises(StackError, match=r"does not run: .*Unable to locate a Java Runtime"):
        find_java(environment)


def test_java_of_unknown_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="does not say which Java it is"):
        find_java(java_home(tmp_path, "echo hello"))
