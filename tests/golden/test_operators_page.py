"""docs/operators.md: its example says what it prints, and its table of modes has them all."""

import doctest
from pathlib import Path

from replicas import operators
from replicas.operators import Mode

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_example_prints_what_the_page_says() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.attempted > 5
    assert outcome.failed == 0


def test_every_operator_mode_and_function_is_on_the_page() -> None:
    text = PAGE.read_text()
    for mode in Mode:
        assert f"| `{mode.value}` |" in text
    for name in set(operators.__all__) - {"Operator", "Answer", "Function", "Mode", "UnusableState"}:
        assert f"{name}(" in text or f"{name}." in text, name
