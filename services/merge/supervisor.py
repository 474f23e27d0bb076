"""Runs a loop, in a thread of its own, for every merge that is wanted."""

import gc
import threading
from typing import Final

from lmerge import LMergeError
from lmerge.kafka import KafkaSettings
from services.log import log
from services.merge.control import Control
from services.merge.loop import MergeLoop
from services.merge.metrics import LaneCollector, Metrics
from services.merge.pace import Pace

FOLLOW_SECONDS: Final = 0.2
"""How soon a change that another process wrote is seen."""

COLLECT_AFTER: Final = 50_000
"""Python looks for cycles after so many new objects, in place of 700. A step makes thousands that live for moments, and
no cycles: looking took a twentieth of the loop's time."""


class Supervisor:
    """Follows the desired state: one loop for each merge.

    Args:
        settings: the cluster.
        control: the desired state.
        metrics: what to count.
        owner: the name of this process, for people.
        pace: how often to commit, and when a silent process counts as dead.
    """

    def __init__(self, settings: KafkaSettings, control: Control, metrics: Metrics, *, owner: str, pace: Pace) -> None:
        self._settings = settings
        self._control = control
        self._metrics = metrics
        self._owner = owner
        self._pace = pace
        self._running: dict[str, tuple[MergeLoop, threading.Thread]] = {}
        self._stop = threading.Event()
        self.is_running = False
        metrics.registry.register(LaneCollector(lambda: self.loops, lambda: control.desired))

    def stop(self) -> None:
        """Ask everything to end; callable from anywhere."""
        self._stop.set()

    def run(self) -> None:
        """Go on until `stop`."""
        gc.freeze()  # nothing that is there by now ever goes
        gc.set_threshold(COLLECT_AFTER)
        self.is_running = True
        try:
            while not self._stop.is_set():
                self._follow()
                self._stop.wait(FOLLOW_SECONDS)
        finally:
            self.is_running = False
            self._end(list(self._running))

    @property
    def loops(self) -> list[MergeLoop]:
        """The loops that run."""
        return [loop for loop, _ in list(self._running.values())]

    def _follow(self) -> None:
        try:
            self._control.follow()
        except LMergeError as error:  # what is known goes on: lanes need no control topic to run
            log("error", "control topic cannot be read: what is known goes on", text=str(error))
        desired = self._control.desired
        self._end([name for name in self._running if name not in desired])
        for name in desired:
            if name not in self._running:
                self._begin(name)

    def _begin(self, name: str) -> None:
        loop = MergeLoop(
            self._settings,
            self._control,
            self._metrics.of(name),
            name,
            owner=self._owner,
            pace=self._pace,
        )
        thread = threading.Thread(target=loop.run, name=f"merge-{name}", daemon=True)
        self._running[name] = loop, thread
        thread.start()

    def _end(self, names: list[str]) -> None:
        ending = [self._running[name] for name in names]
        for loop, _ in ending:
            loop.stop()
        for loop, thread in ending:
            thread.join(timeout=30)
            self._running.pop(loop.name, None)
