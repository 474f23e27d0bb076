"""`lmerge certify` and `lmerge compare`: what they find, on literal streams, and as processes on files."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lmerge import MINUS_INFINITY, Element
from lmerge.codec import encode_batch
from lmerge.compatible import Order
from services.certify import Batch, BeginsAnew, Certificate, Certifier, Compared, Comparison, Kind
from services.cli.__main__ import main
from services.cli.progress import Progress
from services.cli.sources import read_file
from tests.support.streams import INF, adj, hello, ins, skip, stb

Stream = Sequence[Element]

R1: Stream = [ins("A", 6, 20), ins("B", 8, 10), stb(11)]
R2: Stream = [ins("B", 8, 10), ins("A", 6, 20), adj("A", 6, 20, 12), stb(15)]
RIGHT: Stream = [ins("A", 6, 20), ins("B", 8, 10), stb(11), adj("A", 6, 20, 12), stb(15)]


def batches(stream: Stream, size: int = 2) -> Iterator[Batch]:
    for start in range(0, len(stream), size):
        elements = stream[start : start + size]
        yield Batch(elements, range(start + 1, start + 1 + len(elements)))


def certify(merged: Stream, *inputs: Stream, **options: Any) -> Certificate:
    named = {f"r{number}": batches(stream) for number, stream in enumerate(inputs, 1)}
    return Certifier(("m", batches(merged)), named, **options).run()


def compare(a: Stream, b: Stream) -> Compared:
    return Comparison(("a", batches(a)), ("b", batches(b))).run()


# -- certify


def test_a_right_merge_is_certified_with_figures() -> None:
    certificate = certify(RIGHT, R1, R2)
    assert certificate.certified
    assert (certificate.lost, certificate.repeated) == (0, 0)
    assert (certificate.inserts, certificate.adjusts, certificate.stables) == (2, 1, 2)
    assert (certificate.stable, certificate.judged, certificate.final, certificate.alive) == (15, 15, 2, 0)
    assert [figures.stable for figures in certificate.inputs] == [11, 15]


@pytest.mark.parametrize(
    ("merged", "kind", "position", "words"),
    [
        ([ins("A", 6, 20), stb(11)], Kind.LOST, 2, "'B' from 8: merged has none, r1 has [8, 10)"),
        ([*RIGHT[:2], ins("B", 8, 10), stb(11)], Kind.REPEATED, 3, "is there"),
        ([*RIGHT[:3], ins("B", 8, 10)], Kind.REPEATED, 4, "comes after Stable(11)"),
        ([*RIGHT[:3], adj("B", 8, 10, 12)], Kind.ILLEGAL_ADJUST, 4, "comes after Stable(11)"),
        ([*RIGHT[:2], adj("C", 8, 10, 12)], Kind.ILLEGAL_ADJUST, 3, "no such event"),
        ([*RIGHT[:3], stb(10)], Kind.STABLE_BACK, 4, "Stable(10) comes after Stable(11)"),
        ([ins("X", 7, 9), *RIGHT], Kind.INVENTED, 1, "'X' from 7: merged has [7, 9), r1 has none, r2 has none"),
        ([ins("A", 6, 20), ins("B", 8, 9), stb(11)], Kind.WRONG_END, 2, "merged has [8, 9), r1 has [8, 10)"),
        ([*RIGHT[:3], adj("A", 6, 20, 14), stb(15)], Kind.WRONG_END, 4, "settled by Stable(15) at m:5"),
        ([*RIGHT, stb(16)], Kind.AHEAD, 6, "have come to 15"),
        ([*RIGHT, hello(2, 14)], Kind.BEGINS_ANEW, 6, "comes after Stable(15)"),
    ],
)
def test_the_first_violating_element_is_named_with_its_rule(
    merged: Stream, kind: Kind, position: int, words: str
) -> None:
    certificate = certify(merged, R1, R2)
    assert certificate.counts == {kind: 1}
    finding = certificate.findings[0]
    assert (finding.kind, finding.stream, finding.position) == (kind, "m", position)
    assert words in finding.detail


def test_what_follows_a_violation_is_judged_and_counted() -> None:
    merged: Stream = [stb(9), ins("A", 6, 20), ins("B", 8, 10), ins("C", 10, 11), stb(15), stb(14)]
    certificate = certify(merged, R1, R2)
    assert certificate.counts == {Kind.LOST: 2, Kind.LATE: 2, Kind.INVENTED: 1, Kind.STABLE_BACK: 1}
    assert certificate.findings[0].kind is Kind.LOST


def test_several_events_of_one_payload_and_vs_are_counted() -> None:
    twice: Stream = [ins("A", 6, 9), ins("A", 6, 9), ins("A", 6, 12), stb(20)]
    assert certify(twice, twice, multiset=True).certified
    assert certify(twice[1:], twice, multiset=True).counts == {Kind.LOST: 1}
    assert certify([ins("A", 6, 9), *twice], twice, multiset=True).counts == {Kind.REPEATED: 1}
    assert certify([*twice[1:3], ins("A", 6, 10), stb(20)], twice, multiset=True).counts == {Kind.WRONG_END: 1}


def test_a_late_joiner_bears_the_output_out_from_where_it_is_complete() -> None:
    late: Stream = [hello(1, 15), ins("junk", 3, 9), ins("C", 16, 30), stb(INF)]
    merged: Stream = [*RIGHT, ins("C", 16, 30), stb(INF)]
    assert certify(merged, R1, R2, late).certified
    later: Stream = [hello(1, 17), *late[1:]]
    assert certify(merged, R1, R2, later).counts == {Kind.AHEAD: 1}
    assert certify([*RIGHT, ins("junk", 16, 17), *merged[-2:]], R1, R2, late).counts == {Kind.INVENTED: 1}


def test_a_skip_takes_back_what_lies_before_it_only() -> None:
    fast_forwarded = [*R1, skip(15), ins("C", 16, 30), stb(20)]
    merged: Stream = [*RIGHT, ins("C", 16, 30), stb(20)]
    assert certify(merged, fast_forwarded, R2).certified
    assert certify(merged, fast_forwarded).counts == {Kind.AHEAD: 1}


def test_a_former_incarnation_counts_as_an_input_that_left() -> None:
    again = [*R1, hello(2, 11), ins("A", 6, 12), ins("C", 16, 30), stb(20)]
    merged: Stream = [*RIGHT, ins("C", 16, 30), stb(20)]
    certificate = certify(merged, again)
    assert certificate.certified, certificate.findings
    assert certificate.inputs[0].incarnations == 2
    assert certify([*merged[:1], *merged[2:]], again).counts == {Kind.LOST: 1}


def test_an_incarnation_that_reads_everything_again_changes_nothing() -> None:
    again = [*R2, hello(2), *R2[:-1], ins("C", 16, 30), stb(20)]
    assert certify([*RIGHT, ins("C", 16, 30), stb(20)], again).certified


def test_an_input_whose_beginning_is_gone_counts_from_its_hello_on() -> None:
    rest = [ins("X", 1, 2), stb(11), hello(2), *R2]
    assert certify(RIGHT, rest, begin_late=frozenset({"r1"})).certified
    assert certify(RIGHT, R2, begin_late=frozenset({"r1"})).counts == {Kind.AHEAD: 1}


def test_a_merge_with_an_origin_answers_for_what_ends_after_it_only() -> None:
    merged: Stream = [hello(1, 11), ins("A", 6, 12), stb(15)]
    certificate = certify(merged, R2)
    assert certificate.certified
    assert certificate.complete_from == 11
    assert certify(merged[1:], R2).counts == {Kind.LOST: 1}
    assert certify(merged[1:], R2, origin=11).certified


def test_a_merged_stream_may_begin_anew_after_a_gap() -> None:
    left: Stream = [hello(1, 30), ins("C", 28, 40), stb(50)]
    merged: Stream = [*RIGHT, hello(2, 30), ins("C", 28, 40), stb(50)]
    assert certify(merged, R2, left).certified
    assert certify([*merged[:-2], stb(50)], R2, left).counts == {Kind.LOST: 1}
    assert certify([skip(30), *merged[-2:]], R2, left).certified


def test_an_ordered_merge_may_rest_on_order_alone() -> None:
    first: Stream = [ins("A", 6, 8), ins("B", 12, 13)]
    late: Stream = [hello(1, 14), ins("C", 20, 25), stb(30)]
    merged: Stream = [*first, ins("C", 20, 25), stb(30)]
    assert certify(merged, first, late, order=Order.STRICTLY_BY_VS).certified
    assert certify(merged, first, late).counts == {Kind.AHEAD: 1}


def test_an_input_that_breaks_its_contract_counts_with_what_came_before() -> None:
    broken = [*R1, ins("A", 6, 7), ins("X", 14, 15), stb(20)]
    certificate = certify(RIGHT, broken, R2)
    assert certificate.certified
    assert certificate.inputs[0].problems == [
        (4, "Insert('A', 6, 7): an element contradicts the stream's own stable"),
    ]


def test_inputs_that_contradict_each_other_are_contested() -> None:
    other: Stream = [ins("A", 6, 13), ins("B", 8, 10), stb(15)]
    certificate = certify(RIGHT, R2, other)
    assert certificate.counts == {Kind.CONTESTED: 1}
    assert "r1 has [6, 12), r2 has [6, 13)" in certificate.findings[0].detail
    nobody = certify([ins("B", 8, 10), stb(15)], R2, other)
    assert nobody.counts == {Kind.CONTESTED: 1, Kind.LOST: 1}


def test_only_what_was_asked_for_is_judged() -> None:
    certificate = certify([*RIGHT, stb(99)], R1, R2, until=15)
    assert certificate.certified
    assert certificate.stable == 15
    assert certify(RIGHT, R1, R2, until=16).counts == {Kind.SHORT: 1}


def test_a_reference_is_compared_as_far_as_it_is_stable() -> None:
    known: Stream = [ins("A", 6, 12), ins("B", 8, 10), stb(11)]
    assert certify(RIGHT, R1, R2, reference=("r", batches(known))).reference_until == 11
    wrong = certify(RIGHT, R1, R2, reference=("r", batches([ins("A", 6, 12), stb(11)])))
    assert wrong.counts == {Kind.NOT_THE_REFERENCE: 1}
    assert wrong.findings[0].position == 2
    nothing = certify(RIGHT, R1, R2, reference=("r", batches([ins("A", 6, 12)])))
    assert nothing.counts == {Kind.NOT_THE_REFERENCE: 1}
    illegal = certify(RIGHT, R1, R2, reference=("r", batches([stb(9), stb(8), stb(20)])))
    assert illegal.counts == {Kind.CONTRACT: 1, Kind.NOT_THE_REFERENCE: 2}


def test_state_is_bounded_by_what_is_not_frozen() -> None:
    """Also where the merged stream, or an input, has one stable for all of it, the others are not kept."""
    events = 5_000
    whole = [element for t in range(events) for element in (ins(t, t, t + 5), stb(t))]
    rows: list[int] = []

    def watched(stream: Stream) -> Iterator[Batch]:
        for batch in batches(stream, 50):
            rows.append(len(certifier._judge.table))
            yield batch

    certifier = Certifier(("m", watched(whole)), {"r1": batches(whole, 50), "r2": batches(whole, 7)})
    assert certifier.run().certified
    assert max(rows) < 3_000  # rows that are closed are swept when there are more than twice 1,024

    rows.clear()
    again: Stream = [*whole, hello(2), *whole, stb(events)]
    certifier = Certifier(("m", batches([*whole, stb(events)], 50)), {"r1": watched(again)})
    assert certifier.run().certified
    assert max(rows) < 3_000

    rows.clear()
    silent: Stream = [stb(INF)]
    certifier = Certifier(("m", batches(silent, 50)), {"r1": watched(whole), "r2": watched(whole)})
    assert certifier.run().lost == events - 1
    assert max(rows) < 3_000


# -- compare


def test_equal_snapshots_do_not_make_equal_tdbs() -> None:
    """P-02 of notes/seed-002."""
    compared = compare([ins("a", 1, 5), ins("a", 3, 8), stb(INF)], [ins("a", 1, 8), ins("a", 3, 5), stb(INF)])
    assert compared.snapshot_equal
    assert not compared.tdb_equal
    assert compared.differing == 2
    assert compared.tdb_difference is not None
    assert (compared.tdb_difference.a, compared.tdb_difference.b) == ("[1, 5)", "[1, 8)")


def test_beyond_the_smaller_stable_nothing_is_comparable_yet() -> None:
    """P-03 of notes/seed-002."""
    a: Stream = [ins("a", 1, 5), stb(6)]
    b: Stream = [ins("a", 1, 6), stb(4)]
    compared = compare(a, b)
    assert compared.tdb_equal
    assert compared.snapshot_equal
    assert (compared.until, compared.a_stable, compared.b_stable) == (4, 6, 4)
    assert (compare(b, a).until, compare(b, a).b_stable) == (4, 6)
    further = compare(a, [*b, stb(7)])
    assert further.snapshot_difference is not None
    assert (further.snapshot_difference.instant, further.until) == (5, 6)
    assert (further.snapshot_difference.a, further.snapshot_difference.b) == ("none", "[1, …)")


def test_the_first_differing_instant_is_found_after_the_ends_have_come() -> None:
    a: Stream = [ins("a", 1, 9), ins("b", 2, 4), ins("c", 3, 7), stb(5), stb(20)]
    b: Stream = [ins("a", 1, 8), ins("b", 2, 4), ins("c", 3, 6), stb(5), stb(20)]
    compared = compare(a, b)
    assert compared.snapshot_difference is not None
    assert (compared.snapshot_difference.instant, compared.snapshot_difference.payload) == (6, "'c'")
    assert compared.differing == 2


def test_streams_are_compared_where_both_are_complete() -> None:
    a: Stream = [hello(1, 8), ins("junk", 1, 3), ins("a", 2, 9), stb(20)]
    b: Stream = [ins("x", 1, 7), ins("a", 2, 9), stb(20)]
    compared = compare(a, b)
    assert compared.tdb_equal
    assert compared.snapshot_equal
    assert compared.since == 8
    assert compare(b, a).tdb_equal
    assert compare([*b[:2], stb(5), skip(9), stb(20)], a).since == 9
    skipping: Stream = [ins("x", 1, 7), ins("a", 2, 9), stb(3), skip(12), ins("b", 9, 15), stb(20)]
    other: Stream = [ins("x", 1, 7), ins("a", 2, 9), stb(3), ins("y", 4, 6), ins("b", 9, 15), stb(20)]
    assert compare(skipping, other).tdb_equal
    assert compare(other, skipping).tdb_equal
    assert not compare(other, [*skipping[:-2], stb(20)]).tdb_equal


def test_a_stream_that_breaks_its_contract_is_not_equal_to_anything() -> None:
    for one, other, name in (([stb(5), stb(4)], [stb(9)], "a"), ([stb(9)], [stb(5), stb(4), stb(9)], "b")):
        compared = compare(one, other)
        assert not compared.tdb_equal
        assert not compared.snapshot_equal
        assert (compared.findings[0].stream, compared.findings[0].position) == (name, 2)


def test_an_empty_stream_is_not_comparable_yet() -> None:
    assert compare([], R1).until == MINUS_INFINITY
    assert compare(R1, []).until == MINUS_INFINITY


def test_a_hello_asks_for_another_reading() -> None:
    with pytest.raises(BeginsAnew) as hello_in_b:
        compare(R1, [*R1, hello(2), stb(11)])
    assert (hello_in_b.value.stream, hello_in_b.value.position) == ("b", 4)


# -- as a process


class Result(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(*arguments: str, cwd: Path) -> Result:
    """Run the command in this process: starting one takes longer than all that it does here."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lmerge", *arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
    code = leaving.value.code
    assert isinstance(code, int)
    return Result(code, out.getvalue().encode(), err.getvalue().encode())


def write(path: Path, stream: Stream) -> bytes:
    """Write a stream as on the wire, its payloads as JSON strings."""
    text = b"".join(value + b"\n" for value in encode_batch(_with_json(stream)))
    path.write_bytes(text)
    return text


def _with_json(stream: Stream) -> Iterator[Element]:
    for element in stream:
        match element:
            case ins(payload, vs, ve):
                yield ins(b'"%b"' % str(payload).encode(), vs, ve)
            case adj(payload, vs, vold, ve):
                yield adj(b'"%b"' % str(payload).encode(), vs, vold, ve)
            case _:
                yield element


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, stream in {"r1": R1, "r2": R2, "m": RIGHT, "lost": [RIGHT[0], *RIGHT[2:]]}.items():
        write(tmp_path / f"{name}.jsonl", stream)
    return tmp_path


INPUTS = ("--input", "r1.jsonl", "--input", "r2.jsonl")


def test_a_certificate_is_a_verdict_with_figures_and_exit_code_0(files: Path) -> None:
    write(files / "known.jsonl", [ins("A", 6, 12), ins("B", 8, 10), stb(INF)])
    result = run("certify", "--merged", "m.jsonl", *INPUTS, "--reference", "known.jsonl", cwd=files)
    assert result.returncode == 0
    verdict, figures = result.stdout.splitlines()
    assert verdict == b"certified: m.jsonl as a merge of r1.jsonl, r2.jsonl"
    assert b"2 events final, 0 alive; lost 0, repeated 0; compared with the reference up to 15" in figures
    assert b"15 elements read in" in result.stderr


def test_a_refusal_names_file_and_line_and_exits_with_1(files: Path) -> None:
    result = run("certify", "--merged", "lost.jsonl", *INPUTS, cwd=files)
    assert result.returncode == 1
    assert b"first, lost.jsonl:2: an event of the inputs is lacking" in result.stdout
    assert b'"B" from 8: merged has none, r1.jsonl has [8, 10)' in result.stdout

    report = json.loads(run("certify", "--merged", "lost.jsonl", *INPUTS, "--json", cwd=files).stdout)
    assert (report["certified"], report["lost"], report["repeated"]) == (False, 1, 0)
    finding = report["lanes"][0]["findings"][0]
    assert (finding["kind"], finding["file"], finding["line"]) == ("lost", "lost.jsonl", 2)


def test_the_merged_stream_may_come_from_a_pipe(files: Path) -> None:
    command = [sys.executable, "-m", "services.cli", "certify", "--merged", "-", *INPUTS, "--json"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    merged = (files / "m.jsonl").read_bytes()
    result = subprocess.run(command, cwd=files, input=merged, capture_output=True, check=False, timeout=60, env=env)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["certified"] is True


def test_malformed_records_are_findings(files: Path) -> None:
    right = (files / "m.jsonl").read_bytes()
    (files / "broken.jsonl").write_bytes(b"not json\n\n" + right + b'{"kind":"stable","vc":15.5}\n')
    report = json.loads(run("certify", "--merged", "broken.jsonl", *INPUTS, "--json", cwd=files).stdout)
    assert report["lanes"][0]["counts"] == {"malformed": 2}
    assert [finding["line"] for finding in report["lanes"][0]["findings"]] == [1, 8]

    (files / "r1.jsonl").write_bytes(b"not json\n" + (files / "r1.jsonl").read_bytes())
    result = run("certify", "--merged", "m.jsonl", *INPUTS, cwd=files)
    assert result.returncode == 0  # r2 alone bears it out
    assert b"note: r1.jsonl:1: JSON is malformed" in result.stdout

    result = run("compare", "r1.jsonl", "r2.jsonl", cwd=files)
    assert result.returncode == 1
    assert b"r1.jsonl:1: a stream breaks its own contract" in result.stdout


def test_a_stream_that_is_final_nowhere_is_not_certified(files: Path) -> None:
    write(files / "open.jsonl", [RIGHT[0]])
    result = run("certify", "--merged", "open.jsonl", *INPUTS, cwd=files)
    assert result.returncode == 1
    assert b"no stable yet" in result.stdout


def test_lines_are_numbered_as_in_the_file_whatever_the_chunks(tmp_path: Path) -> None:
    write(tmp_path / "long.jsonl", [ins(f"a payload that takes some room: {t}", t, t + 1) for t in range(10_000)])
    elements: list[Element] = []
    positions: list[int] = []
    for batch in read_file(str(tmp_path / "long.jsonl"), start=3):
        elements += batch.elements
        positions += batch.positions
    assert positions == list(range(3, 10_001))
    assert [element.vs for element in elements if isinstance(element, ins)] == list(range(2, 10_000))


def test_a_comparison_says_where_streams_first_differ(files: Path) -> None:
    equal = run("compare", "m.jsonl", "r1.jsonl", cwd=files)
    assert equal.returncode == 0
    assert equal.stdout.startswith(b"equal: m.jsonl and r1.jsonl")
    assert b"not yet comparable beyond 11: m.jsonl is stable to 15, r1.jsonl to 11" in equal.stdout

    different = run("compare", "lost.jsonl", "m.jsonl", cwd=files)
    assert different.returncode == 1
    assert b'first differing instant of the snapshots: 8, "B"' in different.stdout

    write(files / "cut.jsonl", [ins("A", 6, 9), ins("A", 9, 12), ins("B", 8, 10), stb(15)])
    assert run("compare", "cut.jsonl", "m.jsonl", cwd=files).returncode == 1
    cut = run("compare", "cut.jsonl", "m.jsonl", "--snapshots", "--json", cwd=files)
    assert cut.returncode == 0
    report = json.loads(cut.stdout)
    assert (report["tdb_equal"], report["snapshot_equal"]) == (False, True)


def test_of_several_incarnations_the_last_one_is_compared(files: Path) -> None:
    write(files / "again.jsonl", [ins("X", 1, 2), stb(9), hello(2), stb(3), hello(3), *RIGHT])
    write(files / "also.jsonl", [*RIGHT, hello(2), *RIGHT])
    assert run("compare", "again.jsonl", "also.jsonl", cwd=files).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["certify"], b"give --merged and at least one --input"),
        (["certify", "--merged", "m.jsonl"], b"give --merged and at least one --input"),
        (["certify", "--merged", "missing.jsonl", *INPUTS], b"does not exist"),
        (["certify", "--merged", "r1.jsonl", *INPUTS], b"r1.jsonl is named twice"),
        (["certify", "--merged", "-", "--input", "-"], b"standard input is named twice"),
        (["certify", "--merged-topic", "m", "--input-topic", "a"], b"give --bootstrap-servers"),
        (["certify", "--bootstrap-servers", "x:1", "--merged", "m.jsonl", *INPUTS], b"files or topics"),
        (["certify", "--bootstrap-servers", "x:1", "--merged-topic", "m"], b"at least one --input-topic"),
        (["certify", "--bootstrap-servers", "x:1", "--merge", "m", "--input-topic", "a"], b"--merge names the topics"),
        (["compare", "m.jsonl", "missing.jsonl"], b"no such file: missing.jsonl"),
        (["compare", "m.jsonl", "m.jsonl"], b"named twice"),
    ],
)
def test_a_mistake_of_the_caller_is_one_clear_sentence(files: Path, arguments: list[str], complaint: bytes) -> None:
    result = run(*arguments, cwd=files)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert result.stdout == b""


def test_progress_is_plain_lines_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter(range(0, 1_000, 6))
    progress = Progress(clock=lambda: float(next(times)))
    progress.lane = "partition 3: "
    progress.stable = lambda: 7
    assert sum(len(batch.elements) for batch in progress.watch(batches([stb(t) for t in range(8)]))) == 8
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "lmerge: partition 3: 4 elements read, stable 7"
    assert lines[-1].startswith("lmerge: 8 elements read in ")
    assert not any("\r" in line for line in lines)
