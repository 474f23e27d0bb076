"""`lmerge token`: a token for a merge service that is about to be set up."""

from pathlib import Path

import click

from lmerge.errors import UsageError
from services.cli.options import json_option, say
from services.merge.tokens import development_token


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def token(*, file: Path, as_json: bool) -> None:
    """Make an admin's token in FILE, for the --token-file of the merge service and of those who call it.

    A file that is there stays as it is. Only its owner can read it; the token itself is not shown.
    """
    try:
        made = development_token(file) is not None
    except OSError as error:
        raise UsageError(f"token file {file}: cannot be written: {error.strerror}") from error
    text = f"made a token in {file}" if made else f"{file} is there already"
    say({"file": str(file), "made": made}, text, as_json=as_json)
