"""`lmerge merge A.jsonl B.jsonl …`: merge files or pipes of elements to standard output, without a broker."""

import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from lmerge import OutputPolicy, UsageError
from lmerge.codec import encode_batch
from services.cli.lines import Lines
from services.cli.merge_run import MergeRun

_CHUNK = 1 << 16
"""Bytes read of one input before the next has its turn: one pipe buffer on Linux."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--algorithm",
    type=click.Choice(["R0", "R1", "R2", "R3", "R4"]),
    default="R3",
    show_default=True,
    help="R3 takes any stream with unique (payload, vs), R4 any at all; R0 to R2 need ordered inserts.",
)
@click.option("--policy", default="", metavar="NAMES", help='For R3, such as "half_frozen" or "quorum(2),eager".')
@click.option("--origin", type=int, help="Where the merge begins [default: where the first input to speak joins].")
@click.option("--check", is_flag=True, help="Judge every output element against the inputs, independently; slower.")
@click.option("--stats", is_flag=True, help="Print counters to standard error at the end.")
def merge(*, files: tuple[str, ...], algorithm: str, policy: str, origin: int | None, check: bool, stats: bool) -> None:
    """Merge FILES of elements, one JSON element per line as on the wire, into one stream on standard output.

    Files and pipes are read in turn, a part of each at a time; none is waited for while another has something to say.
    An input that breaks its contract is named with its line and left out from there on; the others go on. The exit code
    is 0 if all went well, 1 if an input was left out or a check failed, and 2 if the command could not begin.
    """
    if len(set(files)) < len(files):
        raise UsageError("an input is named twice: give each replica a file of its own")
    run = MergeRun(files, algorithm, OutputPolicy.parse(policy) if policy else None, origin=origin, check=check)
    for lines in _read_in_turn(files, run.is_held):
        for value in encode_batch(run.feed(lines)):
            sys.stdout.buffer.write(value + b"\n")
        sys.stdout.buffer.flush()
        for complaint in run.take_complaints():
            click.echo(f"lmerge: {complaint}", err=True)
    for complaint in run.finish():
        click.echo(f"lmerge: {complaint}", err=True)
    if stats:
        click.echo(run.summary(), err=True)
    sys.exit(1 if run.failed else 0)


def _read_in_turn(files: tuple[str, ...], is_held: Callable[[str], bool]) -> Iterator[Lines]:
    """Yield the lines of whichever input has some, in the order in which they were named.

    One that is held is left alone until the others have come further; when only such are left, that is the end.
    """
    streams: dict[str, BinaryIO] = {}
    with ExitStack() as stack:
        for name in files:
            streams[name] = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
        lines = {name: Lines(name) for name in files}
        while readable := [name for name in streams if not is_held(name)]:
            for name in _wait_for_any(readable, streams):
                chunk = os.read(streams[name].fileno(), _CHUNK)
                lines[name].add(chunk)
                if not chunk:
                    del streams[name]
                yield lines[name]


def _wait_for_any(names: list[str], streams: Mapping[str, BinaryIO]) -> list[str]:
    """Return those that can be read now. By select, since the other ways refuse ordinary files."""
    ready, _, _ = select.select([streams[name] for name in names], [], [])
    return [name for name in names if streams[name] in ready]
