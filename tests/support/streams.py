"""Shorthands that keep literal streams readable: `ins("A", 6, 12)`, `adj("A", 6, 12, 20)`, `stb(11)`."""

from lmerge import INFINITY, MINUS_INFINITY, Adjust, Hello, Insert, Merge, Skip, Stable, create

INF = INFINITY
ins = Insert
adj = Adjust
stb = Stable
skip = Skip


def hello(incarnation: int = 1, joins_at: int = MINUS_INFINITY, replica: str = "r") -> Hello:
    """Return a hello with the fields that matter to a merge."""
    return Hello(replica=replica, incarnation=incarnation, joins_at=joins_at)


def merge_of(algorithm: str, *streams: str) -> Merge:
    """Make a merge with streams attached, r1 and r2 if none are named, and no facts yet."""
    merge = create(algorithm)
    for stream in streams or ("r1", "r2"):
        merge.attach(stream)
    merge.take_facts()
    return merge
