"""`python -m services.merge`: one process, a thread for each merge, and REST in another."""

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

import click
import uvicorn

from lmerge.errors import LMergeError
from lmerge.kafka import KafkaSettings, TopicAdmin
from services.log import log
from services.merge.api import Parts, make_app
from services.merge.control import Control
from services.merge.lane_records import LaneRecords
from services.merge.metrics import Metrics
from services.merge.supervisor import Supervisor
from services.merge.tokens import Tokens, development_token, from_environment


@click.command(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LMERGE"})
@click.option("--bootstrap-servers", required=True, help="Kafka: host:port, several joined by commas.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where REST listens.")
@click.option("--port", default=8080, show_default=True, help="Where REST listens.")
@click.option(
    "--token-file",
    default=".run/merge-token",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Tokens, a line `name scope token` each, read again when it changes. Made with a development token on first "
    "start, unless LMERGE_ADMIN_TOKEN is set.",
)
@click.option(
    "--session-ms",
    default=2_000,
    show_default=True,
    help="After how long without a sign of life another process takes the lanes over; 6 s where the broker's minimum "
    "for the group protocol is not lowered.",
)
def main(*, bootstrap_servers: str, host: str, port: int, token_file: Path, session_ms: int) -> None:
    """Run the merge service: REST, and every merge that is defined."""
    try:
        _run(KafkaSettings(bootstrap_servers), host, port, _tokens(token_file), session_ms)
    except (LMergeError, OSError) as error:
        click.echo(f"merge service: {error}", err=True)
        sys.exit(1)


def _tokens(file: Path) -> Tokens:
    fixed = from_environment(os.environ)
    if fixed:
        return Tokens(fixed, file if file.exists() else None)
    made = development_token(file)
    if made is not None:
        click.echo(f"merge service: made a development token (kept in {file}): {made}", err=True)
    return Tokens(file=file)


def _run(settings: KafkaSettings, host: str, port: int, tokens: Tokens, session_ms: int) -> None:
    control = Control(settings)
    records = LaneRecords(settings)
    metrics = Metrics()
    owner = f"{socket.gethostname()}/{os.getpid()}"
    supervisor = Supervisor(settings, control, metrics, owner=owner, session_ms=session_ms)
    app = make_app(Parts(control, records, supervisor, TopicAdmin(settings), metrics.registry), tokens)
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # the main thread has them

    def end(_number: int, _frame: FrameType | None) -> None:
        supervisor.stop()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    thread = threading.Thread(target=server.run, name="rest", daemon=True)
    thread.start()
    log("info", "begun", url=f"http://{host}:{port}", owner=owner)
    try:
        supervisor.run()
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        records.close()
        control.close()


if __name__ == "__main__":
    main()
