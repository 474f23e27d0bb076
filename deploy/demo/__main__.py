"""Entry point of `make demo`: options, signals, and how it ended."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Final

import click
from rich.console import Console

from deploy.demo import keep as playing
from deploy.demo.errors import DemoError
from deploy.demo.rest import MergeApi
from deploy.demo.scenario import Scenario
from deploy.demo.screen import open_screen
from deploy.demo.stage import Stage
from deploy.demo.verdict import Verdict
from deploy.demo.watch import Watch
from deploy.local import LocalStack
from lmerge.errors import LMergeError
from lmerge.kafka import KafkaSettings

WRONG: Final = 1
FAILED: Final = 2
STOPPED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--keep", is_flag=True, help="Leave everything running after the verdict, until Ctrl-C.")
def main(*, keep: bool) -> None:
    """Run a replicated query on this machine, kill the leading replica, and prove that nobody downstream noticed.

    The exit code is 0 if the merged topic is right, 1 if it is not, 2 if the demo could not be played, and 130 if it
    was stopped.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    console = Console(highlight=False)
    try:
        sys.exit(_run(console, keep=keep))
    except KeyboardInterrupt as stop:
        print(f"demo: stopped by {stop}; everything that it had started is gone", file=sys.stderr)
        sys.exit(STOPPED)
    except (LMergeError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(FAILED)


def _run(console: Console, *, keep: bool) -> int:
    """Play the demo; whatever it starts is gone when this returns or raises."""
    began = time.monotonic()
    with ExitStack() as stack:
        with open_screen(console, began) as screen:
            screen.say("starting a Kafka broker")
            stage = Stage(stack.enter_context(LocalStack()))
            stack.callback(stage.close)
            screen.say(f"Kafka runs at {stage.bootstrap_servers}")
            api = stack.enter_context(MergeApi(stage.rest, stage.token))
            watch = stack.enter_context(Watch(KafkaSettings(stage.bootstrap_servers), api, began))
            stack.callback(_ignore_signals)  # entered last, so it comes first: cleaning up is not to be interrupted
            scenario = Scenario(stage, api, watch, screen, began)
            verdict = _or_keep_logs(stage, scenario.play)
        _print(console, verdict)
        if not verdict.is_right:
            console.print(f"the logs are kept in {stage.keep_logs()}")
        if keep:
            playing.go_on(stage, after_ms=scenario.closing_ms)
            print(playing.instructions(stage), flush=True)
            with open_screen(console, began) as screen:
                playing.watch_on(stage, watch, screen)
    return 0 if verdict.is_right else WRONG


def _or_keep_logs(stage: Stage, play: Callable[[], Verdict]) -> Verdict:
    """Play, and keep the logs if that fails."""
    try:
        return play()
    except (LMergeError, OSError) as error:
        raise DemoError(f"{error}\n\nAll logs are in {stage.keep_logs()}; `make demo` begins anew") from error


def _print(console: Console, verdict: Verdict) -> None:
    right = verdict.is_right
    console.print("\nverdict: the merged topic is [bold]%s[/]" % ("[green]right" if right else "[red]WRONG"))
    for what, figure in verdict.lines():
        console.print(f"  {what:<16} {figure}", markup=False, soft_wrap=True)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Take the first signal as Ctrl-C; from then on the demo is cleaning up."""
    _ignore_signals()
    raise KeyboardInterrupt("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main(prog_name="python -m deploy.demo")
