"""The trial types what the README says."""

from pathlib import Path

import pytest

from deploy.compose.trial.readme import script
from deploy.local.errors import StackError

README = (Path(__file__).parents[3] / "README.md").read_text()


def test_the_lines_of_the_readme_are_found_and_led_to_the_ports_of_the_trial() -> None:
    lines = script(README, api_port=1234, kafka_port=5678).splitlines()
    assert lines[0] == "docker compose exec merge-1 lmerge status hot_items --token-file /run/lmerge/token"
    assert "export LMERGE_URL=http://127.0.0.1:1234" in lines
    assert sum(line.startswith("api ") for line in lines) == 4
    assert lines[-1].startswith("kcat -C -b $LMERGE_BOOTSTRAP_SERVERS -t hot_items.merged ")
    assert not {"8080", "9092"} & {*"\n".join(lines).replace(":", " ").split()}


def test_a_readme_without_them_is_an_error() -> None:
    with pytest.raises(StackError, match="kcat"):
        script(README.replace("kcat -C", "cat"), api_port=1, kafka_port=2)
