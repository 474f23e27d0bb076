"""Entry point of the `lmerge` command; each subcommand is in a module of its kind."""

import click

from services.cli.apply import apply
from services.cli.certify import certify
from services.cli.compare import compare
from services.cli.failure import EPILOG, Group
from services.cli.infer import infer
from services.cli.inputs import attach, detach, fast_forward, pause, release, resume
from services.cli.merge import merge
from services.cli.merges import delete, merges
from services.cli.status import status
from services.cli.tail import tail
from services.cli.token import token
from services.cli.topics import topics


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(package_name="lmerge")
def cli() -> None:
    """Merge equivalent streams into one that is right as long as one of them is."""


for command in (
    *(merge, certify, compare, infer),
    *(merges, apply, delete, status, tail, topics),
    *(attach, detach, pause, resume, fast_forward, release),
    token,
):
    cli.add_command(command)


def main() -> None:
    """Run the command; a mistake of the user is a sentence, not a traceback."""
    cli(prog_name="lmerge")


if __name__ == "__main__":
    main()
