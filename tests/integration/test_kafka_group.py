"""Sharing partitions among the members of a group, on a real broker."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from deploy.local import LocalStack
from lmerge.errors import UsageError
from lmerge.kafka import (
    GroupMember,
    KafkaSettings,
    Partition,
    Protocol,
    Refused,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
)
from tests.integration.conftest import Figure
from tests.support.kafka import numbered, wait_until

VICTIM = """
import sys
from lmerge.kafka import GroupMember, KafkaSettings
member = GroupMember(KafkaSettings(sys.argv[1]), sys.argv[2])
member.subscribe([sys.argv[3]])
while True:
    if member.poll(0.5):
        print(len(member.owned), flush=True)
"""
"""A member that says how many partitions it owns, until it is killed."""


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def make_topic(settings: KafkaSettings, partitions: int = 4) -> str:
    name = f"lanes-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(name, partitions))
    return name


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    return make_topic(settings)


def every(topic: str, partitions: int = 4) -> frozenset[Partition]:
    return frozenset((topic, partition) for partition in range(partitions))


def wait_for_shares(*members: GroupMember, count: int = 4, seconds: float = 30) -> None:
    """Poll all until they own so many partitions together, as equally as can be, and none twice."""

    def is_shared() -> bool:
        for member in members:
            member.poll(0.02)
        sizes = sorted(len(member.owned) for member in members)
        return sum(sizes) == count and sizes[-1] - sizes[0] <= 1

    wait_until(is_shared, f"{len(members)} members share {count} partitions", seconds=seconds)
    assert len(frozenset[Partition]().union(*(member.owned for member in members))) == count


def test_members_share_and_one_that_closes_leaves_all_to_the_other_at_once(
    settings: KafkaSettings, group: str, topic: str
) -> None:
    with TransactionalWriter(settings, topic) as writer:
        writer.fence()
        with writer.transaction():
            for partition in range(4):
                writer.write(topic, partition, numbered(10))  # none of them is ever delivered
    # A session that is longer than the patience below: had its end to be waited for, this would fail.
    with GroupMember(settings, group, session_ms=12_000) as first:
        first.subscribe([topic])
        wait_for_shares(first)
        assert first.owned == every(topic)
        assert first.protocol is Protocol.CONSUMER
        assert not first.poll(0.0)
        with GroupMember(settings, group, session_ms=12_000) as second:
            second.subscribe([topic])
            wait_for_shares(first, second)
        assert second.owned == frozenset()
        wait_for_shares(first, seconds=9)  # the next heartbeat comes within 3 s


def survive(settings: KafkaSettings, survivor: GroupMember, topic: str) -> float:
    """Let another member be killed that has half of a topic; return how long the survivor waits for all of it."""
    command = [sys.executable, "-c", VICTIM, settings.bootstrap_servers, survivor.group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert int(victim.stdout.readline()) > 0
            survivor.subscribe([topic])
            wait_for_shares(survivor, count=2)
        finally:
            victim.kill()
        killed = time.monotonic()
        wait_for_shares(survivor, seconds=15)
        assert survivor.owned == every(topic)
        return time.monotonic() - killed


def test_a_killed_member_loses_its_share_to_the_survivor(settings: KafkaSettings, group: str, topic: str) -> None:
    with GroupMember(settings, group) as survivor:
        assert survive(settings, survivor, topic) < 10


def test_the_subscription_changes_while_it_runs(settings: KafkaSettings, group: str, topic: str) -> None:
    other, missing = make_topic(settings, 2), f"missing-{uuid.uuid4().hex}"
    with GroupMember(settings, group) as member:
        assert not member.poll(0.0)
        member.subscribe([topic, missing])
        wait_for_shares(member)
        member.subscribe([topic, other])
        wait_for_shares(member, count=6)
        assert member.owned == every(topic) | every(other, 2)
        member.subscribe([other])
        wait_for_shares(member, count=2)
        member.subscribe([])
        wait_for_shares(member, count=0)
        member.subscribe([topic])
        wait_for_shares(member)
    with pytest.raises(UsageError, match="closed"):
        member.poll(0.0)


def test_a_member_that_cannot_be_is_refused(settings: KafkaSettings) -> None:
    with pytest.raises(UsageError, match="empty group"):
        GroupMember(settings, "")
    with pytest.raises(UsageError, match="session_ms 99"):
        GroupMember(settings, "group", session_ms=99)


FORBIDDEN = "forbidden"


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalStack]:
    """A broker with Kafka's own minima, and one group that nobody may join."""
    minima = {
        "group.min.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "45000",
        "group.consumer.min.heartbeat.interval.ms": "5000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with LocalStack(settings=minima) as stack:
        admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers, "log_level": 2})
        nobody = AclBinding(
            *(ResourceType.GROUP, FORBIDDEN, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"),
            *(AclOperation.READ, AclPermissionType.DENY),
        )
        for future in admin.create_acls([nobody]).values():
            future.result(10)
        yield stack


def test_a_broker_with_default_minima_gets_the_classic_protocol(strict: LocalStack, group: str) -> None:
    settings = KafkaSettings(strict.bootstrap_servers)
    topic = make_topic(settings)
    with GroupMember(settings, group) as first:
        first.subscribe([topic])
        wait_for_shares(first)
        assert first.protocol is Protocol.CLASSIC
        with closing(GroupMember(settings, group)) as second:
            second.subscribe([topic])
            wait_for_shares(first, second)
        wait_for_shares(first)


def test_a_killed_member_of_the_classic_protocol_loses_its_share_too(
    strict: LocalStack, group: str, figure: Figure
) -> None:
    """Its session is the shortest that a broker with default settings allows."""
    settings = KafkaSettings(strict.bootstrap_servers)
    with GroupMember(settings, group) as survivor:
        seconds = survive(settings, survivor, make_topic(settings))
        assert survivor.protocol is Protocol.CLASSIC
    figure(f"classic protocol: {seconds:.1f} s from SIGKILL until the survivor owns all")


def test_a_group_that_is_forbidden_is_named(strict: LocalStack) -> None:
    settings = KafkaSettings(strict.bootstrap_servers)
    with GroupMember(settings, FORBIDDEN) as member:
        member.subscribe([make_topic(settings)])
        with pytest.raises(Refused, match=f"group '{FORBIDDEN}'.*GROUP_AUTHORIZATION_FAILED"):
            wait_until(lambda: member.poll(0.1), "it is refused")


def test_a_broker_that_is_away_is_waited_for(strict: LocalStack, group: str) -> None:
    settings = KafkaSettings(strict.bootstrap_servers)
    topic = make_topic(settings)
    with GroupMember(settings, group) as member:
        member.subscribe([topic])
        wait_for_shares(member)
        strict.kill()
        with GroupMember(settings, group) as early:
            early.subscribe([topic])
            assert not early.poll(0.5)
        assert not member.poll(0.5)
        with GroupMember(settings, group) as late:
            late.subscribe([topic])
            strict.restart()
            wait_for_shares(member, late)
