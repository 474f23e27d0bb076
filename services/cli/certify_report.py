"""The report of `lmerge certify`: a short verdict with figures, or JSON with all of it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, show_time
from services.certify import Certificate, Finding, Kind
from services.cli.places import locate_in

Lanes: TypeAlias = Mapping[int | None, Certificate]
"""Certificates by partition; None is the one lane of files."""


def is_certified(lanes: Lanes) -> bool:
    """Tell whether nothing was found in any lane; a stream that is final nowhere has not shown anything yet."""
    return all(lane.certified for lane in lanes.values()) and any(
        lane.stable > MINUS_INFINITY for lane in lanes.values()
    )


def to_text(lanes: Lanes, notes: Sequence[str] = ()) -> str:
    """Say whether the stream is certified, by which figures, and if not, where it is first wrong."""
    first = next(iter(lanes.values()))
    inputs = ", ".join(source.name for source in first.inputs)
    verdict = "certified" if is_certified(lanes) else "NOT certified"
    lines = [f"{verdict}: {first.merged} as a merge of {inputs}"]
    for partition, lane in lanes.items():
        lines += _lane_text(partition, lane)
    lines += [f"  note: {note}" for note in notes]
    return "\n".join(lines)


def _lane_text(partition: int | None, lane: Certificate) -> list[str]:
    locate = locate_in(partition)
    prefix = "" if partition is None else f"partition {partition}: "
    lines = [
        f"  {locate(found.stream, found.position)}: {found.kind.value}\n    {found.detail}" for found in lane.findings
    ]
    if lines:
        lines[0] = f"  first, {lines[0].lstrip()}"
    since = "" if lane.complete_from == MINUS_INFINITY else f" from {lane.complete_from} on"
    figures = [
        f"judged{since} up to {show_time(lane.judged)}",
        f"{lane.inserts:,} inserts, {lane.adjusts:,} adjusts, {lane.stables:,} stables",
        f"{lane.final:,} events final, {lane.alive:,} alive",
        f"lost {lane.lost:,}, repeated {lane.repeated:,}",
    ]
    figures += [
        f"{_name(kind)} {count:,}" for kind, count in lane.counts.items() if kind not in (Kind.LOST, Kind.REPEATED)
    ]
    if lane.reference_until is not None:
        figures.append(f"compared with the reference up to {show_time(lane.reference_until)}")
    lines.append(f"  {prefix}{'; '.join(figures)}")
    if lane.stable == MINUS_INFINITY:
        lines.append(f"  note: {prefix}the merged stream has no stable yet, so nothing of it is final")
    for source in lane.inputs:
        for position, problem in source.problems:
            lines.append(f"  note: {locate(source.name, position)}: {problem}; this input counts with what came before")
    return lines


def _name(kind: Kind) -> str:
    return kind.name.lower().replace("_", " ")


def to_json(lanes: Lanes, notes: Sequence[str] = ()) -> str:
    """Return the report as one JSON object; times that are no instants are the strings "+inf" and "-inf"."""
    report = {
        "certified": is_certified(lanes),
        "lost": sum(lane.lost for lane in lanes.values()),
        "repeated": sum(lane.repeated for lane in lanes.values()),
        "lanes": [_lane_json(partition, lane) for partition, lane in lanes.items()],
        "notes": [*notes],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def _lane_json(partition: int | None, lane: Certificate) -> dict[str, Any]:
    return {
        "merged": lane.merged,
        "partition": partition,
        "certified": lane.certified,
        "stable": time_json(lane.stable),
        "judged": time_json(lane.judged),
        "complete_from": time_json(lane.complete_from),
        "elements": {"insert": lane.inserts, "adjust": lane.adjusts, "stable": lane.stables},
        "events": {"final": lane.final, "alive": lane.alive},
        "counts": {kind.name.lower(): count for kind, count in lane.counts.items()},
        "reference_until": None if lane.reference_until is None else time_json(lane.reference_until),
        "findings": [finding_json(partition, finding) for finding in lane.findings],
        "inputs": [
            {
                "name": source.name,
                "elements": source.elements,
                "incarnations": source.incarnations,
                "stable": time_json(source.stable),
                "problems": [
                    {**place_json(partition, source.name, position), "detail": problem}
                    for position, problem in source.problems
                ],
            }
            for source in lane.inputs
        ],
    }


def finding_json(partition: int | None, finding: Finding) -> dict[str, Any]:
    """Return a finding with its place."""
    return {
        "kind": finding.kind.name.lower(),
        "rule": finding.kind.value,
        **place_json(partition, finding.stream, finding.position),
        "detail": finding.detail,
    }


def place_json(partition: int | None, stream: str, position: int) -> dict[str, Any]:
    """Return a place in a stream: file and line, or topic, partition and offset."""
    if partition is None:
        return {"file": stream, "line": position}
    return {"topic": stream, "partition": partition, "offset": position}


def time_json(t: int) -> int | str:
    """Return an instant as a number, and what is none as people write it."""
    return t if MINUS_INFINITY < t < INFINITY else show_time(t)
