"""`lmerge merge`, run as a process on files and pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmerge import TDB, Element, Event, Hello, Insert, reconstitute
from lmerge.codec import decode_batch, encode_batch
from services.cli.lines import Lines
from tests.support.streams import INF, adj, hello, ins, stb

A, B, C = b'"A"', b'"B"', b'"C"'
R1: list[Element] = [ins(A, 6, 20), ins(B, 8, 10), stb(11)]
R2: list[Element] = [ins(B, 8, 10), ins(A, 6, 20), adj(A, 6, 20, 12), stb(15)]
R3: list[Element] = [hello(1, 13), ins(C, 16, 30), stb(INF)]


def run(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "services.cli", "merge", *arguments]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, check=False, timeout=60, env=env)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    streams: dict[str, list[Element]] = {"r1": R1, "r2": R2, "r3": R3}
    for name, elements in streams.items():
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(encode_batch(elements)) + b"\n")
    return tmp_path


def test_files_with_a_revision_and_a_late_joiner_are_merged_and_checked(files: Path) -> None:
    result = run("r1.jsonl", "r2.jsonl", "r3.jsonl", "--check", "--stats", cwd=files)
    assert result.returncode == 0, result.stderr
    elements, error = decode_batch(result.stdout.splitlines())
    assert error is None
    assert reconstitute(elements) == TDB([Event(A, 6, 12), Event(B, 8, 10), Event(C, 16, 30)])
    assert elements[-1] == stb(INF)
    assert result.stderr.startswith(b"in: 5 inserts, 1 adjusts, 3 stables")


def test_standard_input_is_an_input_too(files: Path) -> None:
    result = run("-", "r2.jsonl", cwd=files, stdin=(files / "r1.jsonl").read_bytes())
    assert result.returncode == 0, result.stderr
    assert reconstitute(decode_batch(result.stdout.splitlines())[0]) == TDB([Event(A, 6, 12), Event(B, 8, 10)])


def test_a_pipe_that_says_nothing_does_not_stop_the_others(files: Path) -> None:
    """The output of r1 is there while the other input is open and silent."""
    os.mkfifo(files / "silent")
    command = [sys.executable, "-m", "services.cli", "merge", "silent", "r1.jsonl"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, cwd=files, stdout=subprocess.PIPE, env=env) as process:
        with (files / "silent").open("wb", buffering=0) as silent:
            assert process.stdout is not None
            expected = (files / "r1.jsonl").read_bytes().splitlines(keepends=True)
            assert [process.stdout.readline() for _ in R1] == expected
            silent.write(b"\n".join(encode_batch([ins(C, 12, 14), stb(20)])))
        assert reconstitute(decode_batch(process.stdout.read().splitlines())[0]) == TDB([Event(C, 12, 14)])
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (b'\n{"kind":"stable","vc":11}\n{"kind":"stabel","vc":12}\n', b"bad.jsonl:3: Invalid value 'stabel'"),
        (b'{"kind":"stable","vc":11}\n{"kind":"stable","vc":9}\n', b"bad.jsonl:2: Stable(9) comes after Stable(11)"),
        (b'{"kind":"adjust","payload":"X","vs":50,"vold":60,"ve":55}\n', b"bad.jsonl:1: Adjust"),
    ],
)
def test_an_input_that_breaks_its_contract_is_named_with_its_line_and_left_out(
    files: Path, broken: bytes, complaint: bytes
) -> None:
    (files / "bad.jsonl").write_bytes(broken)
    result = run("r1.jsonl", "r2.jsonl", "bad.jsonl", cwd=files)
    assert result.returncode == 1
    assert complaint in result.stderr
    assert b"left out" in result.stderr
    assert b"Traceback" not in result.stderr
    assert reconstitute(decode_batch(result.stdout.splitlines())[0]) == TDB([Event(A, 6, 12), Event(B, 8, 10)])


def test_inputs_that_contradict_each_other_are_reported(files: Path) -> None:
    (files / "other.jsonl").write_bytes(b"\n".join(encode_batch([ins(B, 8, 10), stb(30)])))
    result = run("r1.jsonl", "other.jsonl", cwd=files)
    assert result.returncode == 1
    assert b'about "A" at 6: other.jsonl says gone, r1.jsonl says alive at 11' in result.stderr


def test_r0_holds_a_late_input_until_it_is_joined(files: Path) -> None:
    (files / "late.jsonl").write_bytes(b"\n".join(encode_batch([hello(1, 13), ins(C, 16, 30), stb(INF)])))
    (files / "early.jsonl").write_bytes(b"\n".join(encode_batch([ins(A, 6, 12), stb(13)])))
    result = run("early.jsonl", "late.jsonl", "--algorithm", "R0", "--check", cwd=files)
    assert result.returncode == 0, result.stderr
    assert decode_batch(result.stdout.splitlines())[0] == [ins(A, 6, 12), stb(13), ins(C, 16, 30), stb(INF)]

    alone = run("early.jsonl", "late.jsonl", "--algorithm", "R0", "--origin", "0", cwd=files, stdin=b"")
    assert alone.returncode == 0
    (files / "early.jsonl").write_bytes(encode_batch([ins(A, 6, 12)])[0] + b"\n")
    stuck = run("early.jsonl", "late.jsonl", "--algorithm", "R0", cwd=files)
    assert stuck.returncode == 1
    assert b"late.jsonl never joined" in stuck.stderr


def test_held_inputs_release_one_another_whatever_the_order_of_their_names(files: Path) -> None:
    """r1 is longer than one chunk; a waits for b, b for c, and c for r1."""
    tails: dict[str, list[Element]] = {"r1": [*(ins(A, vs, vs + 1) for vs in range(-3000, 20)), stb(20)]}
    for name, joins_at in {"c": 20, "b": 30, "a": 40}.items():
        tails[name] = [
            hello(1, joins_at),
            *(ins(B, vs, vs + 1) for vs in range(joins_at, joins_at + 12)),
            stb(joins_at + 12),
        ]
    for name, elements in tails.items():
        (files / name).write_bytes(b"\n".join(encode_batch(elements)) + b"\n")
    expected = sorted({*range(-3000, 20), *range(20, 52)})
    for order in (["a", "b", "c", "r1"], ["r1", "c", "b", "a"]):
        result = run(*order, "--algorithm", "R0", "--origin", "-4000", cwd=files)
        assert result.returncode == 0, result.stderr
        elements, _ = decode_batch(result.stdout.splitlines())
        assert [e.vs for e in elements if isinstance(e, Insert)] == expected
        assert elements[-1] == stb(52)


def test_the_output_says_where_it_is_complete_from(files: Path) -> None:
    result = run("r3.jsonl", cwd=files)
    assert decode_batch(result.stdout.splitlines())[0] == [
        Hello(replica="lmerge", incarnation=1, joins_at=13),
        ins(C, 16, 30),
        stb(INF),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.jsonl"], b"does not exist"),
        (["r1.jsonl", "r1.jsonl"], b"named twice"),
        (["r1.jsonl", "--policy", "sometimes"], b"unknown policy 'sometimes'"),
        (["r1.jsonl", "--policy", "eager", "--algorithm", "R0"], b"use R3"),
        ([], b"Missing argument"),
    ],
)
def test_a_mistake_of_the_caller_is_one_clear_sentence(files: Path, arguments: list[str], complaint: bytes) -> None:
    result = run(*arguments, cwd=files)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert b"Traceback" not in result.stderr
    assert result.stdout == b""


def test_lines_are_whole_and_numbered_whatever_the_chunks() -> None:
    lines = Lines("x")
    taken = []
    for chunk in (b"a\n\nb", b"c\n", b"d", b""):
        lines.add(chunk)
        values, numbers = lines.take()
        taken += list(zip(values, numbers, strict=True))
    assert taken == [(b"a", 1), (b"bc", 3), (b"d", 4)]
