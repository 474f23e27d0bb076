"""`python -m benchmarks.core` runs from end to end and leaves every line and every picture; numbers are not judged."""

import json
from pathlib import Path

import pytest

from benchmarks import core, plots
from benchmarks.figures import STREAMS, Sizes

TINY = Sizes(
    name="tiny",
    active=100,
    typical=100,
    measured=200,
    repeats=2,
    inputs=(2, 3),
    disorders=(0.0, 0.5),
    revised=500,
    lags=(0, 200),
    lagging=400,
    stable_freqs=(0.01,),
    live=(50, 100),
    lifetimes=(20, 50),
    waiting=50,
    payload_bytes=50,
)

ROWS = {
    2: 2 * 6,  # inputs x algorithms
    3: 2 * 6,
    4: 2 * 2,
    5: 2 * 2,
    6: 1 * 6,
    7: 2 * 3,
    "live": 2 * 3,
    "latency": 2 * 2,
    "algorithms": 2 * (8 + 3 * 5),
    "steps": 2 * 2 * len(STREAMS),
}
"""How many rows each figure has at this size."""


def test_a_run_leaves_all_lines_pictures_and_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bars = core.run(TINY, tmp_path)
    core.profile(TINY, tmp_path)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [json.loads(line) for line in (tmp_path / "core.jsonl").read_text().splitlines()]
    assert {figure: sum(row.get("figure") == figure for row in printed) for figure in ROWS} == ROWS
    assert [row["bar"] for row in printed if "bar" in row] == [bar.claim for bar in bars]
    assert {path.stem for path in tmp_path.glob("*.png")} == set(plots.PICTURES)
    assert len(list(tmp_path.glob("profile-R[34]-*.txt"))) == 4


def test_a_bar_is_met_within_its_limits() -> None:
    assert core.Bar("", 2.0, at_least=2).met
    assert not core.Bar("", 1.9, at_least=2).met
    assert core.Bar("", 2.0, at_least=1, at_most=2).met
    assert not core.Bar("", 2.1, at_most=2).met
