"""Pid files that are stale, damaged or point at somebody else's process; and the end of our own."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import LocalStack, StackError, die_with_parent
from deploy.local.layout import Layout, Node, write_layout
from deploy.local.processes import command_line, read_pid
from deploy.local.stack import _sweep

_SLEEP = "import time; print(flush=True); time.sleep(600)"
_LAYOUT = Layout(cluster_id="c" * 22, nodes=(Node(id=1, port=9092, controller_port=9093),))


@contextmanager
def sleeping(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for ten minutes, with these arguments at the end of its command line."""
    command = [sys.executable, "-I", "-S", "-c", _SLEEP, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # for an instant after exec a process has no command line
            yield process
        finally:
            process.kill()


@pytest.fixture
def stack(tmp_path: Path) -> LocalStack:
    """A stack of one broker that does not run."""
    write_layout(tmp_path / "some", _LAYOUT)
    (tmp_path / "some" / "1").mkdir()
    return LocalStack(name="some", run=tmp_path)


def claim(stack: LocalStack, pid: int) -> None:
    (stack.directory / "1" / "pid").write_text(f"{pid}\n")


def test_process_of_ours_is_known_by_its_command_line(stack: LocalStack) -> None:
    with sleeping("kafka.Kafka", str(stack.directory / "1" / "server.properties")) as ours:
        claim(stack, ours.pid)
        assert stack.brokers[0].pid == ours.pid
        assert stack.is_running


def test_stop_leaves_a_foreign_process_with_a_recycled_number_alone(stack: LocalStack) -> None:
    with sleeping("kafka.Kafka", "/another/server.properties") as foreign:
        claim(stack, foreign.pid)
        assert not stack.is_running
        stack.kill()
        stack.stop()
        assert foreign.poll() is None
    assert not stack.directory.exists()


@pytest.mark.parametrize("text", ["", "12", "garbage", "-1", "0", "1"])
def test_useless_pid_file_yields_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pid"
    file.write_text(text)
    assert read_pid(file, command_ends="kafka.Kafka /no/such/server.properties") is None


def test_process_that_ended_has_no_command_line(stack: LocalStack) -> None:
    with sleeping("kafka.Kafka", str(stack.directory / "1" / "server.properties")) as ours:
        claim(stack, ours.pid)
        ours.kill()
        assert stack.brokers[0].wait_until_gone(time.monotonic() + 10)  # dead, though not reaped yet
    assert command_line(ours.pid) == ""


def test_stop_ends_the_process_and_deletes_the_stack(stack: LocalStack) -> None:
    with sleeping("kafka.Kafka", str(stack.directory / "1" / "server.properties")) as ours:
        claim(stack, ours.pid)
        stack.stop()
        assert ours.wait(timeout=10) == -signal.SIGTERM
    assert not stack.directory.exists()


def test_stop_can_keep_the_data(stack: LocalStack) -> None:
    stack.stop(keep_data=True)
    assert stack.layout == _LAYOUT


def test_unknown_stack_is_named_with_those_that_are(stack: LocalStack, tmp_path: Path) -> None:
    assert stack.directory.exists()
    with pytest.raises(StackError, match=r"no stack called 'other' \(there are: some\)"):
        LocalStack(name="other", run=tmp_path).stop()


@pytest.mark.parametrize("name", ["", "../up", "a/b", "Upper", "-x", "a" * 64])
def test_name_that_is_no_directory_of_ours_is_refused(name: str) -> None:
    with pytest.raises(StackError, match="is no name for a stack"):
        LocalStack(name=name)


def test_two_brokers_are_refused() -> None:
    with pytest.raises(StackError, match="1 or 3 brokers, not 2"):
        LocalStack(brokers=2)


def test_stack_of_a_killed_owner_is_swept_up_and_no_other(stack: LocalStack, tmp_path: Path) -> None:
    write_layout(tmp_path / "abandoned", _LAYOUT)
    (tmp_path / "abandoned" / "owner").touch()
    _sweep(tmp_path)
    assert not (tmp_path / "abandoned").exists()
    assert stack.directory.exists()


_PARENT = """
import os, subprocess, sys, time
become, command = sys.argv[1:3], sys.argv[3:]
subprocess.Popen([*become, str(os.getpid()), *command])
time.sleep(600)
"""
_CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_broker_dies_with_its_parent() -> None:
    become = [sys.executable, die_with_parent.__file__]
    command = [sys.executable, "-c", _PARENT, *become, sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert command_line(child).endswith(_CHILD)
        parent.kill()
        parent.wait()
        assert parent.stdout.read() == b""  # returns when the child, too, has let go of the pipe
