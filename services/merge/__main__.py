"""`python -m services.merge`: one process, a thread for each merge, and REST in another."""

import os
import signal
import socket
import sys
from contextlib import ExitStack
from types import FrameType

import click

from lmerge.errors import LMergeError
from lmerge.kafka import TopicAdmin
from services.log import log
from services.merge.api import Parts, make_app
from services.merge.api.server import RestServer
from services.merge.control import Control
from services.merge.lane_records import LaneRecords
from services.merge.metrics import Metrics
from services.merge.options import ServiceSettings, service_options
from services.merge.supervisor import Supervisor

ANSWER_SECONDS = 5.0
"""How long a REST call waits for the broker to say whether a topic exists, or what a lane has committed."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LMERGE"})
@service_options
def main(settings: ServiceSettings) -> None:
    """Run the merge service: REST, and every merge that is defined."""
    _run(settings)


def _run(settings: ServiceSettings) -> None:
    with ExitStack() as stack:
        control = Control(settings.kafka)
        stack.callback(control.close)
        records = LaneRecords(settings.kafka, timeout_seconds=ANSWER_SECONDS)
        stack.callback(records.close)
        metrics = Metrics()
        owner = f"{socket.gethostname()}/{os.getpid()}"
        supervisor = Supervisor(settings.kafka, control, metrics, owner=owner, pace=settings.pace)

        def end(_number: int, _frame: FrameType | None) -> None:
            supervisor.stop()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        topics = TopicAdmin(settings.kafka, timeout_seconds=ANSWER_SECONDS)
        app = make_app(Parts(control, records, supervisor, topics, metrics.registry), settings.tokens)
        server = stack.enter_context(RestServer(app, settings.rest))
        log("info", "begun", url=server.url, owner=owner)
        supervisor.run()


if __name__ == "__main__":
    try:
        main()
    except (LMergeError, OSError) as error:
        click.echo(f"merge service: {error}", err=True)
        sys.exit(1)
