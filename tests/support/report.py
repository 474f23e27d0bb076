"""The report of the long run: a table in a page of `docs/`, one row for each file of tests, kept from run to run.

A run replaces the rows of the files that it ran, adds those that are new, and leaves the rest of the page as it is. The
figures that tests tell (fixture `figure`) are kept in the same way, in a list after the table.
"""

import os
import subprocess
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path
from typing import Final

import pytest

HEADER: Final = (
    "| tests | date | commit | machine | passed | failed | skipped | seconds |\n|---|---|---|---|---:|---:|---:|---:|\n"
)
FIGURES: Final = "Figures that the tests told:\n\n"


class Tally:
    """Counts what became of the tests of each file, and how long they took."""

    def __init__(self) -> None:
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.figures: defaultdict[str, list[str]] = defaultdict(list)
        """What the tests of each file told."""

    def add(self, report: pytest.TestReport) -> None:
        """Count one phase of a test: its set-up, its call or its tear-down."""
        file = report.nodeid.partition("::")[0]
        suite = "lmerge" if file.startswith("lmerge/") else file  # its doctests
        self._seconds[suite] += report.duration
        if report.when == "call" or not report.passed:
            self._outcomes[suite][report.outcome] += 1
        if report.when == "call":
            self.figures[suite] += [str(text) for name, text in report.user_properties if name == "figure"]

    def rows(self, *, day: date, commit: str, machine: str) -> dict[str, str]:
        """Give the row of each file that was run."""
        return {
            suite: f"| {suite} | {day} | {commit} | {machine} | {found['passed']} | "
            f"{found['failed']} | {found['skipped']} | {self._seconds[suite]:.0f} |"
            for suite, found in self._outcomes.items()
        }


def update(page: str, rows: dict[str, str]) -> str:
    """Return the page with these rows in its table, which comes last if it is new."""
    if HEADER not in page:
        page = f"{page.rstrip()}\n\n{HEADER}".lstrip()
    before, _, rest = page.partition(HEADER)
    lines = rest.splitlines()
    end = next((n for n, line in enumerate(lines) if not line.startswith("| ")), len(lines))
    known = {line.split("|")[1].strip(): line for line in lines[:end]}
    table = [row for _, row in sorted({**known, **rows}.items())]
    return "\n".join([before + HEADER.rstrip(), *table, *lines[end:]]) + "\n"


def update_figures(page: str, figures: dict[str, list[str]]) -> str:
    """Return the page with these figures in its list, which comes last if it is new; a file's old ones are gone."""
    if FIGURES not in page:
        page = f"{page.rstrip()}\n\n{FIGURES}".lstrip()
    before, _, rest = page.partition(FIGURES)
    lines = rest.splitlines()
    end = next((n for n, line in enumerate(lines) if not line.startswith("- ")), len(lines))
    kept = [line for line in lines[:end] if line.removeprefix("- ").partition(": ")[0] not in figures]
    told = [f"- {suite}: {text}" for suite, texts in figures.items() for text in texts]
    return "\n".join([before + FIGURES.rstrip(), "", *sorted(kept + told), *lines[end:]]) + "\n"


def write(file: Path, tally: Tally, commit: str) -> None:
    """Put what was counted into the page; the commit is the one that was run."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory:.0f} GiB"
    rows = tally.rows(day=date.today(), commit=commit, machine=machine)  # noqa: DTZ011  # local
    page = update(file.read_text() if file.exists() else "", rows)
    file.write_text(update_figures(page, {suite: tally.figures[suite] for suite in rows}))


def checked_out() -> str:
    """Return what is checked out, and whether it was changed since, so that a row tells of which code it is."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        return "–"  # noqa: RUF001
