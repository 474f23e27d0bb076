"""Is the merged topic right? The comparison with the true answer, and the verdict with its figures. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from deploy.demo.answer import Result


class Comparison(msgspec.Struct, frozen=True):
    """How the merged results differ from the true ones.

    Attributes:
        compared: how many true results there are.
        lost: of how many the merged topic has nothing for that auction and window.
        repeated: how many right results it has once too often.
        wrong: how many of its results are in no way true: another count, another window, nobody's auction.
        first: the first difference in words; empty if there is none.
    """

    compared: int
    lost: int
    repeated: int
    wrong: int
    first: str

    @property
    def is_equal(self) -> bool:
        """Whether both have the same results."""
        return not (self.lost or self.repeated or self.wrong)


def compare(merged: Iterable[Result], true: Iterable[Result], *, below: int) -> Comparison:
    """Compare the results that end before `below`, in both directions."""
    found: defaultdict[tuple[int, int], Counter[Result]] = defaultdict(Counter)
    for result in merged:
        if result.ve < below:
            found[result.vs, result.auction][result] += 1
    expected = {(result.vs, result.auction): result for result in true if result.ve < below}
    lost = repeated = wrong = 0
    first = ""
    for key in sorted(expected.keys() | found.keys()):
        results, right = found.get(key, Counter[Result]()), expected.get(key)
        others = results.total() - (results[right] if right else 0)
        surplus = max(0, results[right] - 1) if right else 0
        lost += not results
        repeated += surplus
        wrong += others
        if not first and (not results or surplus or others):
            first = f"true: {right or 'nothing'}; merged: {list(results.elements()) or 'nothing'}"
    return Comparison(len(expected), lost, repeated, wrong, first)


class Certificate(msgspec.Struct, frozen=True):
    """What `lmerge certify` found."""

    certified: bool
    lost: int
    repeated: int
    inserts: int
    adjusts: int
    stables: int
    first: str = ""

    @property
    def elements(self) -> int:
        """How many elements were merged."""
        return self.inserts + self.adjusts + self.stables

    @classmethod
    def of_report(cls, report: dict[str, Any]) -> "Certificate":
        """Take the figures from the JSON report."""
        lanes = report["lanes"]
        findings = [found for lane in lanes for found in lane["findings"]]
        where = "{topic}/{partition} at offset {offset}: {rule}: {detail}"
        return cls(
            certified=report["certified"],
            lost=report["lost"],
            repeated=report["repeated"],
            inserts=sum(lane["elements"]["insert"] for lane in lanes),
            adjusts=sum(lane["elements"]["adjust"] for lane in lanes),
            stables=sum(lane["elements"]["stable"] for lane in lanes),
            first=where.format(**findings[0]) if findings else "",
        )


class Laggard(msgspec.Struct, frozen=True):
    """The replica that was stopped for a while, and what became of it.

    Attributes:
        name: which one.
        stopped_seconds: how long it was stopped.
        skipped_rows: how many rows it did not have to read at most, as it says.
        caught_up_seconds: how long it took to be as current as the others again; None: it was not in time.
    """

    name: str
    stopped_seconds: float
    skipped_rows: int
    caught_up_seconds: float | None

    @property
    def is_back(self) -> bool:
        """Whether it skipped something and caught up."""
        return self.skipped_rows > 0 and self.caught_up_seconds is not None

    def __str__(self) -> str:
        seconds = self.caught_up_seconds
        stopped = f"{self.name} was stopped for {self.stopped_seconds:.0f} s"
        end = "did NOT catch up" if seconds is None else f"caught up in {seconds:.1f} s"
        return f"{stopped}, left out up to {self.skipped_rows:,} rows, and {end}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a demo."""

    certificate: Certificate
    comparison: Comparison
    rows: int
    late_rows: int
    killed: str
    laggard: Laggard
    gap_before_ms: int
    gap_at_kill_ms: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, repeated, wrong or late, there was something to judge, and the laggard is back."""
        return (
            self.certificate.certified
            and self.comparison.is_equal
            and self.comparison.compared > 0
            and self.late_rows == 0
            and self.laggard.is_back
        )

    def lines(self) -> list[tuple[str, str]]:
        """Say it with figures: what, and how much."""
        judge, batch = self.certificate, self.comparison
        minutes, seconds = divmod(round(self.seconds), 60)
        kinds = f"{judge.inserts:,} inserts, {judge.adjusts:,} adjusts, {judge.stables:,} stables"
        certified = "certified" if judge.certified else "NOT certified"
        differences = f"lost {batch.lost:,}, repeated {batch.repeated:,}, wrong {batch.wrong:,}"
        before, at_kill = (f"{gap / 1_000:.1f} s" for gap in (self.gap_before_ms, self.gap_at_kill_ms))
        figures = [
            ("merged", f"{judge.elements:,} elements: {kinds}"),
            ("lmerge certify", f"{certified}: lost {judge.lost:,}, repeated {judge.repeated:,}"),
            ("batch by DuckDB", f"{batch.compared:,} results from {self.rows:,} rows: {differences}"),
            ("late rows", f"{self.late_rows:,}"),
            ("longest gap", f"{before} between merged commits before {self.killed} was killed, {at_kill} at the kill"),
            ("fast-forward", str(self.laggard)),
            ("time", f"{minutes} min {seconds} s"),
        ]
        problems = [("first problem", text) for text in (judge.first, batch.first) if text]
        return figures + problems
