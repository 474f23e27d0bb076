"""Finding a Java that is new enough, and saying so clearly when there is none."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.local.errors import StackError

OLDEST = 17
"""Kafka 4 and Spark 4 need Java 17."""

_HINT = f"Install a JDK {OLDEST} or newer and put it on PATH, or let JAVA_HOME name it."
_VERSION = re.compile(r'^\S+ version "(?:1\.)?(\d+)', re.MULTILINE)
_ANSWER_SECONDS = 30  # a JVM answers in 0.1 s; a loaded machine may take a hundred times that


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the `java` to use: JAVA_HOME's if it is set, else the one on PATH.

    Args:
        environment: in place of this process's environment.

    Raises:
        StackError: there is none, it does not run, or it is older than Java 17.
    """
    java = _locate(os.environ if environment is None else environment)
    version = parse_version(_ask_version(java))
    if version is None:
        raise StackError(f"{java} does not say which Java it is. {_HINT}")
    if version < OLDEST:
        raise StackError(f"Java is too old: {java} is version {version}. {_HINT}")
    return java


def parse_version(text: str) -> int | None:
    """Return the feature version in the output of `java -version`, or None if there is none.

    Up to Java 8 the version was 1.8.0; since 9 it starts with what counts. Other lines may come first: the JVM
    announces JAVA_TOOL_OPTIONS, for one.
    """
    found = _VERSION.search(text)
    return int(found[1]) if found else None


def _locate(environment: Mapping[str, str]) -> Path:
    if home := environment.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise StackError(f"Java is missing: JAVA_HOME is {home}, but there is no {java}. {_HINT}")
        return java
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is None:
        raise StackError(f"Java is missing: there is no `java` on PATH and JAVA_HOME is not set. {_HINT}")
    return Path(on_path)


def _ask_version(java: Path) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"Java does not run: {error}. {_HINT}") from error
    if answer.returncode != 0:  # macOS has a /usr/bin/java that only tells where to get one
        raise StackError(f"Java does not run: {java}: {(answer.stderr or answer.stdout).strip()}. {_HINT}")
    return answer.stderr + answer.stdout
