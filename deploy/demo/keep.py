"""`make demo KEEP=1`: everything goes on after the verdict, for people to play with."""

from typing import Final, NoReturn

from deploy.demo import query
from deploy.demo.errors import DemoError
from deploy.demo.screen import Screen
from deploy.demo.stage import Stage
from deploy.demo.watch import Watch, now_ms

RATE: Final = 200
"""Rows per second while people play."""


def go_on(stage: Stage, *, after_ms: int) -> None:
    """Let rows flow again, later than the closing rows: earlier ones would be late."""
    stage.start_workload(seed=2, rate=RATE, start=str(max(now_ms(), after_ms + 1_000)))


def instructions(stage: Stage) -> str:
    """Say what runs where, and what can be done with it."""
    running = [name for name, part in stage.replicas.items() if not part.may_end]
    one, last = running[0], running[-1]
    pids = ", ".join(f"{name} {stage.replicas[name].pid}" for name in running)
    body = f"-H 'Content-Type: application/json' -d '{{\"topic\":\"{query.replica_topic(one)}\"}}'"
    return f"""
Everything still runs, and the workload goes on with {RATE} rows a second, until you press Ctrl-C.

  Kafka          {stage.bootstrap_servers}   topics {query.MERGED_TOPIC}, {query.MERGE}.replica.*, {query.BIDS}
  merge service  {stage.rest}   API at /docs, metrics at /metrics
  token          {stage.token}
  replicas       {pids} (process ids)
  logs           {stage.directory}

To play with it, in another terminal:

  export LMERGE_URL={stage.rest}
  export LMERGE_TOKEN={stage.token}
  export LMERGE_BOOTSTRAP_SERVERS={stage.bootstrap_servers}
  AUTH="Authorization: Bearer $LMERGE_TOKEN"
  MERGE=$LMERGE_URL/v1/merges/{query.MERGE}

  how it is      curl -s -H "$AUTH" $MERGE
  detach {one}      curl -s -H "$AUTH" -X DELETE $MERGE/inputs/{one}
  attach {one}      curl -s -H "$AUTH" -X PUT {body} $MERGE/inputs/{one}
  kill {last}        kill -9 {stage.replicas[last].pid}
  follow it      .venv/bin/lmerge status {query.MERGE} --watch
  read it        .venv/bin/lmerge tail {query.MERGE} --events
  judge it       .venv/bin/lmerge certify --merge {query.MERGE}
"""


def watch_on(stage: Stage, watch: Watch, screen: Screen) -> NoReturn:
    """Show how it goes until somebody ends the demo; who is killed now was killed by the one who plays."""
    watch.replicas = dict.fromkeys(watch.replicas, "detached")
    watch.calm_since_ms, watch.ended_ms = now_ms(), None
    running = [name for name, part in stage.replicas.items() if not part.may_end]
    while True:
        try:
            stage.check()
        except DemoError as error:
            screen.say(str(error).partition(". ")[0])
        watch.halted |= {name: "ended" for name in running if stage.replicas[name].exit_code is not None}
        screen.show(watch.look())
