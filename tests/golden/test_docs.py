"""The pages hold together: links lead somewhere, anchors that alert rules use are there, and no option is left out."""

import re
from pathlib import Path

import click
import pytest

from services.merge.__main__ import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()

RUNBOOKS = [
    *("gap", "quarantined", "stalled", "diverging", "recovering", "lagging", "silent", "no-spare"),
    *("safe-point", "commit-failed", "take-over-failed", "undecided", "control-unreadable"),
]
"""Alert rules link to them: they may become more, never fewer."""


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: its own, and those that are made of its headings."""
    found = set(re.findall(r'<a id="([^"]+)"></a>', text))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_that_alerts_link_to_is_there(name: str) -> None:
    assert OPERATIONS.count(f'<a id="runbook-{name}"></a>') == 1


def test_every_option_of_the_service_is_described_with_its_environment_variable() -> None:
    for option in main.params:
        assert isinstance(option, click.Option)
        for name in (*option.opts, f"LMERGE_{(option.name or '').upper()}"):
            assert f"`{name}`" in OPERATIONS, name
