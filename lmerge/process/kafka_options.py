"""How every command is told of a Kafka cluster: two options, one meaning.

    --bootstrap-servers HOST:PORT,…    or LMERGE_BOOTSTRAP_SERVERS
    --kafka-config FILE                or LMERGE_KAFKA_CONFIG: librdkafka settings, lines ``name=value``

The file is the place for TLS and SASL, so that no secret is on a command line or in a process list. What is in it is
never shown; errors name a setting, not its value.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings

_SERVERS: Final = "bootstrap_servers"

P = ParamSpec("P")
R = TypeVar("R")


def kafka_options(*, required: bool = True) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options; it gets ``kafka``, the settings, or None where they are not required and not given.

    Args:
        required: whether the command cannot do without.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @cluster_options(required=required)
        @functools.wraps(command)
        def with_settings(*, bootstrap_servers: str | None, kafka_config: Path | None, **others: Any) -> R:
            kafka = read_cluster(bootstrap_servers or "", kafka_config) if bootstrap_servers or required else None
            return command(kafka=kafka, **others)

        return with_settings

    return decorate


def cluster_options(*, required: bool = True) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options as they are, ``bootstrap_servers`` and ``kafka_config``, to be read elsewhere.

    Args:
        required: whether the command cannot do without.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @click.option(
            "--bootstrap-servers",
            required=required,
            envvar=["LMERGE_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS"],
            show_envvar=True,
            metavar="HOST:PORT,…",
            help="The Kafka brokers.",
        )
        @click.option(
            "--kafka-config",
            envvar="LMERGE_KAFKA_CONFIG",
            show_envvar=True,
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Further librdkafka settings for TLS and SASL: lines name=value.",
        )
        @functools.wraps(command)
        def with_options(**given: Any) -> R:
            return command(**given)

        return with_options

    return decorate


def read_cluster(bootstrap_servers: str, kafka_config: Path | None) -> KafkaSettings:
    """Return how to reach a cluster.

    Raises:
        UsageError: the file cannot be read, or has a setting that is not the user's to choose.
    """
    return KafkaSettings(bootstrap_servers, {} if kafka_config is None else read_client(kafka_config))


def given_by_option() -> bool:
    """Tell whether the running command was given a cluster on its command line, not only by the environment."""
    return click.get_current_context().get_parameter_source(_SERVERS) is ParameterSource.COMMANDLINE


def read_client(file: Path) -> dict[str, str]:
    """Read settings of the Kafka client from a file; empty lines and those that begin with # say nothing.

    Raises:
        UsageError: the file cannot be read, or a line is no setting; it is named by its number, and not shown.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"Kafka settings {file}: cannot be read: {why}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name or name in found:
            raise UsageError(f"Kafka settings {file}, line {number}: give each setting once, as name=value")
        found[name] = value.strip()
    return found
