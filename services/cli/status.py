"""`lmerge status`: who leads, how many may die, and why it waits; once, or as a table that lives."""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lmerge.process.api import Api, Unreachable
from services.cli import columns
from services.cli.failure import FINE, NO
from services.cli.options import api_options, json_option, optional_merge_argument
from services.cli.status_words import HEADER, Words, describe


@click.command()
@optional_merge_argument
@click.option("--watch", is_flag=True, help="Go on, until Ctrl-C; a table that lives, if this is a terminal.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3_600), default=1.0, show_default=True, help="Seconds between two looks."
)
@json_option
@api_options
def status(*, api: Api, merge: str | None, watch: bool, interval: float, as_json: bool) -> None:
    """Say how MERGE is, or all merges: who leads, how many inputs may die now, and why it waits if it does.

    The exit code is 0 if all of them are running, and 1 if not.
    """
    if watch:
        _watch(api, merge, interval, as_json=as_json)
        return
    views = _views(api, merge)
    if as_json:
        click.echo(json.dumps(views, indent=2, ensure_ascii=False))
    elif not views:
        click.echo("no merge is defined: lmerge apply -f merge.yaml")
    words = [describe(view) for view in views]
    if not as_json:
        for each in words:
            click.echo(_text(each))
    sys.exit(FINE if all(each.running for each in words) else NO)


def _views(api: Api, merge: str | None) -> list[Any]:
    names = [item["name"] for item in api.items("/v1/merges")] if merge is None else [merge]
    return [api.get(f"/v1/merges/{name}") for name in names]


def _text(words: Words) -> str:
    lines = [words.headline, *(f"  {sentence}" for sentence in words.sentences)]
    if words.rows:
        lines += [f"  {line}" for line in columns.show(HEADER, *words.rows).splitlines()]
    return "\n".join(lines)


def _watch(api: Api, merge: str | None, interval: float, *, as_json: bool) -> None:
    try:
        if as_json or not sys.stdout.isatty():
            _print_changes(api, merge, interval, as_json=as_json)
        else:
            with Live(console=Console(), auto_refresh=False, screen=False) as live:
                for seen in _look(api, merge, interval):
                    live.update(_rich(seen), refresh=True)
    except KeyboardInterrupt:
        return


def _look(api: Api, merge: str | None, interval: float) -> Iterator[list[Any] | Unreachable]:
    """Look again and again, also while nobody answers: whoever watches wants to see the service come back."""
    yield _views(api, merge)
    while True:
        time.sleep(interval)
        try:
            yield _views(api, merge)
        except Unreachable as error:
            yield error


def _print_changes(api: Api, merge: str | None, interval: float, *, as_json: bool) -> None:
    """Print a line for each merge, and another one whenever it has changed."""
    last: dict[str, str] = {}
    for seen in _look(api, merge, interval):
        if isinstance(seen, Unreachable):
            click.echo(f"lmerge: {seen}", err=True)
            last = {}
            continue
        for view in seen:
            words = describe(view)
            line = json.dumps(view, ensure_ascii=False) if as_json else "; ".join([words.headline, *words.sentences])
            if last.get(view["name"]) != line:
                last[view["name"]] = line
                click.echo(line)


def _rich(seen: list[Any] | Unreachable) -> Group:
    if isinstance(seen, Unreachable):
        return Group(Text(str(seen), style="bold red"))
    parts: list[Text | Table] = []
    for words in map(describe, seen):
        parts.append(Text(words.headline, style="bold" if words.running else "bold red"))
        parts += [Text(f"  {sentence}") for sentence in words.sentences]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for name in HEADER:
            table.add_column(name, overflow="fold")
        for row in words.rows:
            table.add_row(*map(Text, row), style="" if row[1] == "joined" else "yellow")
        parts.append(table)
    return Group(*parts) if parts else Group(Text("no merge is defined: lmerge apply -f merge.yaml"))
