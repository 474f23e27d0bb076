"""The examples of docs/consuming.md, run as they are printed, on the topic that the page shows."""

import contextlib
import io
import re
from pathlib import Path

from lmerge.codec import decode, encode
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.kafka import wait_until_decided

PAGE = Path(__file__).parents[2] / "docs" / "consuming.md"
EXAMPLE = re.compile(r"```(sh|python)\n(.*?)```\n\n((?:    [^\n]*\n)+)", re.DOTALL)


def test_the_examples_print_what_the_page_says(bootstrap_servers: str) -> None:
    settings = KafkaSettings(bootstrap_servers)
    (_, command, shown), *examples = EXAMPLE.findall(PAGE.read_text())
    assert "read_committed" in command
    assert len(examples) == PAGE.read_text().count("```python") == 5
    TopicAdmin(settings).ensure(TopicSpec("hot.merged", partitions=2))
    with TransactionalWriter(settings, "hot/merged") as writer:
        writer.fence()
        with writer.transaction():
            for line in shown.splitlines():
                partition, value = line.strip().split(" ", 1)
                assert encode(decode(value.encode())) == value.encode()
                writer.write("hot.merged", int(partition), [(None, value.encode())])
    for partition in (0, 1):
        wait_until_decided(settings, "hot.merged", partition)
    names: dict[str, object] = {}
    for _, code, output in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code.replace("localhost:9092", bootstrap_servers), names)  # noqa: S102
        assert printed.getvalue().splitlines() == [line.strip() for line in output.splitlines()]
