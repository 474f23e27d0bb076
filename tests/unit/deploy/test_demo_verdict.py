"""The comparison finds each planted difference, and the verdict is right only if there is none."""

import msgspec
import pytest

from deploy.demo.answer import Result
from deploy.demo.verdict import Certificate, Comparison, Laggard, Verdict, compare

TRUE = [Result(auction, 3 + auction, vs, vs + 50) for auction in (1, 2) for vs in (0, 10, 20)]
BELOW = 71

CERTIFICATE = Certificate(certified=True, lost=0, repeated=0, inserts=5, adjusts=1, stables=2)
LAGGARD = Laggard("r3", stopped_seconds=25.1, skipped_rows=3_210, caught_up_seconds=2.54)
VERDICT = Verdict(
    certificate=CERTIFICATE,
    comparison=compare(TRUE, TRUE, below=BELOW),
    rows=100,
    late_rows=0,
    killed="r2",
    laggard=LAGGARD,
    gap_before_ms=1_230,
    gap_at_kill_ms=1_480,
    seconds=125.2,
)


def differences(merged: list[Result]) -> tuple[int, int, int]:
    found = compare(merged, TRUE, below=BELOW)
    assert found.compared == len(TRUE)
    assert found.is_equal == (not found.first)
    return found.lost, found.repeated, found.wrong


def test_equal_results_in_any_order_have_no_difference() -> None:
    assert differences(TRUE[::-1]) == (0, 0, 0)


def test_lost_result_is_found() -> None:
    assert differences(TRUE[1:]) == (1, 0, 0)
    assert "merged: nothing" in compare(TRUE[1:], TRUE, below=BELOW).first


def test_repeated_result_is_found() -> None:
    assert differences([*TRUE, TRUE[2], TRUE[2]]) == (0, 2, 0)


@pytest.mark.parametrize(
    "wrong", [TRUE[1]._replace(bids=99), TRUE[1]._replace(ve=61)], ids=["another count", "another end"]
)
def test_wrong_result_is_found_beside_the_right_one_and_in_its_place(wrong: Result) -> None:
    assert differences([*TRUE, wrong]) == (0, 0, 1)
    assert differences([TRUE[0], wrong, *TRUE[2:]]) == (0, 0, 1)


def test_result_that_nobody_has_is_wrong() -> None:
    assert differences([*TRUE, Result(77, 1, 0, 50)]) == (0, 0, 1)
    assert "true: nothing" in compare([*TRUE, Result(77, 1, 0, 50)], TRUE, below=BELOW).first


def test_what_is_not_final_is_not_compared() -> None:
    later = Result(1, 1, 40, 90)
    assert compare([*TRUE, later], TRUE, below=BELOW).is_equal
    assert compare(TRUE, [*TRUE, later], below=BELOW).is_equal
    assert compare([], TRUE, below=60).lost == 2, "a result that ends at the stable is not final yet"


def test_verdict_says_its_figures() -> None:
    assert VERDICT.is_right
    said = dict(VERDICT.lines())
    assert said["merged"] == "8 elements: 5 inserts, 1 adjusts, 2 stables"
    assert said["lmerge certify"] == "certified: lost 0, repeated 0"
    assert said["batch by DuckDB"] == "6 results from 100 rows: lost 0, repeated 0, wrong 0"
    assert said["longest gap"] == "1.2 s between merged commits before r2 was killed, 1.5 s at the kill"
    assert said["fast-forward"] == ("r3 was stopped for 25 s, left out up to 3,210 rows, and caught up in 2.5 s")
    assert said["time"] == "2 min 5 s"
    assert "first problem" not in said


@pytest.mark.parametrize(
    "change",
    [
        {"certificate": msgspec.structs.replace(CERTIFICATE, certified=False)},
        {"comparison": compare(TRUE[1:], TRUE, below=BELOW)},
        {"comparison": Comparison(0, 0, 0, 0, "")},
        {"late_rows": 1},
        {"laggard": msgspec.structs.replace(LAGGARD, skipped_rows=0)},
        {"laggard": msgspec.structs.replace(LAGGARD, caught_up_seconds=None)},
    ],
    ids=["not certified", "lost", "nothing to judge", "late", "nothing skipped", "not caught up"],
)
def test_verdict_is_wrong_for_each_reason(change: dict[str, object]) -> None:
    assert not msgspec.structs.replace(VERDICT, **change).is_right


def test_certificate_adds_up_the_lanes_and_names_the_first_finding() -> None:
    finding = {"kind": "lost", "rule": "lost", "topic": "m", "partition": 1, "offset": 7, "detail": "why"}
    lanes = [
        {"elements": {"insert": 3, "adjust": 0, "stable": 2}, "findings": []},
        {"elements": {"insert": 4, "adjust": 1, "stable": 2}, "findings": [finding]},
    ]
    made = Certificate.of_report({"certified": False, "lost": 1, "repeated": 0, "lanes": lanes})
    assert (made.certified, made.lost, made.elements) == (False, 1, 12)
    assert made.first == "m/1 at offset 7: lost: why"
