"""What can be read off a plan's text before it runs. Pure.

**The watermark.** A heartbeat row must pass the watermark node before it is filtered out. Catalyst pushes filters down,
below the watermark, whenever it sees no harm; the watermark then never moves and no window ever closes, without any
error. In the optimised plan no filter may therefore lie below a watermark of its branch (spark-facts.md 1.2: this
check agreed with what really happened in all of 19 shapes).

**Repeatability.** A result must be a function of the set of rows, in every replica and every replay. Functions of the
clock, of chance and of the order of rows are known by their names. A list that is collected must be sorted on the
spot. What depends on types and columns, sums of floats for one, is `replicas.shape`'s to see.

**The hash.** Spark goes on from a checkpoint with another filter, window length or group key without a word
(spark-facts.md 7). The hash is over the analysed plan, where the numbers of columns, which differ from run to run, are
replaced by the order of their first use; so are those of common table expressions.
"""

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Sequence

from lmerge.errors import UsageError

_NODE = re.compile(r"^(?P<indent>[ :|]*)(?:[+-]-? )?(?:'|~|!)*(?P<name>\w+)")
# Numbers of columns and of common table expressions: counters of the JVM.
_NUMBER = re.compile(r"(?P<kind>#|CTERelation(?:Def|Ref) )(?P<number>\d+)L?")
# What differs from run to run without another meaning: addresses of objects, the ids of watermarks and of observed
# frames, and the source's options, which say how much a batch reads but not what it means.
_VOLATILE = re.compile(
    r"(?<=@)[0-9a-f]+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|(?<=~CollectMetrics )[^\n]*"
    r"|(?<=, )\[spec=\{[^\n]*\}\](?=, )"
)

_UNREPEATABLE_NAMES = {
    **dict.fromkeys(("current_timestamp", "current_date", "current_time", "localtimestamp", "now"), "the clock"),
    **dict.fromkeys(("rand", "randn", "randstr", "uniform", "uuid", "shuffle"), "chance"),
    **dict.fromkeys(
        (
            *("first", "first_value", "last", "last_value", "any_value", "max_by", "min_by", "mode"),
            *("listagg", "string_agg", "percentile_approx", "approx_percentile", "histogram_numeric"),
        ),
        "the order of rows",
    ),
    **dict.fromkeys(("monotonically_increasing_id", "input_file_name"), "how rows are spread over tasks"),
}
_UNREPEATABLE = re.compile(rf"(?<![\w.`])(?P<name>{'|'.join(_UNREPEATABLE_NAMES)})\(")
# Collected in the order of rows, unless it is sorted at once. (`array_agg` is another name for `collect_list`.)
_UNSORTED = re.compile(
    r"(?<!\bsort_array\()(?<!\bsort_array\(flatten\()(?<![\w.`])(?P<name>collect_list|collect_set)\("
)


def require_watermark_above_filters(plan: str) -> None:
    """Refuse an optimised plan in which a filter lies below a watermark of its own branch.

    Raises:
        UsageError: heartbeats would not move its watermark.
    """
    # The watermarks above the present line: their depths.
    above: list[int] = []
    for line in plan.splitlines():
        found = _NODE.match(line)
        if found is None:
            continue
        depth = _depth(line)
        above = [watermark for watermark in above if watermark < depth]
        if found["name"] == "EventTimeWatermark":
            above.append(depth)
        elif found["name"] == "Filter" and above:
            raise UsageError(
                f"plan: the filter {line.strip()!r} lies below the watermark, so that heartbeats would never move it; "
                "filter only what the source gives, and let Spark see no way to evaluate it earlier"
            )


def require_repeatable(plan: str) -> None:
    """Refuse an analysed plan with a function whose value is not one of the set of rows.

    Raises:
        UsageError: it has one.
    """
    found = _UNREPEATABLE.search(plan)
    if found is not None:
        raise UsageError(
            f"the function {found['name']} depends on {_UNREPEATABLE_NAMES[found['name']]}, so replicas and replays "
            "would not agree: take what the rows say, and break ties by a column, as max(struct(price, id)) does"
        )
    found = _UNSORTED.search(plan)
    if found is not None:
        raise UsageError(
            f"the function {found['name']} depends on the order of rows, so replicas and replays would not agree: sort "
            f"what it gives where it is collected, sort_array({found['name']}(…))"
        )


def _depth(line: str) -> int:
    """Return how far a line is indented: where its node's name begins."""
    return len(line) - len(line.lstrip(" :|+-"))


def plan_hash(plan: str, declared: Sequence[object]) -> str:
    """Return the identity of a plan: of its analysed form and of what the sink does with its rows.

    Args:
        plan: the text of the analysed plan.
        declared: what the text does not say: names, key, lanes, windows.
    """
    numbers: dict[tuple[bool, str], int] = defaultdict(itertools.count().__next__)
    text = _NUMBER.sub(
        lambda found: f"{found['kind']}{numbers[found['kind'] == '#', found['number']]}", _VOLATILE.sub("", plan)
    )
    return hashlib.sha256(f"{text}\n{list(declared)!r}".encode()).hexdigest()[:32]
