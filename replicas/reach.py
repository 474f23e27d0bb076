"""How far a row reaches: the largest `ve - ts` of a result and a row that it rests on, read off the plan. Pure.

The time of a row lies in the window of its results; that of its partner in a join is at most the join's range away. So
one aggregate, or none, over at most one join has a reach of the window's length and that range. Where an aggregate
follows another it depends on the windows of the lower one, which the plan does not tell: panes inside of the windows
add nothing, others do. Such a plan's author states it (`Plan.reach_ms`).
"""

from replicas.shape import Node, UnknownShape, infer
from replicas.windows import Windows


def infer_reach_ms(plan: Node, windows: Windows) -> int | None:
    """Return the reach of a plan, None if it is not known; then it can only start at the first heartbeat."""
    try:
        delay_ms = infer(plan, rank=None).progress.delay_ms
    except UnknownShape:
        return None
    return windows.width_ms + delay_ms if _aggregates(plan) <= 1 else None


def _aggregates(plan: Node) -> int:
    """Return how many aggregates follow each other."""
    return (plan.kind == "Aggregate") + max(map(_aggregates, plan.inputs), default=0)
