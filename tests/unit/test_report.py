"""The page that the long run keeps."""

from datetime import date

import pytest

from tests.support.report import FIGURES, HEADER, Tally, update, update_figures


def phase(nodeid: str, when: str, outcome: str, seconds: float) -> pytest.TestReport:
    where = (nodeid.partition("::")[0], 1, nodeid)
    return pytest.TestReport(nodeid, where, {}, outcome, None, when, duration=seconds)  # type: ignore[arg-type]


def test_a_row_counts_tests_by_outcome_and_adds_up_all_phases() -> None:
    tally = Tally()
    tally.add(phase("tests/a.py::x", "setup", "passed", 1.0))
    tally.add(phase("tests/a.py::x", "call", "passed", 2.0))
    tally.add(phase("tests/a.py::y", "setup", "skipped", 0.0))
    tally.add(phase("tests/a.py::z", "call", "failed", 4.4))
    tally.add(phase("lmerge/r0.py::lmerge.r0", "call", "passed", 0.1))
    assert tally.rows(day=date(2026, 1, 2), commit="c", machine="m") == {
        "tests/a.py": "| tests/a.py | 2026-01-02 | c | m | 1 | 1 | 1 | 7 |",
        "lmerge": "| lmerge | 2026-01-02 | c | m | 1 | 0 | 0 | 0 |",
    }


def test_a_run_replaces_its_rows_and_leaves_the_rest_of_the_page() -> None:
    page = update("# Title\n\ntext\n", {"b": "| b | old |", "c": "| c | old |"})
    assert page == f"# Title\n\ntext\n\n{HEADER}| b | old |\n| c | old |\n"
    page = update(f"{page}\nafter\n", {"c": "| c | new |", "a": "| a | new |"})
    assert page == f"# Title\n\ntext\n\n{HEADER}| a | new |\n| b | old |\n| c | new |\n\nafter\n"


def test_a_run_replaces_the_figures_of_its_files() -> None:
    page = update_figures("text\n", {"a": ["1 s", "2 s"], "b": ["old"]})
    assert page == f"text\n\n{FIGURES}- a: 1 s\n- a: 2 s\n- b: old\n"
    page = update_figures(f"{page}\nafter\n", {"b": ["new"], "c": []})
    assert page == f"text\n\n{FIGURES}- a: 1 s\n- a: 2 s\n- b: new\n\nafter\n"
