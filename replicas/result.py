"""What the columns of a plan's result may be; checked before a replica runs it. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from lmerge.errors import UsageError
from replicas.emit import RESERVED, SEQUENCE, VOLD
from replicas.query import Query

_INEXACT: Final = re.compile(r"\b(double|float)\b")
_UNREADABLE: Final = re.compile(r"\b(binary|timestamp\w*|date|interval|variant|map)\b")


def require_result(query: Query, place: str, columns: Mapping[str, str], *, hosted: bool = False) -> None:
    """Check the columns of a result.

    Args:
        query: whose result it is.
        place: where its plan is written.
        columns: the names of the columns and their types, as Spark SQL writes them.
        hosted: whether they come from an operator, which has columns of its own.

    Raises:
        UsageError: what cannot become an event, or would not be the same in every plan.
    """
    for name, of_window in (("vs", "window.start"), ("ve", "window.end")):
        if columns.get(name) != "bigint":
            raise UsageError(
                f"{place}: the result needs a column {name} of type bigint, milliseconds, not "
                f"{columns.get(name, 'none')}; for a window it is unix_millis({of_window})"
            )
    payload = {name: kind for name, kind in columns.items() if name not in RESERVED}
    for name in () if hosted else columns.keys() & {SEQUENCE, VOLD}:
        raise UsageError(f"{place}: a column cannot be named {name}, which only operators say; give it another name")
    if not payload:
        raise UsageError(f"{place}: the result has no column but vs and ve, so its events would say nothing")
    for role, name in [*(("key", name) for name in query.key), *((("rank", query.rank),) if query.rank else ())]:
        if name not in payload:
            raise UsageError(f"{place}: the result has no column {name}, which the query names as {role}")
    for name, kind in payload.items():
        if _INEXACT.search(kind):
            raise UsageError(
                f"{place}: column {name} is {kind}: a sum of floats depends on the order of the rows, and replicas "
                "would not agree; cast to decimal before you add up"
            )
        if _UNREADABLE.search(kind):
            raise UsageError(f"{place}: column {name} is {kind}, which JSON has not: cast it to bigint or string")
