"""`lmerge infer` on a real broker: only what is committed counts, and the newest records first."""

import uuid

from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.cli import run_cli
from tests.support.kafka import wait_until_decided


def test_the_newest_committed_records_make_the_proposal(bootstrap_servers: str) -> None:
    settings, topic = KafkaSettings(bootstrap_servers), f"{uuid.uuid4().hex}.open-bids"
    TopicAdmin(settings).ensure(TopicSpec(topic, 2))
    asked = ("infer", topic, "--bootstrap-servers", bootstrap_servers)
    assert run_cli(*asked) == (1, f"-- topic {topic} has no committed records\n", "")
    with TransactionalWriter(settings, topic) as writer:
        writer.fence()
        for partition in (0, 1):
            with writer.transaction():
                old = [(None, b'{"price":"free","auction":1}')] * 50
                new = [(None, b'{"price":%d,"auction":1,"seen":null}' % price) for price in range(50)]
                writer.write(topic, partition, [*old, *new])
            writer.begin()
            writer.write(topic, partition, [(None, b"aborted")] * 10)
            writer.abort()
            wait_until_decided(settings, topic, partition)
    newest = run_cli(*asked, "-n", "60")
    assert (newest.code, newest.err) == (0, "")
    assert newest.out.splitlines() == [
        "-- @source open_bids: price bigint, auction bigint",
        "-- left out: seen: only null",
    ]
    whole = run_cli(*asked, "--json", "--source", "bids").report
    assert whole["fields"] == {"auction": "bigint"}
    assert whole["rows"] == 200
    assert whole["left_out"]["price"] == "values of several types: bigint (100), string (100)"
