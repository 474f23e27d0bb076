"""docs/replicas.md has every flag, and no other; its example is a file that a replica takes."""

import re
from pathlib import Path

from replicas.__main__ import main
from replicas.options import read_defaults

PAGE = (Path(__file__).parents[3] / "docs" / "replicas.md").read_text()
SETTINGS = PAGE[PAGE.index("\n## Settings") : PAGE.index("\n## On one machine")]
ROW = re.compile(r"^\| `(--[\w-]+)` \|(.*?)\| (.+) \|$", re.MULTILINE)


def test_the_page_has_the_flags_of_the_command_and_their_variables() -> None:
    rows = {flag: (default.strip(), meaning) for flag, default, meaning in ROW.findall(SETTINGS)}
    options = {option.opts[0]: option for option in main.params}
    assert {*rows} == {*options}
    for flag, option in options.items():
        default, meaning = rows[flag]
        assert option.required == (default == "required"), flag
        names = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
        assert all(f"`{name}`" in meaning for name in names), flag
        if isinstance(option.default, (int, float)) and not isinstance(option.default, bool):
            assert float(default) == option.default, flag


def test_the_example_is_a_settings_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.+?)```", SETTINGS, re.DOTALL)
    file = tmp_path / "bidders.toml"
    file.write_text(example)
    found = read_defaults(file, main)
    assert found["max_rows"] == 50_000
    assert found["topic"] == ["bids=prod.bids"]
