"""`python -m replicas`: run one replica of a query."""

import logging
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click

from lmerge.errors import LMergeError, UsageError
from lmerge.process.api import DEVELOPMENT_FILE, find_token
from lmerge.process.kafka_options import cluster_options
from replicas.attachment import connect
from replicas.options import make_settings, pairs, read_defaults
from replicas.process import Address, run
from replicas.settings import MAX_CUTS, MAX_ROWS, TRANSACTION_TIMEOUT_MS

_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _use_file(context: click.Context, _option: click.Parameter, file: Path | None) -> None:
    """Let the keys of a file be the defaults of the options; click asks the command line and the environment first."""
    if file is not None:
        context.default_map = read_defaults(file, context.command)


class _Command(click.Command):
    """A command whose errors are one line and an exit code: 2 if what it was told cannot be, 1 if it failed."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run it."""
        try:
            return super().main(*args, **extra)
        except UsageError as error:
            click.echo(f"replicas: {error}", err=True)
            sys.exit(2)
        except LMergeError as error:
            click.echo(f"replicas: {error}", err=True)
            sys.exit(1)


@click.command(
    cls=_Command,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "auto_envvar_prefix": "LMERGE_REPLICA",
    },
)
@click.option(
    "--config",
    type=_FILE,
    is_eager=True,
    expose_value=False,
    callback=_use_file,
    metavar="FILE",
    help="Settings (TOML): every flag as a key, such as max_cuts; flags and the environment win.",
)
@cluster_options()
@click.option("--merge", required=True, help="The merge that this replica is for.")
@click.option("--feed", type=click.Path(path_type=Path), help="Feed file (TOML), in place of the one the query names.")
@click.option("--query", required=True, help="A shipped query, or your own: a .sql or .py file, or a module.")
@click.option("--plan", required=True, help="Which of its plans.")
@click.option("--replica", required=True, help="Id; it writes <merge>.replica.<id>.")
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path), help="Directory of this replica alone.")
@click.option("--partitions", default=1, help="Partitions of the merge.")
@click.option("--max-cuts", default=MAX_CUTS, help="Most heartbeats of a batch.")
@click.option(
    "--max-rows", default=MAX_ROWS, help="Most rows of a batch, of all topics together, unless one cut has more."
)
@click.option("--window-ms", type=int, help="Length of the windows, in place of the query's.")
@click.option("--slide-ms", type=int, help="Distance of their starts, in place of the query's.")
@click.option(
    "--topic", multiple=True, metavar="SOURCE=TOPIC", help="Topic of a source of the query, if named otherwise."
)
@click.option("--trigger-ms", default=100, help="Shortest time from one batch to the next.")
@click.option(
    "--transaction-timeout-ms", default=TRANSACTION_TIMEOUT_MS, help="Longest time that writing a batch may take."
)
@click.option("--wait-seconds", default=60.0, help="How long to wait for the feed's first heartbeat.")
@click.option(
    "--start",
    default="first",
    metavar="WHERE",
    help="Without a checkpoint: first, latest, heartbeat:N, or time:T (ms or ISO 8601; rows from T on are read).",
)
@click.option(
    "--feedback",
    metavar="TOPIC",
    help="Where the merge tells a replica that lags to skip ahead; an empty word: never.  [default: <merge>.feedback]",
)
@click.option("--master", default="local[*]", help="Spark master.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting.")
@click.option("--host", default="127.0.0.1", help="Where health and metrics are, if a port is given.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port of health and metrics.")
@click.option("--api", metavar="URL", help="The merge service: attach to the merge there, and detach when stopped.")
@click.option(
    "--token",
    envvar=["LMERGE_TOKEN", "LMERGE_ADMIN_TOKEN"],
    show_envvar=True,
    help="Who we are to it; other users may see it: use the others.",
)
@click.option(
    "--token-file",
    type=_FILE,
    envvar="LMERGE_TOKEN_FILE",
    show_envvar=True,
    help=f"The token is the last word of its first line.  [default: {DEVELOPMENT_FILE}, if it is there]",
)
@click.option("--ca", type=_FILE, envvar="LMERGE_CA", show_envvar=True, help="Certificates to trust, for https.")
def main(
    *,
    master: str,
    conf: tuple[str, ...],
    host: str,
    port: int | None,
    api: str | None,
    token: str | None,
    token_file: Path | None,
    ca: Path | None,
    **given: Any,
) -> None:
    """Run one replica: read a feed, compute a query by one plan, write the result as a stream of elements.

    It goes on from its checkpoint if it has one. SIGTERM stops it between two batches. The exit code is 0 if it was
    stopped, 1 if it failed, and 2 if what it was told cannot be. With --port there are /healthz, /readyz and /metrics.

    Each flag can be given in the environment as well, such as LMERGE_REPLICA_MAX_CUTS, or as a key of the file of
    --config, such as max_cuts. --topic and --conf are tables there, and words with blanks between them in the
    environment.
    """
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("replicas").setLevel(logging.INFO)
    settings = make_settings(given)
    with nullcontext() if api is None else connect(api, find_token(token, token_file), ca) as service:
        run(
            settings,
            master=master,
            spark_settings=pairs("conf", conf),
            address=None if port is None else Address(host, port),
            api=service,
        )


if __name__ == "__main__":
    main(prog_name="python -m replicas")
