"""The state of a merge in words: who leads, how many may die, and why it waits. From what the API shows, pure."""

from collections import Counter
from typing import Any, NamedTuple

from services.cli.columns import show_lag, show_stable

HEADER = ("INPUT", "STATE", "STABLE", "BEHIND", "LEADS", "WHY")


class Words(NamedTuple):
    """What there is to say about a merge."""

    headline: str
    sentences: list[str]
    rows: list[tuple[str, ...]]
    """One for each input, under `HEADER`."""
    running: bool


def describe(view: dict[str, Any]) -> Words:
    """Say what the answer of GET /v1/merges/{m} means."""
    observed = view["observed"]
    lanes = observed["lanes"]
    leads = Counter(lane["leader"] for lane in lanes if lane["leader"])
    stable = observed["stable"]
    reached = "has come nowhere yet" if stable is None else f"is final before {show_stable(stable)}"
    if stable == "+inf":
        reached = "has ended: everything is final"
    headline = f"{view['name']} is {observed['state']} and {reached}"
    sentences = [_leading(leads, len(lanes)), _may_die(observed["may_die"], lanes)]
    if observed["reason"]:
        sentences.append(f"it waits: {observed['reason']}")
    if observed["divergences"]:
        sentences.append(
            f"inputs contradicted each other {observed['divergences']} times: "
            f"GET /v1/merges/{view['name']}/divergences has samples"
        )
    names = sorted({*view["desired"]["inputs"], *(name for lane in lanes for name in lane["inputs"])})
    rows = [_row(name, [lane["inputs"].get(name) for lane in lanes], leads, len(lanes)) for name in names]
    return Words(headline, sentences, rows, observed["state"] == "running")


def _leading(leads: Counter[str], lanes: int) -> str:
    if not leads:
        return "nobody leads"
    if len(leads) == 1 and leads.total() == lanes:
        return f"{next(iter(leads))} leads"
    return ", ".join(f"{name} leads {count} of {lanes} lanes" for name, count in leads.most_common())


def _may_die(count: int, lanes: list[dict[str, Any]]) -> str:
    if count:
        return f"{count} input{'s' if count > 1 else ''} may die now without a gap"
    joined = [sum(each["membership"] == "joined" for each in lane["inputs"].values()) for lane in lanes]
    if joined and min(joined) > 0:
        return "no input may die now: attach another one"
    return "no input is joined" + ("" if max(joined, default=0) == 0 else " in one of the lanes")


def _row(name: str, lanes: list[dict[str, Any] | None], leads: Counter[str], count: int) -> tuple[str, ...]:
    seen = [lane for lane in lanes if lane is not None]
    worst = _worst(seen)
    conditions = [
        each
        for each in ("lagging", "silent", "paused", "quarantined")
        if any(each in lane["conditions"] for lane in seen)
    ]
    stables = [lane["stable"] for lane in seen if lane["stable"] is not None]
    lags = [lane["lag_ms"] for lane in seen if lane["lag_ms"] is not None]
    reason = next((lane["reason"] for lane in seen if lane["membership"] == worst and lane["reason"]), "")
    reason = reason or _skipped(seen)
    led = leads.get(name, 0)
    return (
        name,
        ", ".join([worst, *conditions]),
        show_stable(min(stables, key=_instant, default=None)),
        show_lag(max(lags, default=None)),
        "" if not led else "all" if led == count else f"{led} of {count}",
        reason,
    )


def _skipped(lanes: list[dict[str, Any]]) -> str:
    """Say how far an input has skipped, and what it did not have to read; all lanes are told the same."""
    skipped = [lane for lane in lanes if lane["skipped_to"] is not None]
    if not skipped:
        return ""
    last = max(skipped, key=lambda lane: int(lane["skipped_to"]))
    cuts, rows = last["skipped_cuts"], last["skipped_rows"]
    not_read = f", at most {rows:,} rows in {cuts:,} cuts not read" if cuts else ""
    return f"skipped what ends before {show_stable(last['skipped_to'])}{not_read}"


def _worst(lanes: list[dict[str, Any]]) -> str:
    memberships = [lane["membership"] for lane in lanes]
    return next((each for each in ("gap", "leaving", "joining", "joined") if each in memberships), "joining")


def _instant(stable: int | str) -> float:
    return float("inf") if stable == "+inf" else float(stable)
