"""The process around the rows: pace, stop, files, and mistakes told without a traceback."""

import os
import re
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from threading import Event

import msgspec
import pytest

from services.workload.__main__ import main
from services.workload.nexmark import Parameters, Row, close_rows, rows
from services.workload.run import Run


class Collected:
    """A sink that keeps the batches with the time at which they came; it may stop the run."""

    def __init__(self, *, stop: Event | None = None, after: int = 0) -> None:
        self.batches: list[tuple[float, list[Row]]] = []
        self._stop = stop
        self._after = after

    def write(self, batch: list[Row]) -> None:
        self.batches.append((time.monotonic(), batch))
        if self._stop and len(self.batches) == self._after:
            self._stop.set()


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and no broker in the environment."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> int:
    """Run the command in this process, and give its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def line(row: Row) -> bytes:
    return msgspec.json.encode({"topic": row.topic, "partition": row.partition, "ts": row.ts, "row": row.fields})


def test_no_more_rows_are_written_than_are_due() -> None:
    sink = Collected()
    began = time.monotonic()
    Run(rows(Parameters(rows=600)), [sink], rate=2_000, stop=Event(), report=lambda _: None).until_done()
    written = 0
    for moment, batch in sink.batches:
        written += len(batch)
        assert written <= 2_000 * (moment - began)
    assert written == 600


def test_all_rows_arrive_in_order_as_fast_as_possible() -> None:
    sink = Collected()
    run = Run(rows(Parameters(rows=12_345)), [sink], rate=0, stop=Event(), report=lambda _: None)
    run.until_done()
    assert [row for _, batch in sink.batches for row in batch] == list(rows(Parameters(rows=12_345)))
    assert run.summary().startswith("12,345 rows in ")
    assert run.summary().endswith("event time 2026-01-01T00:00:12.344Z")


@pytest.mark.parametrize("rate", [0, 1_000])
def test_a_stop_ends_the_run_after_the_batch_that_is_being_written(rate: int) -> None:
    stop = Event()
    sinks = [Collected(stop=stop, after=2), Collected()]
    run = Run(rows(Parameters()), sinks, rate=rate, stop=stop, report=lambda _: None)
    run.until_done()
    assert [batch for _, batch in sinks[0].batches] == [batch for _, batch in sinks[1].batches]
    assert len(sinks[1].batches) == 2
    assert run.written == sum(len(batch) for _, batch in sinks[1].batches)


def test_progress_is_reported_every_few_seconds() -> None:
    clock = count(0.0, 0.25)  # each look finds it so much later: a batch takes a second
    lines: list[str] = []
    Run(
        rows(Parameters(rows=20_000)),
        [Collected()],
        rate=0,
        stop=Event(),
        report=lines.append,
        clock=lambda: next(clock),
    ).until_done()
    assert len(lines) > 2
    assert all(
        re.fullmatch(r"[0-9]+,000 rows, [0-9,]+ rows/s, event time 2026-01-01T00:00:[0-9.]+Z", line) for line in lines
    )


def test_a_file_holds_the_rows_of_the_seed_and_the_closing_rows(directory: Path) -> None:
    options = ["--file", "out.jsonl", "--seed", "5", "--event-seconds", "3", "--rate", "200", "--prefix", "x."]
    options += ["--partitions", "2", "--disorder-ms", "300", "--skew-ms", "900"]
    options += ["--start", "2026-02-03T04:05:06+01:00", "--close"]
    result = subprocess.run(
        [sys.executable, "-m", "services.workload", *options],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("workload: done: 606 rows in ")
    parameters = Parameters(
        seed=5,
        rows=600,
        event_rate=200,
        start_ms=1_770_087_906_000,
        partitions=2,
        disorder_ms=300,
        skew_ms=900,
        prefix="x.",
    )
    closing = close_rows(parameters, newest_ms=parameters.start_ms + 2_995, ahead_ms=1_800_000)
    expected = [line(row) for row in [*rows(parameters), *closing]]
    assert (directory / "out.jsonl").read_bytes().splitlines() == expected


def test_the_smaller_of_two_bounds_counts_and_the_environment_is_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMERGE_WORKLOAD_FILE", "a")
    monkeypatch.setenv("LMERGE_WORKLOAD_RATE", "50")
    assert call("--rows", "70", "--event-seconds", "1") == 0
    assert len((directory / "a").read_bytes().splitlines()) == 50


def test_a_closing_distance_can_be_given(directory: Path) -> None:
    assert call("--rows", "0", "--file", "a", "--start", "5", "--close", "20", "--partitions", "1") == 0
    assert [msgspec.json.decode(row)["ts"] for row in (directory / "a").read_bytes().splitlines()] == 3 * [20_005]


def test_a_run_may_start_now(directory: Path) -> None:
    before = int(time.time() * 1_000)
    assert call("--rows", "1", "--file", "a", "--start", "now") == 0
    assert before <= msgspec.json.decode((directory / "a").read_bytes())["ts"] <= time.time() * 1_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "nowhere to write to: give --bootstrap-servers, --file, or both"),
        ("--file a", "a file without an end: give --rows or --event-seconds"),
        ("--file a --rows 1 --abort-share 0.1", "a file has no transactions to abort"),
        ("--file missing/a --rows 1", "file missing/a cannot be written: No such file or directory"),
        ("--file . --rows 1", "file . cannot be written: Is a directory"),
        ("--rate -1", "Invalid value for '--rate': -1 is not in the range x>=0"),
        ("--partitions 0", "Invalid value for '--partitions': 0 is not in the range x>=1"),
        ("--abort-share 1.5", "Invalid value for '--abort-share'"),
        ("--start yesterday", "'yesterday' is no time: give 2026-01-01T00:00:00.000Z"),
        ("--file a --rows 9000000 --skew-ms 900000", "hold back 2,700,000 rows"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str], options: str, message: str) -> None:
    assert call(*options.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_ends_the_run_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--file", "/dev/full", "--rows", "10") == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].startswith("workload: failed after 0 rows in ")
    assert errors[1].startswith("workload: file /dev/full cannot be written on: No space left on device")
