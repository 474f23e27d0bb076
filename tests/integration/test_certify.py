"""`lmerge certify` and `lmerge compare` on topics of a real broker: two partitions, aborted transactions in between."""

import uuid
from collections.abc import Iterator, Mapping, Sequence

import pytest

from lmerge import Element, create
from lmerge.codec import encode_batch
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.cli import Result, run_cli
from tests.support.kafka import committed, wait_for_log_end, wait_until_decided
from tests.support.streams import adj, hello, ins, stb

A, B, C = b'"A"', b'"B"', b'"C"'

INPUTS: Mapping[str, Sequence[Sequence[Element]]] = {
    # By partition. r1 ends early; r2 has a former incarnation; r3 joins late.
    "r1": [[ins(A, 6, 20), ins(B, 8, 10), stb(11)], [ins(C, 7, 9), stb(11)]],
    "r2": [
        [ins(B, 8, 11), stb(5), hello(2), ins(B, 8, 10), ins(A, 6, 20), adj(A, 6, 20, 12), stb(15)],
        [stb(5), hello(2), ins(C, 7, 9), ins(A, 12, 14), stb(15)],
    ],
    "r3": [[hello(1, 14), ins(C, 16, 30), stb(40)], [hello(1, 14), ins(A, 12, 14), stb(40)]],
}


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(scope="module")
def writer(settings: KafkaSettings) -> Iterator[TransactionalWriter]:
    with TransactionalWriter(settings, f"certify-{uuid.uuid4().hex}") as writer:
        writer.fence()
        yield writer


@pytest.fixture(scope="module")
def topics(settings: KafkaSettings, writer: TransactionalWriter) -> dict[str, str]:
    """The topics of the inputs and of a right merge, by short name."""
    streams = {**INPUTS, "merged": merged()}
    names = {name: f"certify-{uuid.uuid4().hex}-{name}" for name in streams}
    TopicAdmin(settings).ensure(*(TopicSpec(topic, partitions=2) for topic in names.values()))
    for name, partitions in streams.items():
        write(settings, writer, names[name], partitions)
    return names


def merged() -> list[list[Element]]:
    """Merge the inputs lane by lane, read one after the other."""
    lanes: list[list[Element]] = []
    for partition in range(2):
        merge = create("R3")
        for name in INPUTS:
            merge.attach(name)
        lanes.append([e for name, lane in INPUTS.items() for e in merge.process(name, lane[partition])])
    return lanes


def write(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str, partitions: Sequence[Sequence[Element]]
) -> None:
    """Write each stream in two transactions, with one between them that is aborted."""
    for partition, stream in enumerate(partitions):
        values = [(b"key", value) for value in encode_batch(stream)]
        half = len(values) // 2
        with writer.transaction():
            writer.write(topic, partition, values[:half])
        writer.begin()
        writer.write(topic, partition, [(b"key", b"nobody may see this")] * 3)
        wait_for_log_end(settings, topic, partition, half + 1 + 3)  # else the abort may overtake the records
        writer.abort()
        with writer.transaction():
            writer.write(topic, partition, values[half:])
    for partition in range(len(partitions)):
        wait_until_decided(settings, topic, partition)


def another(settings: KafkaSettings, writer: TransactionalWriter, partitions: Sequence[Sequence[Element]]) -> str:
    topic = f"certify-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(topic, partitions=len(partitions)))
    write(settings, writer, topic, partitions)
    return topic


def run(settings: KafkaSettings, *arguments: str) -> Result:
    return run_cli(*arguments, "--bootstrap-servers", settings.bootstrap_servers)


def certify(settings: KafkaSettings, topics: Mapping[str, str], merged_topic: str, *more: str) -> Result:
    inputs = [part for name in INPUTS for part in ("--input-topic", topics[name])]
    return run(settings, "certify", "--merged-topic", merged_topic, *inputs, *more)


def test_a_right_merge_is_certified_lane_by_lane(settings: KafkaSettings, topics: dict[str, str]) -> None:
    result = certify(settings, topics, topics["merged"], "--json")
    assert result.code == 0, result
    lanes = result.report["lanes"]
    assert [(lane["partition"], lane["stable"], lane["events"]["final"]) for lane in lanes] == [(0, 40, 3), (1, 40, 2)]
    assert [source["incarnations"] for source in lanes[0]["inputs"]] == [1, 2, 1]


def test_the_verdict_may_stop_at_a_stable(settings: KafkaSettings, topics: dict[str, str]) -> None:
    result = certify(settings, topics, topics["merged"], "--json", "--until", "11")
    assert result.code == 0, result
    assert [lane["stable"] for lane in result.report["lanes"]] == [11, 11]


def test_the_first_violation_is_named_by_topic_partition_and_offset(
    settings: KafkaSettings, writer: TransactionalWriter, topics: dict[str, str]
) -> None:
    """An event that no input has, behind an aborted transaction: offsets are not counts of records."""
    right = merged()
    wrong = another(settings, writer, [right[0], [*right[1][:-1], ins(b'"nobody"', 30, 31), right[1][-1]]])
    value = b'{"kind":"insert","payload":"nobody","vs":30,"ve":31}'
    offset = next(record.offset for record in committed(settings, wrong, 1) if record.value == value)
    assert offset > len(right[1])

    result = certify(settings, topics, wrong, "--json")
    assert result.code == 1
    assert [lane["certified"] for lane in result.report["lanes"]] == [True, False]
    finding = result.report["lanes"][1]["findings"][0]
    assert (finding["kind"], finding["topic"], finding["partition"], finding["offset"]) == (
        "invented",
        wrong,
        1,
        offset,
    )
    text = certify(settings, topics, wrong).out
    assert f"first, {wrong}, partition 1, offset {offset}: an event that no input has" in text


def test_a_repeated_transaction_is_found(
    settings: KafkaSettings, writer: TransactionalWriter, topics: dict[str, str]
) -> None:
    """What a writer that does not fence would do: the last transaction is there twice."""
    right = merged()
    twice = another(settings, writer, right)
    with writer.transaction():
        values = encode_batch(right[0][len(right[0]) // 2 :])
        writer.write(twice, 0, [(b"key", value) for value in values])
    wait_until_decided(settings, twice, 0)
    result = certify(settings, topics, twice, "--json")
    assert result.code == 1
    lane = result.report["lanes"][0]
    assert lane["counts"].keys() <= {"repeated", "illegal_adjust", "stable_back"}
    values_seen = [record.value for record in committed(settings, twice, 0)]
    assert lane["findings"][0]["offset"] > len(values_seen[: len(right[0])])


def test_two_topics_are_compared(settings: KafkaSettings, topics: dict[str, str]) -> None:
    equal = run(settings, "compare", topics["merged"], topics["r2"], "--json")
    assert equal.code == 0, equal
    assert [lane["until"] for lane in equal.report["lanes"]] == [15, 15]
    assert [lane["a"]["stable"] for lane in equal.report["lanes"]] == [40, 40]


def test_a_mistake_of_the_caller_is_one_clear_sentence(
    settings: KafkaSettings, writer: TransactionalWriter, topics: dict[str, str]
) -> None:
    missing = certify(settings, topics, "certify-no-such-topic")
    assert missing.code == 2
    assert missing.err.startswith("lmerge: cannot describe topic certify-no-such-topic")
    narrow = certify(settings, topics, another(settings, writer, [[stb(5), stb(6)]]))
    assert narrow.code == 2
    assert "different numbers of partitions" in narrow.err
