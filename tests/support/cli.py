"""The `lmerge` command inside the test's own process: its exit code and what it printed."""

import gc
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import pytest

from services.cli.__main__ import main


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """The JSON that it printed."""
        return json.loads(self.out)


def run_cli(*arguments: str) -> Result:
    """Run `lmerge` with these arguments to its end."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lmerge", *arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
    gc.collect()  # a client that failed is in a cycle with its error; collected in a client's own thread it would abort
    assert isinstance(leaving.value.code, int)
    return Result(leaving.value.code, out.getvalue(), err.getvalue())
