"""Draw what every panel shows of a run in which a replica is killed: `python -m deploy.grafana.pictures`.

The run is the demo's (`deploy/demo`), with a Prometheus beside it that has the deployed configuration. Grafana is not
needed, and not shown: these are the answers to the panels' questions, where Grafana would draw them.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from deploy.demo import query
from deploy.demo.rest import MergeApi
from deploy.demo.scenario import Scenario
from deploy.demo.screen import open_screen
from deploy.demo.stage import Stage
from deploy.demo.watch import Watch
from deploy.grafana.ask import Asker
from deploy.grafana.canvas import Canvas
from deploy.grafana.generate import DASHBOARDS
from deploy.local import LocalStack, places
from deploy.local.prometheus import Prometheus, configure
from lmerge.errors import LMergeError
from lmerge.kafka import KafkaSettings

_PIXELS: Final = 100
"""For each inch."""

_RATE_SECONDS: Final = 65.0
"""After which what the start had to catch up with has gone from the rates of the last minute: the picture begins."""

_CALM_SECONDS: Final = _RATE_SECONDS + 40.0
"""Before the kill."""

_AFTER_SECONDS: Final = 15.0
"""After the last act, so that what it did is in the picture and not at its edge."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), default=places.RUN / "pictures")
@click.option("--prometheus", "url", help="Draw what this Prometheus knows instead of playing the demo.")
@click.option("--minutes", type=float, default=15.0, help="How far back, with --prometheus.")
@click.option("--merge", default=query.MERGE, help="Which merge.")
@click.option("--feed", default=query.FEED, help="Which feed.")
def main(*, into: Path, url: str | None, minutes: float, merge: str, feed: str) -> None:
    """Draw a picture of each dashboard."""
    values = {"merge": merge, "feed": feed}
    try:
        if url is None:
            _play(into, values)
        else:
            now = time.time()
            draw_all(url, (now - 60 * minutes, now), values, into)
    except (LMergeError, OSError) as error:
        print(f"pictures: {error}", file=sys.stderr)
        sys.exit(1)


def _play(into: Path, values: Mapping[str, str]) -> None:
    """Play the acts of the demo, and draw them; whatever is started is gone when this returns or raises."""
    began = time.monotonic()
    with ExitStack() as stack, open_screen(Console(highlight=False), began) as screen:
        stage = Stage(stack.enter_context(LocalStack()))
        stack.callback(stage.close)
        api = stack.enter_context(MergeApi(stage.rest, stage.token))
        watch = stack.enter_context(Watch(KafkaSettings(stage.bootstrap_servers), api, began))
        configuration = configure(stage.directory / "prometheus" / "configuration", stage.metrics)
        prometheus = stack.enter_context(Prometheus(configuration, stage.directory / "prometheus"))
        Scenario(stage, api, watch, screen, began, calm_seconds=_CALM_SECONDS).play_acts()
        end = time.monotonic() + _AFTER_SECONDS
        while time.monotonic() < end:
            screen.show(watch.look())
        calm = (watch.calm_since_ms or 0) / 1_000
        for file in draw_all(prometheus.url, (calm + _RATE_SECONDS, time.time()), values, into):
            screen.say(f"drawn: {file}")


def draw_all(url: str, span: tuple[float, float], values: Mapping[str, str], into: Path) -> list[Path]:
    """Draw every dashboard, and return the files.

    Args:
        url: of Prometheus.
        span: from when to when, in seconds since 1970.
        values: of the dashboards' variables.
        into: the directory; made if it is not there.

    Raises:
        StackError: Prometheus does not answer.
    """
    into.mkdir(parents=True, exist_ok=True)
    files = []
    with Asker(url) as asker:
        for file in sorted(DASHBOARDS.glob("*.json")):
            picture = into / f"{file.stem}.png"
            figure = Canvas(asker, msgspec.json.decode(file.read_bytes()), span, values).draw()
            figure.savefig(picture, dpi=_PIXELS)
            files.append(picture)
    return files


if __name__ == "__main__":
    main(prog_name="python -m deploy.grafana.pictures")
