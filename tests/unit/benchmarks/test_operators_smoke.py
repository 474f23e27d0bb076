"""`python -m benchmarks.operators` runs from end to end and leaves every line; numbers are not judged."""

import json
from pathlib import Path

import pytest

from benchmarks import operators
from replicas.operators import Mode


def test_a_run_leaves_a_line_for_every_operator_and_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = operators.run(operators.Sizes(events=60, batch=20, rounds=1, streams=3), tmp_path)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines
    assert [json.loads(line) for line in (tmp_path / "operators.jsonl").read_text().splitlines()] == lines
    measured = [(line["operator"], line["mode"]) for line in lines if line["what"] == "speed"]
    assert measured == [(name, mode) for name, _, modes in operators.subjects() for mode in modes]
    speculation = [line for line in lines if line["what"] == "speculation"]
    assert len(speculation) == 2 * 2 * len(Mode)
    assert all(line["adjusts_per_run"] == 0 for line in speculation if line["mode"] == "final")
