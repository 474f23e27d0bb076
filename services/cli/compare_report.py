"""The report of `lmerge compare`: a short verdict, or JSON with all of it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from lmerge.elements import MINUS_INFINITY, show_time
from services.certify import Compared
from services.certify.comparison import Difference
from services.cli.certify_report import finding_json, time_json
from services.cli.places import locate_in

Lanes: TypeAlias = Mapping[int | None, Compared]
"""Outcomes by partition; None is the one lane of files."""


def to_text(lanes: Lanes) -> str:
    """Say for each partition how far the streams are equal, and where they first differ."""
    return "\n".join(line for partition, outcome in lanes.items() for line in _lane_text(partition, outcome))


def _lane_text(partition: int | None, outcome: Compared) -> list[str]:
    prefix = "" if partition is None else f"partition {partition}: "
    lines = [f"{prefix}{_verdict(outcome)}: {outcome.a} and {outcome.b}"]
    for name, difference in (("snapshots", outcome.snapshot_difference), ("TDBs", outcome.tdb_difference)):
        if difference is not None:
            lines.append(f"  first differing instant of the {name}: {difference.instant}, {difference.payload}")
            lines += [f"    {outcome.a} has {difference.a}", f"    {outcome.b} has {difference.b}"]
    lines += [
        f"  {locate_in(partition)(found.stream, found.position)}: {found.kind.value}: {found.detail}"
        for found in outcome.findings
    ]
    since = "" if outcome.since == MINUS_INFINITY else f" from {outcome.since} on"
    lines.append(f"  compared{since} up to {show_time(outcome.until)}; {outcome.differing:,} events differ")
    if outcome.a_stable != outcome.b_stable:
        stables = (
            f"{outcome.a} is stable to {show_time(outcome.a_stable)}, {outcome.b} to {show_time(outcome.b_stable)}"
        )
        lines.append(f"  not yet comparable beyond {show_time(outcome.until)}: {stables}")
    return lines


def _verdict(outcome: Compared) -> str:
    if outcome.findings:
        return "NOT comparable"
    if outcome.until == MINUS_INFINITY:
        return "not yet comparable"
    if outcome.tdb_equal:
        return "equal"
    return "snapshot-equal, TDB-different" if outcome.snapshot_equal else "DIFFERENT"


def to_json(lanes: Lanes) -> str:
    """Return the report as one JSON object; times that are no instants are the strings "+inf" and "-inf"."""
    outcomes = lanes.values()
    report = {
        "tdb_equal": all(outcome.tdb_equal for outcome in outcomes),
        "snapshot_equal": all(outcome.snapshot_equal for outcome in outcomes),
        "comparable": all(outcome.until > MINUS_INFINITY for outcome in outcomes),
        "lanes": [_lane_json(partition, outcome) for partition, outcome in lanes.items()],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def _lane_json(partition: int | None, outcome: Compared) -> dict[str, Any]:
    return {
        "partition": partition,
        "a": {"name": outcome.a, "stable": time_json(outcome.a_stable)},
        "b": {"name": outcome.b, "stable": time_json(outcome.b_stable)},
        "since": time_json(outcome.since),
        "until": time_json(outcome.until),
        "tdb_equal": outcome.tdb_equal,
        "snapshot_equal": outcome.snapshot_equal,
        "differing": outcome.differing,
        "tdb_difference": _difference_json(outcome.tdb_difference),
        "snapshot_difference": _difference_json(outcome.snapshot_difference),
        "findings": [finding_json(partition, finding) for finding in outcome.findings],
    }


def _difference_json(difference: Difference | None) -> dict[str, Any] | None:
    return None if difference is None else msgspec.to_builtins(difference)
