"""docs/feeds.md says what the code does: its feed file is read, and no setting, option or reason is left out."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from lmerge.feed import FeedDefinition, Source, SourceCounts, TopicBound
from services.heartbeat.__main__ import heartbeat

PAGE = (Path(__file__).parents[2] / "docs" / "feeds.md").read_text()
(FILE,) = re.findall(r"^```toml feed\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TABLE = {name for row in re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}


def names(layout: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(layout)}


def test_the_feed_file_of_the_page_is_read_and_has_every_setting() -> None:
    definition = FeedDefinition.parse(FILE)
    assert definition.needs_ends
    settings = (names(FeedDefinition) | names(Source) | names(TopicBound)) - {"sources", "bounds"}
    assert settings == set(re.findall(r"^(\w+) =", FILE, re.MULTILINE))
    assert settings <= TABLE


def test_the_defaults_of_the_page_are_those_of_the_code() -> None:
    definition = FeedDefinition(name="f", sources=(Source(topic="a", time="kafka", disorder_ms=0),))
    assert definition.max_ahead_ms == 3_600_000
    assert (definition.timeout_ms, definition.copy_left_out, definition.bounds_are_of_clocks) == (None, False, False)
    assert (definition.sources[0].unit, definition.sources[0].latency_ms, definition.sources[0].idle_ms) == (
        "ms",
        None,
        None,
    )


@pytest.mark.parametrize("option", heartbeat.params, ids=lambda option: str(option.name))
def test_every_option_is_described_with_its_environment_variable(option: click.Parameter) -> None:
    own = f"LMERGE_HEARTBEAT_{(option.name or '').upper()}"
    variable = f"LMERGE_{(option.name or '').upper()}" if option.envvar else own
    for name in (*option.opts, *option.secondary_opts, variable):
        assert f"`{name}`" in PAGE, name


def test_every_reason_is_named() -> None:
    for reason in SourceCounts().left_out:
        assert f"`{reason}`" in PAGE
