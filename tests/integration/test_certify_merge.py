"""`lmerge certify --merge` on a merge that the service runs: its definition alone names its inputs, former ones too."""

import uuid
from collections.abc import Iterator

import pytest

from lmerge import Element
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from tests.support.cli import Result, run_cli
from tests.support.kafka import committed, wait_until
from tests.support.merge_service import Service, append, merged, running
from tests.support.streams import ins, stb

A, B, C = b'"A"', b'"B"', b'"C"'
PARTITIONS = 2


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(scope="module")
def service(settings: KafkaSettings) -> Iterator[Service]:
    with running(settings) as service:
        yield service


class Merge:
    """A merge of two inputs, r1 and r2, with two lanes that are given the same elements."""

    def __init__(self, settings: KafkaSettings, service: Service, **definition: object) -> None:
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self.merged_topic = f"{self.name}.merged"
        self._settings = settings
        self._service = service
        TopicAdmin(settings).ensure(*(TopicSpec(self.topic(name), PARTITIONS) for name in ("r1", "r2")))
        service.put(self.name, {"partitions": PARTITIONS, **definition})
        service.attach(self.name, "r1", "r2")

    def topic(self, name: str) -> str:
        return f"{self.name}.{name}"

    def detach(self, name: str) -> None:
        assert self._service.call("DELETE", f"/v1/merges/{self.name}/inputs/{name}")[0] == 204

    def write(self, name: str, *elements: Element) -> None:
        for partition in range(PARTITIONS):
            append(self._settings, self.topic(name), [*elements], partition)

    def wait_for_stable(self, vc: int) -> None:
        def is_there() -> bool:
            return all(merged(self._settings, self.merged_topic, p)[-1:] == [stb(vc)] for p in range(PARTITIONS))

        wait_until(is_there, f"{self.merged_topic} is stable at {vc}", seconds=60)

    def certify(self, *options: str) -> Result:
        servers = ("--bootstrap-servers", self._settings.bootstrap_servers)
        return run_cli("certify", "--merge", self.name, *servers, *options)


@pytest.fixture
def merge(settings: KafkaSettings, service: Service) -> Merge:
    """A merge that r1 has brought to 20 and then left; r2 has said less."""
    merge = Merge(settings, service)
    merge.write("r1", ins(A, 6, 20), ins(B, 8, 10), stb(20))
    merge.write("r2", ins(A, 6, 20), stb(5))
    merge.wait_for_stable(20)
    merge.detach("r1")
    return merge


def go_on(merge: Merge) -> None:
    """Let r2 come to 30, and r1, of which nobody reads any more, further still."""
    merge.write("r2", ins(B, 8, 10), ins(C, 25, 28), stb(30))
    merge.wait_for_stable(30)
    merge.write("r1", ins(C, 25, 28), ins(A, 50, 55), stb(60))


def test_an_input_that_was_detached_counts_with_what_it_wrote(merge: Merge) -> None:
    """Right after it left, nobody else bears out what it said; later, what it says on is no part of the merge."""
    result = merge.certify("--json")
    assert result.code == 0, result
    assert [lane["stable"] for lane in result.report["lanes"]] == [20, 20]
    go_on(merge)
    result = merge.certify("--json")
    assert result.code == 0, result
    for lane in result.report["lanes"]:
        assert (lane["stable"], lane["events"]["final"]) == (30, 3)
        assert [source["name"] for source in lane["inputs"]] == [merge.topic("r2"), merge.topic("r1")]


def test_a_former_topic_that_is_gone_is_left_out_and_said(settings: KafkaSettings, merge: Merge) -> None:
    go_on(merge)
    TopicAdmin(settings).delete(merge.topic("r1"))
    result = merge.certify()
    assert result.code == 0, result
    sentence = f"{merge.topic('r1')}, the topic of a former input, is left out: it is gone"
    assert sentence in result.err
    assert f"note: {sentence}" in result.out
    assert f"as a merge of {merge.topic('r2')}\n" in result.out


def test_what_somebody_else_wrote_to_the_merged_topic_is_found(settings: KafkaSettings, merge: Merge) -> None:
    go_on(merge)
    append(settings, merge.merged_topic, [ins(b'"nobody"', 35, 36)], partition=1)
    merge.write("r2", stb(40))
    merge.wait_for_stable(40)
    offset = next(r.offset for r in committed(settings, merge.merged_topic, 1) if b"nobody" in (r.value or b""))
    result = merge.certify()
    assert result.code == 1
    assert f"first, {merge.merged_topic}, partition 1, offset {offset}: an event that no input has" in result.out


def test_a_merge_with_the_normal_form_is_judged_by_it(settings: KafkaSettings, service: Service) -> None:
    """One plan says A in two pieces, the other in one; as they are, they contradict each other."""
    merge = Merge(settings, service, normal_form={})
    merge.write("r1", ins(A, 6, 12), ins(A, 12, 20), ins(B, 8, 10), stb(20))
    merge.write("r2", ins(A, 6, 20), ins(B, 8, 10), stb(25))
    merge.wait_for_stable(25)
    result = merge.certify("--json")
    assert result.code == 0, result
    assert [lane["events"]["final"] for lane in result.report["lanes"]] == [2, 2]
    append(settings, merge.merged_topic, [ins(A, 26, 30)], partition=0)
    merge.write("r2", stb(40))
    merge.wait_for_stable(40)
    assert "an event that no input has" in merge.certify().out


def test_a_merge_that_cannot_be_judged_is_one_clear_sentence(
    settings: KafkaSettings, service: Service, merge: Merge
) -> None:
    servers = ("--bootstrap-servers", settings.bootstrap_servers)
    unknown = run_cli("certify", "--merge", "no-such-merge", *servers)
    assert unknown.code == 2
    assert unknown.err.startswith("lmerge: there is no merge no-such-merge on ")
    assert merge.name in unknown.err
    lonely = f"m{uuid.uuid4().hex[:8]}"
    service.put(lonely, {})
    wait_until(lambda: "has no inputs" in run_cli("certify", "--merge", lonely, *servers).err, "its topics are made")
