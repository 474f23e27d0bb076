"""Sizes and profiles for all suites; no fixtures of the business.

`pytest` runs the sizes of `make test`, `pytest --long` those of `make test-long`. Hypothesis is derandomised in the
first, so that a red build is red again; a failure prints how to replay it in either. `--report FILE` keeps what was
run, and how long it took, in a page.
"""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import report

_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=100, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("test", max_examples=100, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("long", max_examples=10_000, **_COMMON)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --long and --report."""
    parser.addoption("--long", action="store_true", help="run the large sizes of the same suites")
    parser.addoption("--report", type=Path, metavar="FILE", help="keep outcomes and durations in a table of this page")


def pytest_configure(config: pytest.Config) -> None:
    """Load the Hypothesis profile that goes with the size, unless one was asked for by name."""
    # What a shell runs in the background ignores SIGINT, and so would every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("long" if config.getoption("--long") else "test")
    if config.getoption("--report") and not hasattr(config, "workerinput"):  # a worker's reports come to the main one
        config.pluginmanager.register(Reporter(config.getoption("--report")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests told."""
    tally = report.Tally()
    for outcome in ("passed", "failed"):
        for each in terminalreporter.getreports(outcome):
            tally.add(each)
    told = [f"{suite}: {text}" for suite, texts in tally.figures.items() for text in texts]
    if told:
        terminalreporter.section("figures")
        for line in told:
            terminalreporter.write_line(line)


class Reporter:
    """Writes the report at the end of a run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tally = report.Tally()
        self._commit = report.checked_out()  # before hours in which somebody may commit

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test."""
        self._tally.add(report)

    def pytest_sessionfinish(self) -> None:
        """Put what was counted into the page."""
        report.write(self._file, self._tally, self._commit)


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Tell whether the large sizes were asked for."""
    return bool(request.config.getoption("--long"))
