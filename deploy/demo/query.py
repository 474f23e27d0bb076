"""The query of the demo and its figures: what the replicas are told, and what the batch answer is computed by."""

from typing import Final

MERGE: Final = "hot_items"
"""As in docker-compose.yml, so that the commands of the README fit both."""

MERGED_TOPIC: Final = f"{MERGE}.merged"
LANES: Final = 2

FEED: Final = "auction"
BIDS: Final = "bids"
PARTITIONS: Final = 2
DISORDER_MS: Final = 500
SKEW_MS: Final = 300

WIDTH_MS: Final = 5_000
SLIDE_MS: Final = 1_000
"""Results come out once per slide, so the merged topic cannot be still for less than that."""

CLOSE_SECONDS: Final = 20
"""How far ahead the closing rows are: more than two windows, so that all windows of other rows close."""

LAG_MS: Final = 8_000
"""A replica that is so far behind is told to skip what does not matter any more."""

TELL_AGAIN_MS: Final = 1_000

PLANS: Final = {"r1": "direct", "r2": "panes", "r3": "direct", "r4": "panes"}
FIRST: Final = ("r1", "r2", "r3")
FOURTH: Final = "r4"

FEED_FILE: Final = f"""\
name = "{FEED}"

[[sources]]
topic = "{BIDS}"
time = "$.date_time"
disorder_ms = {DISORDER_MS}
"""


def replica_topic(name: str) -> str:
    """Name the topic that a replica writes."""
    return f"{MERGE}.replica.{name}"
