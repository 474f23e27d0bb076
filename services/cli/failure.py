"""How the command ends: exit codes that scripts can use, and a sentence instead of a traceback."""

from typing import Any, Final

import click

from lmerge.errors import LMergeError
from lmerge.kafka import MissingTopic, RebuildError, RetryError, StopError
from lmerge.process.api import NotGranted, Unreachable

FINE: Final = 0
NO: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4

EPILOG: Final = """\
\b
Exit codes
  0  fine
  1  the answer is no: not certified, not equal, not running, an input was left out
  2  the command makes no sense, or names what is not there
  3  the merge service or Kafka did not answer: try again
  4  refused, by the merge service (401, 403, 404, 409, 422 and the like) or by Kafka; the message says what to do

\b
Completion
  bash: eval "$(_LMERGE_COMPLETE=bash_source lmerge)"
  zsh:  eval "$(_LMERGE_COMPLETE=zsh_source lmerge)"
  fish: _LMERGE_COMPLETE=fish_source lmerge | source
"""


def exit_code(error: LMergeError) -> int:
    """Return the code of an error."""
    if isinstance(error, (Unreachable, RetryError, RebuildError)):
        return UNREACHABLE
    if isinstance(error, MissingTopic):
        return USAGE  # somebody named it
    return REFUSED if isinstance(error, (NotGranted, StopError)) else USAGE


class Group(click.Group):
    """Commands whose errors end in an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except LMergeError as error:
            click.echo(f"lmerge: {error}", err=True)
            raise click.exceptions.Exit(exit_code(error)) from error
