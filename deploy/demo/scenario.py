"""The acts of the demo, one after the other, and the judgement in the end."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from deploy.demo import query
from deploy.demo.answer import Answer, answer
from deploy.demo.errors import DemoError
from deploy.demo.merged import read_merged
from deploy.demo.observe import (
    View,
    all_joined,
    has_caught_up,
    late_rows,
    longest_gap_at,
    longest_gap_before,
    skipped_rows,
    told_to_skip_to,
)
from deploy.demo.rest import MergeApi
from deploy.demo.screen import Screen, instant
from deploy.demo.stage import Stage
from deploy.demo.verdict import Certificate, Comparison, Laggard, Verdict, compare
from deploy.demo.watch import Watch, now_ms
from lmerge.errors import InputError
from lmerge.kafka import KafkaSettings, MissingTopic, TopicAdmin

RATE: Final = 300
"""Rows per second: enough to look at, and little beside what three Sparks cost by themselves."""

_SERVICE_SECONDS: Final = 60.0
_SPARK_SECONDS: Final = 240.0  # 30 s of CPU time for each Spark: 45 s for three on two quiet cores
_MOVE_SECONDS: Final = 45.0
_JUDGE_SECONDS: Final = 120.0
_CALM_SECONDS: Final = 20.0
_AFTER_KILL_SECONDS: Final = 8.0
_STOP_SECONDS: Final = 25.0  # three times the lag at which it is told to skip
_LOOK_AT_IT_SECONDS: Final = 8.0
_PAUSE: Final = 0.1


class Scenario:
    """Plays the demo.

    Args:
        stage: where its parts run.
        api: the merge service.
        watch: what is seen.
        screen: where it is shown.
        began: when the demo began, by the monotonic clock.
        calm_seconds: for how long all three run before one is killed.
    """

    def __init__(
        self,
        stage: Stage,
        api: MergeApi,
        watch: Watch,
        screen: Screen,
        began: float,
        *,
        calm_seconds: float = _CALM_SECONDS,
    ) -> None:
        self._stage = stage
        self._api = api
        self._watch = watch
        self._screen = screen
        self._began = began
        self._calm_seconds = calm_seconds
        self._kafka = KafkaSettings(stage.bootstrap_servers)
        self._killed = ""
        self._killed_ms = self._kill_over_ms = 0
        self.closing_ms = 0
        """The time of the closing rows: whatever comes after the demo comes after this."""

    def play(self) -> Verdict:
        """Play all acts, end the rows and judge the merged topic.

        Raises:
            DemoError: a part ended, or something did not come true in time.
        """
        self.play_acts()
        return self._judge(self._end_the_rows())

    def play_acts(self) -> None:
        """Play all acts; everything still runs.

        Raises:
            DemoError: a part ended, or something did not come true in time.
        """
        self._begin()
        self._join()
        self._kill_the_leader()
        self._attach_the_fourth()
        self._slow_one_down()
        self._detach_one()

    def _begin(self) -> None:
        """Start everything but the replicas."""
        say = self._screen.say
        self._workload = self._stage.start_workload(seed=1, rate=RATE, file=self._stage.rows_file)
        self._stage.start_merge()
        say(f"the workload writes {RATE} rows a second")
        self._wait(lambda: self._exists(query.BIDS), f"the workload makes its topic {query.BIDS}")
        self._heartbeat = self._stage.start_heartbeat()
        self._wait(self._api.is_ready, "the merge service answers")
        self._api.define_merge()
        say(f"the heartbeat service runs; the merge service answers at {self._stage.rest} and has merge {query.MERGE}")

    def _join(self) -> None:
        """Start the replicas, each when the one before is up: three Sparks that start at once starve each other."""
        self._watch.replicas = dict.fromkeys(query.FIRST, "waiting")
        self._screen.say(f"three replicas start one after the other, a Spark each: {_plans()}")
        for name in query.FIRST:
            self._start_and_attach(name)
        self._until(lambda view: all_joined(view.lanes, query.FIRST), "all three replicas are joined", _SPARK_SECONDS)
        self._stage.is_up(*query.FIRST)
        self._until(lambda _: self._watch.follow(query.MERGED_TOPIC), "the merged topic exists", _MOVE_SECONDS)
        self._screen.say("all three are joined; the merged topic takes from each what it says first")
        self._goes_on("the merged topic moves")
        # What came while they started is read by then, if the machine is not too busy; the acts do not need it.
        self._comes_true(lambda view: all(has_caught_up(view.lanes, name) for name in query.FIRST), _MOVE_SECONDS)
        self._watch.calm_since_ms = now_ms()
        self._look(self._calm_seconds)

    def _kill_the_leader(self) -> None:
        view = self._until(lambda view: view.leader is not None, "a replica leads", _MOVE_SECONDS)
        name = self._killed = str(view.leader)
        self._killed_ms = now_ms()
        count = self._stage.replicas[name].kill()
        self._watch.halted[name] = "killed"
        self._screen.say(f"{name} was leading and is killed: SIGKILL, and all of its {count} processes are gone")
        view = self._goes_on(f"the merged topic goes on without {name}", without=name)
        self._screen.say(f"nobody downstream noticed: the merged topic goes on, led by {view.leader}")
        self._look(_AFTER_KILL_SECONDS)
        self._kill_over_ms = now_ms()

    def _attach_the_fourth(self) -> None:
        name = query.FOURTH
        self._screen.say(f"{name} starts with plan {query.PLANS[name]}, from the very first row")
        self._start_and_attach(name)
        self._until(
            lambda view: has_caught_up(view.lanes, name), f"{name} catches up with the merged topic", _SPARK_SECONDS
        )
        self._stage.is_up(name)
        self._screen.say(f"{name} has caught up")
        self._look(_LOOK_AT_IT_SECONDS)

    def _slow_one_down(self) -> None:
        """Stop a replica for a while. The others settle what it would compute; it is told so, and skips it."""
        name, part = self._survivors[1], self._stage.replicas[self._survivors[1]]
        before = skipped_rows(self._watch.look().lanes, name)
        stopped = time.monotonic()
        part.halt()
        self._watch.halted[name] = "stopped"
        self._screen.say(f"{name} is made slow: its processes are stopped (SIGSTOP); the merged topic does not wait")
        self._look(_STOP_SECONDS)
        told = told_to_skip_to(self._watch.look().lanes, name)
        self._screen.say(
            f"{name} goes on (SIGCONT); the merge has told it that what ends before {instant(told)} is settled"
        )
        del self._watch.halted[name]
        part.go_on()
        released = time.monotonic()

        def is_back(view: View) -> bool:
            return skipped_rows(view.lanes, name) > before and has_caught_up(view.lanes, name)

        back = self._comes_true(is_back, _MOVE_SECONDS)
        self._laggard = Laggard(
            name,
            stopped_seconds=released - stopped,
            skipped_rows=skipped_rows(self._watch.look().lanes, name) - before,
            caught_up_seconds=time.monotonic() - released if back else None,
        )
        self._screen.say(f"fast-forward: {self._laggard}")
        self._look(_LOOK_AT_IT_SECONDS)

    @property
    def _survivors(self) -> list[str]:
        return [name for name in query.FIRST if name != self._killed]

    def _detach_one(self) -> None:
        name = self._survivors[0]
        self._api.detach(name)
        self._watch.replicas[name] = "detached"
        self._stage.replicas[name].ask_to_end()
        self._screen.say(f"{name} is detached over REST, and its job is stopped")
        self._goes_on(f"the merged topic goes on without {name}", without=name)
        self._look(_LOOK_AT_IT_SECONDS)

    def _end_the_rows(self) -> Answer:
        self._workload.ask_to_end()
        self._until(lambda _: self._workload.exit_code is not None, "the workload writes its last rows", _MOVE_SECONDS)
        if self._workload.exit_code != 0:
            raise DemoError(f"the workload failed at its end. {self._workload.log_tail()}")
        true = answer(self._stage.rows_file, topic=query.BIDS, width_ms=query.WIDTH_MS, slide_ms=query.SLIDE_MS)
        self.closing_ms = true.closing
        self._screen.say(f"the workload has ended after {true.rows:,} bids; its closing rows close every window")
        last = true.newest + query.WIDTH_MS
        self._until(
            lambda view: view.stable is not None and view.stable > last, "the last window is merged", _MOVE_SECONDS
        )
        self._watch.ended_ms = now_ms()
        return true

    def _judge(self, true: Answer) -> Verdict:
        self._screen.say("every window is merged; lmerge certify judges the merged topic by all four replicas' topics")
        certificate = self._certify()
        self._screen.say("DuckDB counts the same rows in SQL, and its answer is compared with the merged topic")
        comparison = self._compare(true)
        late = self._late_rows(true)
        times = self._watch.merged_times().values()
        calm = self._watch.calm_since_ms or 0
        return Verdict(
            certificate=certificate,
            comparison=comparison,
            rows=true.rows,
            late_rows=late,
            killed=self._killed,
            laggard=self._laggard,
            gap_before_ms=max(longest_gap_before(lane, calm, self._killed_ms) for lane in times),
            gap_at_kill_ms=max(longest_gap_at(lane, self._killed_ms, self._kill_over_ms) for lane in times),
            seconds=time.monotonic() - self._began,
        )

    def _certify(self) -> Certificate:
        judge = self._stage.start_certifier()
        judge.may_end = True
        self._until(lambda _: judge.exit_code is not None, "lmerge certify comes to a verdict", _JUDGE_SECONDS)
        if judge.exit_code not in (0, 1):
            raise DemoError(f"lmerge certify could not judge. {judge.log_tail()}")
        return Certificate.of_report(msgspec.json.decode(judge.output.read_bytes()))

    def _compare(self, true: Answer) -> Comparison:
        try:
            merged, stable = read_merged(self._kafka)
        except InputError as error:
            return Comparison(0, 0, 0, 0, f"the merged topic is no legal stream: {error}")
        return compare(merged, true.results, below=stable)

    def _late_rows(self, true: Answer) -> int:
        """Ask the heartbeat service's log, which speaks every ten seconds."""

        def said() -> int | None:
            return late_rows(self._heartbeat.log.read_text(), closing=true.closing)

        self._until(lambda _: said() is not None, "the heartbeat service counts the last rows", _MOVE_SECONDS)
        return said() or 0

    def _start_and_attach(self, name: str) -> None:
        """Start a replica, and attach it as soon as its topic is there."""
        self._stage.start_replica(name)
        self._watch.replicas[name] = "starting"
        self._until(lambda _: self._api.attach(name), f"{name} makes its topic", _SPARK_SECONDS)
        self._watch.follow(query.replica_topic(name))
        self._screen.say(f"{name} is attached over REST")

    def _goes_on(self, what: str, *, without: str = "") -> View:
        """Wait until the merged stable has moved on by two slides, led by another one."""
        stable = self._watch.look().stable or 0
        return self._until(
            lambda view: (view.stable or 0) >= stable + 2 * query.SLIDE_MS and view.leader != without,
            what,
            _MOVE_SECONDS,
        )

    def _look(self, seconds: float) -> None:
        """Let people look at it for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._tick()

    def _until(self, condition: Callable[[View], bool], what: str, seconds: float) -> View:
        """Watch until something comes true.

        Raises:
            DemoError: it has not in time.
        """
        if not self._comes_true(condition, seconds):
            raise _too_late(what, seconds)
        return self._view

    def _comes_true(self, condition: Callable[[View], bool], seconds: float) -> bool:
        """Watch whether something comes true in time."""
        deadline = time.monotonic() + seconds
        while not (found := condition(self._tick())) and time.monotonic() < deadline:
            pass
        return found

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait while there is nothing to watch yet."""
        deadline = time.monotonic() + _SERVICE_SECONDS
        while not condition():
            self._check()
            if time.monotonic() > deadline:
                raise _too_late(what, _SERVICE_SECONDS)
            time.sleep(_PAUSE)

    def _check(self) -> None:
        for text in self._stage.check():
            self._screen.say(text)

    def _tick(self) -> View:
        self._check()
        self._view = self._watch.look()
        self._screen.show(self._view)
        return self._view

    def _exists(self, topic: str) -> bool:
        try:
            TopicAdmin(self._kafka).describe(topic)
        except MissingTopic:
            return False
        return True


def _plans() -> str:
    return ", ".join(f"{name} {query.PLANS[name]}" for name in query.FIRST)


def _too_late(what: str, seconds: float) -> DemoError:
    return DemoError(
        f"this did not come true within {seconds:g} s: {what}. The machine may be too busy: end other work and run it "
        "again; if it happens again, the logs say why"
    )
