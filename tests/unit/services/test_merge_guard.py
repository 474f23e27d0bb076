"""Who may call the merge service, how often and with how much; and that nothing secret comes out."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lmerge import UsageError
from services.merge.api.guard import Bucket, Limits
from services.merge.tokens import Caller, Tokens, development_token, from_environment, parse
from tests.support.rest import ADMIN, READ, World

CALLS = (
    ("PUT", "/v1/merges/n"),
    ("DELETE", "/v1/merges/m"),
    ("PUT", "/v1/merges/m/inputs/r3"),
    ("DELETE", "/v1/merges/m/inputs/r1"),
    ("POST", "/v1/merges/m/inputs/r1:pause"),
    ("POST", "/v1/merges/m/inputs/r1:resume"),
    ("POST", "/v1/merges/m/inputs/r1:fast-forward"),
    ("POST", "/v1/merges/m/inputs/r1:release"),
)
READS = ("/v1/merges", "/v1/merges/m", "/v1/merges/m/inputs", "/v1/merges/m/inputs/r1", "/v1/merges/m/divergences")


@pytest.fixture
def world() -> World:
    world = World()
    world.with_merge()
    return world


def test_without_a_known_token_nothing_is_shown_or_changed(world: World) -> None:
    before = world.control.desired
    for method, path in (*CALLS, *(("GET", path) for path in READS), ("POST", "/v1/merges:validate")):
        for token in (None, "wrong", ADMIN[:-1], ADMIN + "x", "é"):
            headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
            response = world.client.request(method, path, content="{}", headers=headers)
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
            assert response.headers["www-authenticate"].startswith("Bearer")
    response = world.client.request("GET", "/v1/merges", headers={"Authorization": f"Basic {ADMIN}"})
    assert response.status_code == 401
    assert world.control.desired is before


def test_a_read_token_reads_and_changes_nothing(world: World) -> None:
    before = world.control.desired
    for method, path in CALLS:
        status, body = world.call(method, path, {}, token=READ)
        assert (status, body["code"]) == (403, "forbidden")
    assert world.control.desired is before
    for path in READS:
        assert world.call("GET", path, token=READ)[0] == 200
    assert world.call("POST", "/v1/merges:validate", {"name": "n", "definition": {}}, token=READ)[0] == 200


def test_a_body_is_bounded_also_where_its_length_is_not_announced(world: World) -> None:
    status, body = world.call("PUT", "/v1/merges/n", {"policy": "x" * 70_000})
    assert (status, body["code"]) == (413, "too_large")

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"policy": "'
        for _ in range(100):
            yield b"x" * 1_000
        yield b'"}'

    response = world.client.request(
        "PUT", "/v1/merges/n", content=chunks(), headers={"Authorization": f"Bearer {ADMIN}"}
    )
    assert response.status_code == 413


def test_whoever_asks_too_often_waits_and_others_do_not() -> None:
    world = World(limits=Limits(burst=3, per_second=0.5))
    answers = [world.call("GET", "/v1/merges", token=READ)[0] for _ in range(5)]
    assert answers == [200, 200, 200, 429, 429]
    response = world.client.request("GET", "/v1/merges", headers={"Authorization": f"Bearer {READ}"})
    assert (response.json()["code"], int(response.headers["retry-after"])) == ("rate_limited", 2)
    assert [world.call("GET", "/v1/merges", token="wrong")[0] for _ in range(4)] == [401, 401, 401, 429]
    assert world.call("GET", "/v1/merges")[0] == 200
    assert world.call("GET", "/healthz", token=None)[0] == 200


def test_a_bucket_fills_up_again() -> None:
    bucket = Bucket(Limits(burst=2, per_second=4), now=0.0)
    assert [bucket.wait(0.0), bucket.wait(0.0), bucket.wait(0.0)] == [0.0, 0.0, 0.25]
    assert bucket.wait(0.25) == 0.0
    assert [bucket.wait(100.0), bucket.wait(100.0), bucket.wait(100.0)] == [0.0, 0.0, 0.25]


def test_answers_carry_headers_that_browsers_heed(world: World) -> None:
    for path in ("/v1/merges", "/healthz"):
        headers = world.client.request("GET", path).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "default-src 'none'" in headers["content-security-policy"]


# -- tokens


def test_tokens_are_rotated_without_a_restart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    file.write_text("# people\nalice admin first-secret\n\ndash read dash-secret\n")
    world = World(Tokens(file=file))

    def status(token: str) -> int:
        return world.call("GET", "/v1/merges", token=token)[0]

    assert [status("first-secret"), status("second-secret"), status("dash-secret")] == [200, 401, 200]
    assert world.call("PUT", "/v1/merges/m", {}, token="first-secret", X_Reason="to see")[0] == 201
    assert world.control.changes == [("alice", "to see", "define merge m")]
    file.write_text("alice admin second-secret\ndash read dash-secret\n")
    assert [status("first-secret"), status("second-secret"), status("dash-secret")] == [401, 200, 200]
    file.write_text("alice boss third-secret\n")  # a mistake locks nobody out
    assert [status("second-secret"), status("third-secret")] == [200, 401]
    file.unlink()
    assert status("second-secret") == 200
    file.write_text("alice admin fourth-secret\n")
    assert [status("second-secret"), status("fourth-secret")] == [401, 200]
    logged = capfd.readouterr().err
    assert ("tokens replaced" in logged, "line 1: give a name" in logged, "secret" in logged) == (True, True, False)


@pytest.mark.parametrize(
    "line", ["alice admin", "alice root secret", "a b c d", "ali/ce admin secret", "a admin sécret"]
)
def test_a_line_that_is_no_token_is_named_by_its_number_only(line: str) -> None:
    with pytest.raises(UsageError, match="tokens, line 2: give a name") as refusal:
        parse(f"alice admin good\n{line}\n", "tokens")
    assert "ecret" not in str(refusal.value)


def test_tokens_come_from_the_environment_and_show_nowhere() -> None:
    tokens = Tokens(from_environment({"LMERGE_ADMIN_TOKEN": "a-secret", "LMERGE_READ_TOKEN": "r-secret"}))
    assert tokens.find("a-secret") == Caller("admin", "admin")
    assert tokens.find("r-secret") == Caller("read", "read")
    assert [tokens.find(token) for token in ("", "A-SECRET", "a-secret ")] == [None, None, None]
    assert "secret" not in repr(vars(tokens))
    with pytest.raises(UsageError, match="nobody could call"):
        Tokens(from_environment({"LMERGE_ADMIN_TOKEN": ""}))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Tokens(file=Path("no-such-file"))


def test_a_development_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "run" / "token"
    token = development_token(file)
    assert token is not None
    assert development_token(file) is None
    assert Tokens(file=file).find(token) == Caller("development", "admin")
    assert file.stat().st_mode & 0o077 == 0


def test_no_secret_is_in_an_answer_or_a_log(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    seen = []
    for method, path in (*CALLS, *(("GET", path) for path in READS), ("GET", "/metrics"), ("GET", "/openapi.json")):
        for token in (ADMIN, READ, "wrong-secret"):
            response = world.client.request(
                method, path, content='{"topic": 5}', headers={"Authorization": f"Bearer {token}"}
            )
            seen.append(response.text + json.dumps(dict(response.headers)))
    text = os.linesep.join([*seen, *capfd.readouterr()])
    assert not [secret for secret in (ADMIN, READ, "wrong-secret") if secret in text]
