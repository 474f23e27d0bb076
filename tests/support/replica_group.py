"""Several replicas in one process that share a Spark, to be killed together: a start of Spark for each would take long.

    python -m tests.support.replica_group <bootstrap servers> <feed file> <topics as JSON> <max cuts> <directory>…

It says when every replica has done a batch. Once a file `armed` is beside the first directory, the process kills itself
after the next commit of any of the sinks, before Spark notes that batch.
"""

import json
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from lmerge.feed import FeedDefinition
from tests.support.failpoints import kill_after_commit
from tests.support.queries import query_and_plan
from tests.support.replica import FeedWorld
from tests.support.replica_process import MarkedProcess
from tests.support.running_replica import RunningReplica, replica_settings, start_all, start_spark

_BEGUN = "all replicas have begun"


class ReplicaGroup(MarkedProcess):
    """The process, from the outside."""

    def __init__(self, world: FeedWorld, directories: Sequence[Path], *, max_cuts: int) -> None:
        beside = directories[0].parent
        self._armed = beside / "armed"
        arguments = [
            *(
                world.settings.bootstrap_servers,
                str(world.feed_file(beside)),
                json.dumps(world.topics),
                str(max_cuts),
                *map(str, directories),
            ),
        ]
        super().__init__("tests.support.replica_group", arguments, beside / "group.log")

    def arm(self) -> None:
        """Let it kill itself."""
        self._armed.touch()

    def _has_begun_or_ended(self, said: int) -> bool:
        assert self._process is not None
        return _BEGUN in self.log()[said:] or self._process.poll() is not None


def _watch(replicas: Sequence[RunningReplica]) -> None:
    begun = False
    while True:
        for each in replicas:
            each.check()
        if not begun and all(each.query.lastProgress for each in replicas):
            begun = True
            logging.getLogger(__name__).warning(_BEGUN)
        time.sleep(0.05)


def main() -> None:
    """Run the replicas until one fails or the process is killed."""
    servers, feed, topics, max_cuts, *places = sys.argv[1:]
    directories = [Path(place) for place in places]
    armed = directories[0].parent / "armed"
    kill_after_commit(lambda tag: tag.batch >= 0 and armed.exists())
    definition = FeedDefinition.parse(Path(feed).read_text())
    logging.basicConfig(level=logging.WARNING)
    spark = start_spark()
    with ExitStack() as stack:
        stack.callback(spark.stop)
        replicas = []
        for directory in directories:
            query, plan = query_and_plan(directory)
            settings = replica_settings(
                servers, definition, json.loads(topics), directory, query=query, plan=plan, max_cuts=int(max_cuts)
            )
            replicas.append(RunningReplica(stack, settings, spark))
        start_all(replicas)
        _watch(replicas)


if __name__ == "__main__":
    main()
