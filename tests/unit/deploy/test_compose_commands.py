"""The commands of docker-compose.yml by the programs that get them: each option, and each variable, is one they know.

A variable that nobody reads is ignored without a word, so a slip in its name would go unseen. Nothing is started here.
"""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest

from deploy.compose import smoke
from deploy.local import places
from replicas.options import make_settings
from services.merge.tokens import from_environment
from tests.support.compose import mounts, read_file

SERVICES: dict[str, dict[str, Any]] = read_file()["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("lmerge/")]


def program(name: str) -> tuple[Callable[[], object], list[str]]:
    """Give what a service runs, as a function, and the words that it is given."""
    match [_local(name, word) for word in SERVICES[name]["command"]]:
        case ["python", "-m", module, *words]:
            main: Callable[[], object] = importlib.import_module(f"{module}.__main__").main
            return main, words
        case ["python", smoke.__file__, *words]:
            return smoke.main, words
        case ["lmerge", *words]:
            return importlib.import_module("services.cli.__main__").main, words
        case other:
            pytest.fail(f"no program of ours: {other}")


def _local(name: str, word: str) -> str:
    """Give the path on this machine of what is mounted from the checkout."""
    for mount in mounts(SERVICES[name]):
        if mount.source.startswith("./") and word.startswith(f"{mount.target}/"):
            return f"{places.CHECKOUT / mount.source}{word.removeprefix(mount.target)}"
    return word


@pytest.fixture
def parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> click.Context:
    """What click makes of a service's words and variables, just before the command itself would run."""
    found: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, context: found.append(context))
    main, words = program(name)
    for each in [each for each in os.environ if each.startswith(("LMERGE_", "KAFKA_"))]:
        monkeypatch.delenv(each)
    for variable, value in SERVICES[name].get("environment", {}).items():
        monkeypatch.setenv(variable, _local(name, str(value)))
    monkeypatch.setattr(sys, "argv", ["program", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    return found[-1]  # that of a group comes before


def known(context: click.Context) -> set[str]:
    """Give the variables by which a command takes its options."""
    names: set[str] = set()
    for option in [each for each in context.command.params if isinstance(each, click.Option)]:
        names.update([option.envvar] if isinstance(option.envvar, str) else option.envvar or ())
        if context.auto_envvar_prefix and option.allow_from_autoenv:
            names.add(f"{context.auto_envvar_prefix}_{option.name}".upper())
    return names


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_told_what_its_program_knows_and_all_that_it_needs(name: str, parsed: click.Context) -> None:
    given = {variable for variable in SERVICES[name].get("environment", {}) if variable.startswith("LMERGE_")}
    if "services.merge" in SERVICES[name]["command"]:  # it reads tokens by itself
        given -= {variable for variable in given if from_environment({variable: "some"})}
    assert given <= known(parsed)


@pytest.mark.parametrize("name", [name for name in OURS if "replicas" in SERVICES[name]["command"]])
def test_a_replica_is_told_what_fits_together(name: str, parsed: click.Context) -> None:
    """Its query has the plan, and the plan can have these windows."""
    settings = make_settings(parsed.params)
    assert (settings.replica, settings.plan_name) == (name, SERVICES[name]["command"][-1])
