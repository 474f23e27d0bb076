"""What `python -m replicas` is told: by flags, by the environment, by a file, in this order; typed settings out.

Every flag `--max-cuts` is the variable `LMERGE_REPLICA_MAX_CUTS` and the key `max_cuts` of the file too. What other
commands are told as well has one name for all of them: `LMERGE_BOOTSTRAP_SERVERS`, `LMERGE_KAFKA_CONFIG`,
`LMERGE_TOKEN`.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from lmerge.errors import UsageError
from lmerge.feed import FeedDefinition
from replicas.loader import load_query
from replicas.settings import ReplicaSettings
from replicas.start import Start

CONFIG: Final = "config"
"""The one flag that is no key."""


def read_defaults(file: Path, command: click.Command) -> dict[str, Any]:
    """Read the file of a replica, as defaults of the command's options.

    Args:
        file: TOML; a flag that may be given several times as `NAME=VALUE` is a table.
        command: whose options they are.

    Raises:
        UsageError: it cannot be read, or has a key or a value that is none of the command's.
    """
    try:
        given = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:  # bad TOML and bad UTF-8 are ValueErrors
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"settings file {file}: cannot be read: {why}") from error
    options = {option.name: option for option in command.params if option.name not in (None, CONFIG, "help")}
    for key in given:
        if key not in options:
            raise UsageError(f"settings file {file}: unknown key {key!r}: the keys are {', '.join(sorted(options))}")
    return {key: _value(file, key, value, options[key]) for key, value in given.items()}


def _value(file: Path, key: str, value: Any, option: click.Parameter) -> Any:
    """Check a value by the type of its option."""
    if option.multiple:
        if not isinstance(value, dict):
            raise UsageError(f"settings file {file}: key {key!r}: it must be a table, such as [{key}]")
        return [f"{name}={_scalar(file, f'{key}.{name}', each)}" for name, each in value.items()]
    try:
        return option.type.convert(_scalar(file, key, value), option, None)
    except click.BadParameter as error:
        raise UsageError(f"settings file {file}: key {key!r}: {error.message}") from error


def _scalar(file: Path, key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise UsageError(f"settings file {file}: key {key!r}: it must be text or a number")
    return str(value)


def make_settings(given: Mapping[str, Any]) -> ReplicaSettings:
    """Make the settings of a replica from the values of its options.

    Raises:
        UsageError: what cannot be, or does not fit together.
    """
    query = load_query(given["query"])
    feed = given["feed"] or query.feed
    if feed is None:
        raise UsageError(f"query {query.name} names no feed: give its file by --feed")
    return ReplicaSettings(
        bootstrap_servers=given["bootstrap_servers"],
        kafka_config=None if given["kafka_config"] is None else given["kafka_config"].resolve(),
        merge=given["merge"],
        replica=given["replica"],
        feed=_read_feed(feed),
        query=query,
        plan_name=given["plan"],
        windows=query.windows.resized(width_ms=given["window_ms"], slide_ms=given["slide_ms"]),
        topics=pairs("topic", given["topic"]),
        directory=given["checkpoint"].resolve(),
        lanes=given["partitions"],
        max_cuts=given["max_cuts"],
        max_rows=given["max_rows"],
        trigger_ms=given["trigger_ms"],
        wait_seconds=given["wait_seconds"],
        transaction_timeout_ms=given["transaction_timeout_ms"],
        start=Start.parse(given["start"]),
        feedback=given["feedback"],
    )


def pairs(kind: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=VALUE` options.

    Raises:
        UsageError: one is something else.
    """
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--{kind} {text!r}: it must be NAME=VALUE")
    return dict(text.split("=", 1) for text in texts)


def _read_feed(path: Path) -> FeedDefinition:
    try:
        return FeedDefinition.parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"feed file {path}: {error}") from error
