"""Feeds: which rows of the source topics count, decided once by numbered heartbeats (design, section 7). Pure.

A *feed* is a named set of source topics with, for each, where a row's timestamp is and how far a partition may be out
of order. The heartbeat service reads them and writes heartbeat after heartbeat, each a *cut* through all partitions:

    {"kind":"heartbeat","v":1,"feed":…,"n":17,"tau":…,"ceiling":…,"max_ts":…,"ends":{"bids":[…],"auctions":[…]}}

For a row with timestamp `ts` at offset `o` of a partition, and for every reader alike:

    it belongs to heartbeat n   iff   ends[n-1] <= o < ends[n]        a partition that ends[n-1] lacks begins at 0
    it is late                  iff   ts <= tau[n-1]                  tau null: nothing is late
    it is early                 iff   ts > ceiling[n]                 ceiling null: nothing is early
    it counts                   iff   ts is readable, neither late nor early

Tau never falls, so after heartbeat n every row that counts has `ts > tau[n]`: heartbeat n equals `stable(tau[n] + 1)`.

How large may tau be? Let D be the disorder bound of a partition: after a row with timestamp t, its later rows have
`ts >= t - D` (notes/seed-003, 3.2, with d = D + 1). So after its largest counted timestamp m, the smallest that can
still come is m - D, and the largest sound promise of partition j is

    tau_j = max(tau when it was first known, m_j - D - 1)      tau = min over all j, null while one of them is

Only this bound acts at once: in a partition reading order *is* writing order, over partitions it is not. What spans
partitions or depends on time (bounds between topics, the timeout, idleness: `generator.py`) acts only after every
partition has been read up to an end that was asked for after it fell due. A row that does not count moves nothing: a
late one could not, an early one (a broken clock) must not. When a bound is broken, the rows that break it are late; the
promise holds regardless.

No state but the last heartbeat: a successor seeks to its `ends` and takes every tau_j = tau. That is sound, as tau is
below each; what is forgotten (the largest timestamps) delays progress until the partitions speak again.

Not here: reading and writing topics, and the clocks (`services/heartbeat`).
"""

from lmerge.feed.cuts import Cut, CutMaker, LeftOut, Reason, Row, SourceCounts, TopicPartition, UnsafeRule
from lmerge.feed.definition import KAFKA, MAX_AHEAD_MS, FeedDefinition, Source, TopicBound, Unit
from lmerge.feed.heartbeat import Ends, Heartbeat, Segment, counts, is_early, is_late, segments
from lmerge.feed.timestamps import MAX_TS, MIN_TS, is_too_deep, read_timestamp

__all__ = [
    "KAFKA",
    "MAX_AHEAD_MS",
    "MAX_TS",
    "MIN_TS",
    "Cut",
    "CutMaker",
    "Ends",
    "FeedDefinition",
    "Heartbeat",
    "LeftOut",
    "Reason",
    "Row",
    "Segment",
    "Source",
    "SourceCounts",
    "TopicBound",
    "TopicPartition",
    "Unit",
    "UnsafeRule",
    "counts",
    "is_early",
    "is_late",
    "is_too_deep",
    "read_timestamp",
    "segments",
]
