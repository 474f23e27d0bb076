"""Entry point of the `lmerge` command; each subcommand is a module of its own."""

import sys

import click

from lmerge.errors import LMergeError
from services.cli.certify import certify
from services.cli.compare import compare
from services.cli.merge import merge


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lmerge")
def cli() -> None:
    """Merge equivalent streams into one that is right as long as one of them is."""


cli.add_command(certify)
cli.add_command(compare)
cli.add_command(merge)


def main() -> None:
    """Run the command; a mistake of the user is a sentence, not a traceback."""
    try:
        cli(prog_name="lmerge")
    except LMergeError as error:
        click.echo(f"lmerge: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
