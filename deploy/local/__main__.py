"""The command line: `python -m deploy.local fetch | start | stop | status`."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.compose.program import ensure_compose
from deploy.local import places, prometheus
from deploy.local.artifacts import KAFKA, SPARK_CONNECTOR, ensure
from deploy.local.broker import brokers_in
from deploy.local.errors import StackError
from deploy.local.layout import layouts
from deploy.local.stack import LocalStack

_DEFAULT_NAME = "default"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; what a user can mend is told without a traceback."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error}\nIs the disk full, or {places.CHECKOUT} not yours to write?", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    else:
        return 0
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local", description="A real Apache Kafka on this machine, without Docker."
    )
    commands = parser.add_subparsers(required=True)
    fetch = commands.add_parser("fetch", help="download the broker's jars, once")
    fetch.set_defaults(run=_fetch)
    fetch.add_argument("--connector", action="store_true", help="Spark's own Kafka connector instead (for benchmarks)")
    fetch.add_argument("--prometheus", action="store_true", help="Prometheus instead (for tests of alerts, dashboards)")
    fetch.add_argument(
        "--compose", action="store_true", help="Docker Compose instead (for tests of docker-compose.yml)"
    )
    fetch.add_argument("--verify", action="store_true", help="compare again what was downloaded before")
    start = commands.add_parser("start", help="start a stack, or what is down of it, and wait until it is ready")
    start.set_defaults(run=_start)
    start.add_argument("--brokers", type=int, choices=(1, 3), help="how many (default: 1)")
    start.add_argument("--port", type=int, help="the first broker's; the others' follow (default: free ones)")
    stop = commands.add_parser("stop", help="end a stack and delete it")
    stop.set_defaults(run=_stop)
    stop.add_argument("--keep-data", action="store_true", help="do not delete it: the next start goes on with its data")
    stop.add_argument("--all", action="store_true", help="all stacks of this checkout")
    for command in (start, stop):
        command.add_argument("--name", default=_DEFAULT_NAME, help="the stack's name (default: %(default)s)")
    commands.add_parser("status", help="list the stacks").set_defaults(run=_status)
    return parser


def _fetch(options: argparse.Namespace) -> None:
    if options.prometheus:
        _fetch_for_tests(prometheus.ensure, "alerts and dashboards")
        return
    if options.compose:
        _fetch_for_tests(ensure_compose, "docker-compose.yml")
        return
    directory = ensure(SPARK_CONNECTOR if options.connector else KAFKA, verify=options.verify)
    print(f"{os.path.relpath(directory)} is {'verified' if options.verify else 'there'}")


def _fetch_for_tests(fetch: Callable[[], Path], what: str) -> None:
    """Fetch a program if it can be had: nothing that runs needs it, so a machine without it is no error."""
    try:
        print(f"{os.path.relpath(fetch())} is there")
    except StackError as error:
        print(f"note: tests of {what} will be skipped. {error}", file=sys.stderr)


def _start(options: argparse.Namespace) -> None:
    began = time.monotonic()
    stack = LocalStack(name=options.name, brokers=options.brokers, port=options.port).start()
    command = "python -m deploy.local stop"
    print(f"stack {stack.name} is ready ({time.monotonic() - began:.1f} s)")
    print(f"  bootstrap servers  {stack.bootstrap_servers}")
    print(f"  logs               {' '.join(os.path.relpath(broker.log) for broker in stack.brokers)}")
    print(f"  to stop it         {command if stack.name == _DEFAULT_NAME else f'{command} --name {stack.name}'}")


def _stop(options: argparse.Namespace) -> None:
    running = [name for name, _ in layouts(places.RUN)]
    names = running if options.all else [options.name]
    if not running and names in ([], [_DEFAULT_NAME]):
        print("no stack runs")
        return
    for name in names:
        stack = LocalStack(name=name)
        stack.stop(keep_data=options.keep_data)
        kept = f"; its data is kept in {os.path.relpath(stack.directory)}" if options.keep_data else ""
        print(f"stack {stack.name} is stopped{kept}")


def _status(_: argparse.Namespace) -> None:
    found = list(layouts(places.RUN))
    if not found:
        print("no stack runs")
    for name, layout in found:
        directory = places.RUN / name
        up = sum(broker.pid is not None for broker in brokers_in(directory, layout))
        every = len(layout.nodes)
        state = "running" if up == every else f"{up} of {every} running" if up else "down"
        print(f"{name}: {state}, {layout.bootstrap_servers}, {os.path.relpath(directory)}")


if __name__ == "__main__":
    sys.exit(main())
