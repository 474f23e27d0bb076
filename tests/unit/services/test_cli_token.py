"""`lmerge token`: a file that the merge service takes, made once, and for its owner alone."""

from pathlib import Path

from services.merge.tokens import Caller, Tokens
from tests.support.cli import run_cli


def test_a_token_is_made_once_and_the_service_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "run" / "token"
    made = run_cli("token", str(file))
    assert (made.code, made.out) == (0, f"made a token in {file}\n")
    secret = file.read_text().strip()
    assert secret not in made.out
    assert file.stat().st_mode & 0o777 == 0o600
    assert Tokens(file=file).find(secret) == Caller("development", "admin")

    again = run_cli("token", str(file), "--json")
    assert again.report == {"file": str(file), "made": False}
    assert file.read_text().strip() == secret


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run_cli("token", str(tmp_path / "file" / "token"))
    assert result.code == 2
    assert f"token file {tmp_path}/file/token: cannot be written: " in result.err
