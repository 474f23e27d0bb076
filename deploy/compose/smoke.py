"""Run as a script by the service `smoke` of docker-compose.yml: is the stack alive, and is its merged topic right?

It uses what every user has, the API and the consumer: all replicas are joined, final events come, they go on coming
while the input that leads is paused over REST (if it is not the only one), and `lmerge certify` finds the merged topic
right. The exit code is 0 if all of that is so. In a stack that is so old that Kafka has dropped the beginning of the
merged topic, or of an input's, nobody can judge it from there: then the last step is left out, and it says so.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from lmerge.errors import LMergeError
from lmerge.kafka import KafkaSettings, MergedReader, MissingTopic, Position, RetryError, TailReader, Watermarks
from lmerge.process.api import Api, NotGranted, Unreachable
from lmerge.process.kafka_options import kafka_options
from services.cli.definition import resolve_merge
from services.cli.options import api_options

EVENTS: Final = 20
"""How many final events are taken for a sign of life: those of a window or two."""

_PAUSE_SECONDS: Final = 0.5


class SmokeError(LMergeError):
    """Something is not as it should be."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--merge", default="hot_items", help="The merge to look at.")
@click.option("--inputs", default=3, help="How many inputs must be joined.")
@click.option("--seconds", default=180.0, help="How long to wait for each step.")
@kafka_options()
@api_options
def smoke(*, api: Api, kafka: KafkaSettings, merge: str, inputs: int, seconds: float) -> None:
    """See that a merge has its inputs, that its topic grows, and that it is right."""
    look = Look(api, kafka, merge, seconds)
    joined = look.wait(lambda: look.joined(inputs), f"{inputs} inputs are joined", look.why_not)
    say(f"{len(joined)} inputs are joined: {', '.join(joined)}")
    say(f"{look.wait_for_events()} final events came from {look.topic}")
    if len(joined) > 1:  # one alone cannot be spared
        leader = look.leader()
        with paused(api, merge, leader):
            say(f"paused {leader}, which led; {look.wait_for_events()} more events came without it")
        look.wait(lambda: leader in look.joined(inputs), f"{leader} is joined again after its pause", look.why_not)
        say(f"{leader} goes on")
    if look.is_whole():
        certify(kafka, merge)
        say(f"{look.topic} is right")
    else:
        say(f"{look.topic} is alive; too old to be judged from its beginning, which retention has removed")


class Look:
    """What is seen of a merge.

    Args:
        api: the merge service.
        kafka: the cluster.
        merge: its name.
        seconds: how long to wait for something to come true.
    """

    def __init__(self, api: Api, kafka: KafkaSettings, merge: str, seconds: float) -> None:
        self._api = api
        self._kafka = kafka
        self._merge = merge
        self._seconds = seconds
        self.topic = f"{merge}.merged"

    def wait(self, found: Callable[[], Any], what: str, why_not: Callable[[], str] = str) -> Any:
        """Wait until something is found, and return it.

        Raises:
            SmokeError: it was not found in time.
        """
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                if result := found():
                    return result
                reason = why_not()
            except (Unreachable, RetryError, MissingTopic) as error:
                reason = str(error)
            if time.monotonic() > deadline:
                raise SmokeError(f"not within {self._seconds:g} s: {what}. {reason}".strip())
            time.sleep(_PAUSE_SECONDS)

    def joined(self, least: int) -> list[str]:
        """Return the inputs that are joined in every lane and read now, if there are so many."""
        lanes = self._lanes()
        names = sorted({name for lane in lanes for name in lane["inputs"]})
        joined = [name for name in names if all(_is_joined(lane["inputs"].get(name)) for lane in lanes)]
        return joined if len(joined) >= least else []

    def why_not(self) -> str:
        """Say how lanes and inputs are, for an error."""
        states = [
            f"lane {number}: {lane['state']}"
            + "".join(
                f", {' '.join([name, one['membership'], *one['conditions']])}" for name, one in lane["inputs"].items()
            )
            for number, lane in enumerate(self._lanes())
        ]
        return "; ".join(states) or "no lane runs; see: docker compose logs merge-1 merge-2"

    def leader(self) -> str:
        """Return the input that leads in the first lane that has a leader."""
        return str(
            self.wait(lambda: next((lane["leader"] for lane in self._lanes() if lane["leader"]), ""), "one leads")
        )

    def wait_for_events(self) -> int:
        """Wait for final events that were not there yet, and return how many there are."""
        start = self.wait(self._ends, f"{self.topic} is there")
        return int(self.wait(lambda: self._new_events(start), f"{EVENTS} new events are in {self.topic}", self.why_not))

    def is_whole(self) -> bool:
        """Whether the merged topic and those it is judged by still have their beginning, in every lane.

        What only the lost part of an input's topic bears out would look wrong.
        """
        judged_by = resolve_merge(self._kafka, self._merge).inputs
        return all(each.low == 0 for topic in (self.topic, *judged_by) for each in self._watermarks(topic))

    def _ends(self) -> dict[int, Position]:
        return {lane: Position(each.end) for lane, each in enumerate(self._watermarks(self.topic))}

    def _watermarks(self, topic: str) -> list[Watermarks]:
        with TailReader(self._kafka) as reader:
            return [reader.watermarks(topic, lane) for lane in range(len(self._lanes()))]

    def _new_events(self, start: dict[int, Position]) -> int:
        with MergedReader(self._kafka, self.topic, start=start, follow=False, accept_gap=True) as reader:
            count = sum(1 for _ in reader.events())
        return count if count >= EVENTS else 0

    def _lanes(self) -> list[dict[str, Any]]:
        lanes: list[dict[str, Any]] = self._api.get(f"/v1/merges/{self._merge}")["observed"]["lanes"]
        return lanes


def _is_joined(one: dict[str, Any] | None) -> bool:
    return (
        one is not None and one["membership"] == "joined" and not {"paused", "silent"}.intersection(one["conditions"])
    )


@contextmanager
def paused(api: Api, merge: str, name: str) -> Iterator[None]:
    """Pause an input for the block."""
    path = f"/v1/merges/{merge}/inputs/{name}"
    api.post(f"{path}:pause", why="smoke test")
    try:
        yield
    finally:
        api.post(f"{path}:resume", why="smoke test")


def certify(kafka: KafkaSettings, merge: str) -> None:
    """Let `lmerge certify` judge the merged topic; it prints its report.

    Raises:
        SmokeError: it is not right, or cannot be judged.
    """
    command = [sys.executable, "-m", "services.cli", "certify", "--merge", merge]
    done = subprocess.run([*command, "--bootstrap-servers", kafka.bootstrap_servers], check=False)
    if done.returncode:
        raise SmokeError(
            f"lmerge certify does not find the merged topic of {merge} right (exit code {done.returncode})"
        )


def say(text: str) -> None:
    """Tell a step that is done."""
    click.echo(f"smoke: {text}")


def main() -> None:
    """Run it; whatever is wrong is one line."""
    try:
        smoke(prog_name="smoke", standalone_mode=True)
    except NotGranted as error:
        sys.exit(f"smoke: the merge service refuses: {error}")
    except LMergeError as error:
        sys.exit(f"smoke: {error}")


if __name__ == "__main__":
    main()
