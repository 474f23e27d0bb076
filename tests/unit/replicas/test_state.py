"""Which incarnation a start is in: cases of recovery-and-sink.md 7.9."""

from pathlib import Path

import msgspec
import pytest

from lmerge.errors import UsageError
from replicas.checkpoint import last_batch, read_offsets
from replicas.errors import Superseded
from replicas.sink import is_done
from replicas.state import Begin, ReplicaDirectory, ReplicaFile, Resume, Tag, decide

START = {"bids": {"feed": "f", "n": 0, "at": 0, "ends": [0, 0], "tau": None, "before": None}}
FILE = ReplicaFile(incarnation=3, plan_hash="p", feed="f", start=START)


def start(
    last: int | None, committed: Tag | None, *, file: ReplicaFile | None = FILE, plan: str = "p"
) -> Resume | Begin:
    return decide(file, last, committed, plan_hash=plan, feed="f")


def test_the_first_start_begins_incarnation_1() -> None:
    decision = start(None, None, file=None)
    assert isinstance(decision, Begin)
    assert (decision.incarnation, decision.reason) == (1, "there is no checkpoint")


def test_a_lost_directory_begins_above_what_the_topic_holds() -> None:
    decision = start(None, Tag(7, 57), file=None)
    assert isinstance(decision, Begin)
    assert decision.incarnation == 8


@pytest.mark.parametrize("committed", [Tag(3, -1), Tag(3, 4), Tag(3, 57)])
def test_a_checkpoint_that_is_not_older_than_the_topic_goes_on(committed: Tag) -> None:
    assert start(57, committed) == Resume(say_hello=False)


def test_s11_killed_between_the_sinks_commit_and_sparks_it_goes_on() -> None:
    """The offset log has batch 57, the commit log only 56, the lanes 57."""
    assert start(57, Tag(3, 57)) == Resume(say_hello=False)
    assert isinstance(start(56, Tag(3, 57)), Begin), "what comparing the commit log would do"


def test_a_restored_older_checkpoint_begins_anew() -> None:
    decision = start(40, Tag(3, 57))
    assert isinstance(decision, Begin)
    assert decision.incarnation == 4
    assert "older than the topic" in decision.reason


def test_a_checkpoint_of_an_incarnation_that_has_been_followed_begins_above_it() -> None:
    decision = start(99, Tag(5, -1))
    assert isinstance(decision, Begin)
    assert decision.incarnation == 6


def test_s10_killed_before_batch_0_it_goes_on_from_the_start_in_its_file() -> None:
    assert start(None, Tag(3, -1)) == Resume(say_hello=False)


def test_killed_between_file_and_hello_it_says_hello() -> None:
    assert start(None, Tag(2, 57)) == Resume(say_hello=True)
    assert start(None, None) == Resume(say_hello=True)


def test_another_plan_or_feed_begins_anew() -> None:
    assert start(57, Tag(3, 57), plan="q") == Begin(4, "the plan has changed")
    other = decide(FILE, 57, Tag(3, 57), plan_hash="p", feed="g")
    assert other == Begin(4, "the feed is another one")


def test_an_incarnation_that_was_given_up_is_not_gone_on_with() -> None:
    wrong = msgspec.structs.replace(FILE, given_up="batch 7: Spark dropped 2 rows")
    decision = start(57, Tag(3, 57), file=wrong)
    assert isinstance(decision, Begin)
    assert (decision.incarnation, "given up: batch 7" in decision.reason) == (4, True)


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    decision = start(57, None)
    assert isinstance(decision, Begin)
    assert "does not hold incarnation 3" in decision.reason


def test_a_checkpoint_without_its_file_begins_anew() -> None:
    decision = start(57, Tag(3, 57), file=None)
    assert isinstance(decision, Begin)
    assert "no replica.json" in decision.reason


def test_s7_a_zombie_of_an_older_incarnation_ends_whatever_its_batch_number() -> None:
    with pytest.raises(Superseded, match=r"incarnation 2 has begun, this is 1"):
        is_done(Tag(1, 58), Tag(2, -1), "m.replica.r1")


@pytest.mark.parametrize(
    ("committed", "done"),
    [(None, False), (Tag(1, 6), False), (Tag(1, 7), True), (Tag(1, 8), True), (Tag(0, 99), False)],
)
def test_a_batch_is_written_iff_the_lanes_lack_it(committed: Tag | None, done: bool) -> None:
    assert is_done(Tag(1, 7), committed, "t") is done


def test_the_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    directory = ReplicaDirectory(tmp_path)
    assert directory.read() is None
    directory.write(FILE)
    directory.write(msgspec.structs.replace(FILE, incarnation=4))
    assert directory.read() == msgspec.structs.replace(FILE, incarnation=4)


@pytest.mark.parametrize("text", ["", "{}", '{"v":1,"incarnation":"x"}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "replica.json").write_text(text)
    with pytest.raises(UsageError, match=r"replica\.json"):
        ReplicaDirectory(tmp_path).read()


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    directory = ReplicaDirectory(tmp_path)
    directory.write(msgspec.structs.replace(FILE, v=2))
    with pytest.raises(UsageError, match="version 2"):
        directory.read()


def test_checkpoints_are_moved_aside_and_never_removed(tmp_path: Path) -> None:
    directory = ReplicaDirectory(tmp_path)
    assert directory.move_aside() is None
    for number in (1, 2):
        (directory.checkpoint / "offsets").mkdir(parents=True)
        assert directory.move_aside() == tmp_path / f"spark.aside-{number}"
    assert not directory.checkpoint.exists()


def test_a_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    second = ReplicaDirectory(tmp_path)
    with ReplicaDirectory(tmp_path).locked(), pytest.raises(UsageError, match="another replica runs on it"):
        second.locked().__enter__()
    with second.locked():
        pass


def test_the_offset_log_tells_batch_watermark_and_offsets(tmp_path: Path) -> None:
    assert last_batch(tmp_path) is None
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for name in ("9", "10", ".10.crc", ".11.tmp"):
        (offsets / name).write_text('v1\n{"batchWatermarkMs":1021,"conf":{}}\n{"n":4}\n-\n')
    assert last_batch(tmp_path) == 10
    batch = read_offsets(tmp_path, 10)
    assert (batch.watermark, batch.sources) == (1021, [{"n": 4}, None])
    (offsets / "11").write_text("v1\n{}")
    with pytest.raises(UsageError, match="no offset log"):
        read_offsets(tmp_path, 11)
