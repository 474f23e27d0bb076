"""Several replicas in one process that share a Spark, to be killed together: a start of Spark for each would take long.

    python -m tests.support.replica_group <bootstrap servers> <feed file> <topics as JSON> <max cuts> <directory>…

It says when every replica has done a batch. Once a file `armed` is beside the first directory, the process kills itself
after the next commit of any of the sinks, before Spark notes that batch.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from lmerge.feed import FeedDefinition
from replicas.job import Replica
from replicas.session import make_session
from replicas.sink import KILL_AFTER_COMMIT
from tests.support.queries import replica_settings
from tests.support.replica import FeedWorld
from tests.support.replica_process import MarkedProcess

_BEGUN = "all replicas have begun"


class ReplicaGroup(MarkedProcess):
    """The process, from the outside."""

    def __init__(self, world: FeedWorld, directories: Sequence[Path], *, max_cuts: int) -> None:
        beside = directories[0].parent
        self._armed = beside / "armed"
        command = [
            *(sys.executable, "-m", "tests.support.replica_group", world.settings.bootstrap_servers),
            *(str(world.feed_file(beside)), json.dumps(world.topics), str(max_cuts), *map(str, directories)),
        ]
        super().__init__(command, beside / "group.log")

    def arm(self) -> None:
        """Let it kill itself."""
        self._armed.touch()

    def _has_begun_or_ended(self, said: int) -> bool:
        assert self._process is not None
        return _BEGUN in self.log()[said:] or self._process.poll() is not None


def _watch(queries: Sequence[StreamingQuery], armed: Path) -> None:
    begun = False
    while True:
        for query in queries:
            assert query.isActive, query.exception()
        if not begun and all(query.lastProgress for query in queries):
            begun = True
            logging.getLogger(__name__).warning(_BEGUN)
        if armed.exists():
            os.environ[KILL_AFTER_COMMIT] = "0"
        time.sleep(0.05)


def main() -> None:
    """Run the replicas until one fails or the process is killed."""
    servers, feed, topics, max_cuts, *places = sys.argv[1:]
    directories = [Path(place) for place in places]
    definition = FeedDefinition.parse(Path(feed).read_text())
    logging.basicConfig(level=logging.WARNING)
    spark = make_session("lmerge-group", master="local[2]", overrides={})
    with ExitStack() as stack:
        stack.callback(spark.stop)
        queries = []
        for directory in directories:
            settings = replica_settings(servers, definition, json.loads(topics), directory, max_cuts=int(max_cuts))
            replica = stack.enter_context(Replica(settings, spark))
            stack.callback(replica.stop)
            queries.append(replica.start())
        _watch(queries, directories[0].parent / "armed")


if __name__ == "__main__":
    main()
