"""`lmerge attach`, `detach`, `pause`, `resume`, `fast-forward`, `release`: the inputs of a merge."""

import json
from typing import Any, Final

import click

from lmerge.errors import UsageError
from lmerge.process.api import Api, NotGranted
from services.cli.options import api_options, input_argument, json_option, merge_argument, say, why_option
from services.moment import Moment

_PROPERTIES: Final[dict[str, dict[str, Any]]] = {
    "r0": {"insert_only": True, "order": "strictly increasing"},
    "r1": {"insert_only": True, "order": "non-decreasing", "tie_order": "rank"},
    "r2": {"insert_only": True, "order": "non-decreasing", "key": True},
    "r3": {"key": True},
    "r4": {},
}
"""What an input promises when it is said to be fit for an algorithm."""


@click.command()
@merge_argument
@input_argument
@click.option("--topic", required=True, help="The topic that it writes, with as many partitions as the merge.")
@click.option("--joins-at", type=Moment(), help="It is complete from here on; for topics without a hello.")
@click.option(
    "--properties",
    metavar="r0|r1|r2|r3|r4|JSON",
    help="What it promises: what this algorithm needs (of r1, ties in rank order), or each promise in JSON.",
)
@why_option
@json_option
@api_options
def attach(
    *,
    api: Api,
    merge: str,
    name: str,
    topic: str,
    joins_at: int | None,
    properties: str | None,
    why: str,
    as_json: bool,
) -> None:
    """Attach INPUT to MERGE. To attach it twice in the same way changes nothing."""
    body: dict[str, Any] = {"topic": topic}
    if joins_at is not None:
        body["joins_at"] = joins_at
    if properties is not None:
        body["properties"] = _promised(properties)
    made, view = api.put(f"/v1/merges/{merge}/inputs/{name}", body, why)
    text = f"attached {name} to {merge}" if made else f"{name} is attached to {merge} already"
    say(view, f"{text}: {view['observed']['membership']}", as_json=as_json)


def _promised(text: str) -> Any:
    if text.lower() in _PROPERTIES:
        return _PROPERTIES[text.lower()]
    try:
        promised = json.loads(text)
    except ValueError:
        promised = None
    if not isinstance(promised, dict):
        raise UsageError(f'--properties {text}: give r0 to r4, or JSON such as {{"key": true}}')
    return promised


@click.command()
@merge_argument
@input_argument
@why_option
@json_option
@api_options
def detach(*, api: Api, merge: str, name: str, why: str, as_json: bool) -> None:
    """Detach INPUT from MERGE. What it has said stays."""
    api.delete(f"/v1/merges/{merge}/inputs/{name}", why)
    say({"merge": merge, "input": name, "attached": False}, f"detached {name} from {merge}", as_json=as_json)


@click.command()
@merge_argument
@input_argument
@why_option
@json_option
@api_options
def pause(*, api: Api, merge: str, name: str, why: str, as_json: bool) -> None:
    """Hold INPUT: it is not read until it is resumed."""
    view = api.post(f"/v1/merges/{merge}/inputs/{name}:pause", why=why)
    say(view, f"{name} of {merge} is paused: lmerge resume {merge} {name}", as_json=as_json)


@click.command()
@merge_argument
@input_argument
@why_option
@json_option
@api_options
def resume(*, api: Api, merge: str, name: str, why: str, as_json: bool) -> None:
    """Let INPUT go on that was paused."""
    view = api.post(f"/v1/merges/{merge}/inputs/{name}:resume", why=why)
    say(view, f"{name} of {merge} is read again", as_json=as_json)


@click.command("fast-forward")
@merge_argument
@input_argument
@click.option("--before", type=Moment(), help="Skip what ends before it.  [default: the most that is allowed]")
@why_option
@json_option
@api_options
def fast_forward(*, api: Api, merge: str, name: str, before: int | None, why: str, as_json: bool) -> None:
    """Tell INPUT to skip ahead, no further than every lane of MERGE has committed."""
    if before is None:
        before = _furthest(api, merge)
    view = api.post(f"/v1/merges/{merge}/inputs/{name}:fast-forward", {"before": before}, why)
    say(view, f"{name} of {merge} is told that nothing before {before} matters any more", as_json=as_json)


def _furthest(api: Api, merge: str) -> int:
    stable = api.get(f"/v1/merges/{merge}")["observed"]["stable"]
    if isinstance(stable, int):
        return stable
    reason = "it has come nowhere yet in one of its lanes" if stable is None else "it has ended"
    raise NotGranted(f"merge {merge}: {reason}, so there is nothing to skip: lmerge status {merge}")


@click.command()
@merge_argument
@input_argument
@click.option("--skip-record", is_flag=True, help="Read on without the record that broke it; else wait for a hello.")
@why_option
@json_option
@api_options
def release(*, api: Api, merge: str, name: str, skip_record: bool, why: str, as_json: bool) -> None:
    """Lift the quarantine of INPUT."""
    view = api.post(f"/v1/merges/{merge}/inputs/{name}:release", {"skip_record": skip_record}, why)
    how = "read again without the record that broke it" if skip_record else "read again from its next hello on"
    say(view, f"{name} of {merge} is {how}", as_json=as_json)
