"""What `python -m replicas` refuses before it starts anything, in a sentence that says what to do."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from replicas.__main__ import main

FEED = """
name = "auction"
[[sources]]
topic = "bids"
time = "$.date_time"
disorder_ms = 2000
"""

GIVEN = {
    "--bootstrap-servers": "127.0.0.1:1",
    "--merge": "m",
    "--query": "hot_items",
    "--plan": "direct",
    "--replica": "r1",
}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--plan": "fast"}, "query hot_items has no plan 'fast': choose one of direct, eager, ordered, panes"),
        (
            {"--query": "cold_items"},
            "none of that name is shipped, only bids_with_auction, category_prices, classified_bids",
        ),
        ({"--query": "replicas.windows"}, "has no QUERY"),
        ({"--replica": "R 1"}, "replica id 'R 1'"),
        ({"--plan": "panes", "--window-ms": "5000"}, "no whole number of panes"),
        ({"--slide-ms": "20000"}, "needs 0 < slide <= width"),
        ({"--topic": "bids=orders"}, "feed auction has no topic orders, only bids"),
        ({"--topic": "bids"}, "it must be NAME=VALUE"),
        ({"--max-cuts": "0"}, "max-cuts 0"),
        ({"--start": "newest"}, "start 'newest': it must be one of first, latest"),
        ({"--feed": "/nonesuch.toml"}, "/nonesuch.toml"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, options: dict[str, str], said: str) -> None:
    (tmp_path / "feed.toml").write_text(FEED)
    given = {**GIVEN, "--feed": str(tmp_path / "feed.toml"), "--checkpoint": str(tmp_path / "c"), **options}
    result = CliRunner().invoke(main, [part for pair in given.items() for part in pair])
    assert result.exit_code == 2
    assert result.output.startswith("replicas: ")
    assert said in result.output
