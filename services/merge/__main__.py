"""`python -m services.merge`: one process with the loop in its main thread and REST in another."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click
import uvicorn
from pydantic import SecretStr

from lmerge.errors import LMergeError
from lmerge.kafka import KafkaSettings
from services.merge.api import make_app
from services.merge.control import Control
from services.merge.loop import MergeLoop
from services.merge.metrics import Metrics
from services.merge.tokens import Tokens, development_token


@click.command(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LMERGE"})
@click.option("--bootstrap-servers", required=True, help="Kafka: host:port, several joined by commas.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where REST listens.")
@click.option("--port", default=8080, show_default=True, help="Where REST listens.")
@click.option(
    "--token-file",
    default=".run/merge-token",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Holds the development token, made on first start, unless LMERGE_ADMIN_TOKEN is set.",
)
def main(*, bootstrap_servers: str, host: str, port: int, token_file: Path) -> None:
    """Run the merge service: REST, and every merge that is defined."""
    try:
        _run(KafkaSettings(bootstrap_servers), host, port, _tokens(token_file))
    except (LMergeError, OSError) as error:
        click.echo(f"merge service: {error}", err=True)
        sys.exit(1)


def _tokens(file: Path) -> Tokens:
    admin, read = os.environ.get("LMERGE_ADMIN_TOKEN"), os.environ.get("LMERGE_READ_TOKEN")
    if admin is None:
        admin, is_new = development_token(file)
        if is_new:
            click.echo(f"merge service: made a development token (kept in {file}): {admin}", err=True)
    return Tokens(admin=SecretStr(admin), read=None if read is None else SecretStr(read))


def _run(settings: KafkaSettings, host: str, port: int, tokens: Tokens) -> None:
    control = Control(settings)
    metrics = Metrics()
    loop = MergeLoop(settings, control, metrics)
    app = make_app(settings, control, loop, metrics, tokens)
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # the main thread has them

    def end(_number: int, _frame: FrameType | None) -> None:
        loop.stop()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    thread = threading.Thread(target=server.run, name="rest", daemon=True)
    thread.start()
    click.echo(f"merge service: REST at http://{host}:{port}", err=True)
    try:
        loop.run()
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        control.close()


if __name__ == "__main__":
    main()
