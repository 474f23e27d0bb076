"""Options that commands share: where the merge service is, who calls, why, and how to answer."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from lmerge.errors import LMergeError
from lmerge.process.api import DEVELOPMENT_FILE, Api, find_token

DEFAULT_URL: Final = "http://127.0.0.1:8080"

_FILE: Final = click.Path(dir_okay=False, path_type=Path)

R = TypeVar("R")


def api_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of the API; it gets ``api``."""

    @click.option("--url", envvar="LMERGE_URL", show_envvar=True, default=DEFAULT_URL, help="The merge service.")
    @click.option(
        "--token", envvar="LMERGE_TOKEN", show_envvar=True, help="Who calls; other users may see it: use the others."
    )
    @click.option(
        "--token-file",
        envvar="LMERGE_TOKEN_FILE",
        show_envvar=True,
        type=_FILE,
        help=f"The token is the last word of its first line.  [default: {DEVELOPMENT_FILE}, if it is there]",
    )
    @click.option("--ca", envvar="LMERGE_CA", show_envvar=True, type=_FILE, help="Certificates to trust, for https.")
    @functools.wraps(command)
    def with_api(*, url: str, token: str | None, token_file: Path | None, ca: Path | None, **others: Any) -> R:
        with Api(url, find_token(token, token_file), ca=ca) as api:
            return command(api=api, **others)

    return with_api


def json_option(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command --json."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def why_option(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command --why."""
    return click.option("--why", default="", metavar="TEXT", help="Kept with the change and shown.")(command)


def merge_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the name of a merge."""
    return click.argument("merge", shell_complete=_complete_merge)(command)


def optional_merge_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the name of a merge, or none for all of them."""
    return click.argument("merge", required=False, shell_complete=_complete_merge)(command)


def input_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the name of an input; the merge comes before it."""
    return click.argument("name", metavar="INPUT", shell_complete=_complete_input)(command)


def say(data: Any, text: str, *, as_json: bool) -> None:
    """Answer, to a program or to people."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False) if as_json else text)


def _complete_merge(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(ctx, "/v1/merges", incomplete)


def _complete_input(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(ctx, f"/v1/merges/{ctx.params.get('merge')}/inputs", incomplete)


def _complete(ctx: click.Context, path: str, incomplete: str) -> list[CompletionItem]:
    given = ctx.params
    try:
        token = find_token(given.get("token"), given.get("token_file"))
        with Api(given.get("url") or DEFAULT_URL, token, ca=given.get("ca")) as api:
            names = [item["name"] for item in api.items(path)]
    except LMergeError:  # a shell that completes has no place for errors
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
