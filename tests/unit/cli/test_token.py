"""`lingua token`: creating and inspecting tokens."""

import json
import os
import stat
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner, Result

from lingua_scheduler.cli.app import app
from lingua_scheduler.services.runtime.errors import PermissionDeniedError, UnauthenticatedError
from tests.unit.cli.test_clients import Answer
from tests.unit.cli.test_clients import run as run_client


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file made by `lingua token secret`."""
    path = tmp_path / "secret"
    assert token("secret", str(path)).exit_code == 0
    return path


def token(*args: str, secret: Path | None = None, typed: str = "", **environ: str) -> Result:
    if secret is not None:
        environ["LINGUA_AUTH_SECRET_FILE"] = str(secret)
    return CliRunner(env=environ).invoke(app, ["token", *args], input=typed)


def claims_of(result: Result, secret: Path) -> dict[str, object]:
    """The claims of the printed token."""
    assert result.exit_code == 0, result.output
    key = secret.read_text().strip()
    claims: dict[str, object] = jwt.decode(
        result.stdout.strip(), key, ["HS256"], audience="lingua-scheduler"
    )
    return claims


def test_a_secret_is_random_for_its_owner_alone_and_never_written_over(secret: Path) -> None:
    assert stat.S_IMODE(os.stat(secret).st_mode) == 0o600
    content = secret.read_text()
    assert len(content.strip()) == 64
    again = token("secret", str(secret))
    assert again.exit_code == 1
    assert "exists already" in again.stderr
    assert secret.read_text() == content


def test_a_token_of_every_role_says_what_it_was_asked_for(secret: Path) -> None:
    made = token(
        *("client", "--tenant", "acme", "--sessions", "3", "--audio-s-per-minute", "0"),
        *("--for", "2h", "--name", "app"),
        secret=secret,
    )
    claims = claims_of(made, secret)
    assert claims["exp"] == int(str(claims["iat"])) + 7200
    assert (claims["role"], claims["tenant"], claims["sub"]) == ("client", "acme", "app")
    assert claims["limits"] == {"sessions": 3, "audio_s_per_minute": 0}
    assert claims_of(token("node", "--node-id", "n1", secret=secret), secret)["node_id"] == "n1"
    assert claims_of(token("node", "--owner", "acme", secret=secret), secret)["owner"] == "acme"
    for role in ("service", "operator", "viewer"):
        made = token(role, "--secret-file", str(secret))
        assert claims_of(made, secret)["role"] == role


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["client", "--tenant", "a b"], "its tenant must be"),
        (["client", "--tenant", "a", "--jobs", "99999999"], "limits.jobs must be at most"),
        (["client"], "--tenant"),
        (["node"], "--node-id"),
        (["node", "--node-id", "n", "--owner", "o"], "--owner"),
        (["node", "--owner", "acme.eu"], "no dot"),
        (["service", "--for", "soon"], "such as 30d"),
        (["service", "--for", "9999d"], "ten years"),
    ],
)
def test_what_services_would_refuse_is_not_made(
    secret: Path, args: list[str], problem: str
) -> None:
    made = token(*args, secret=secret)
    assert made.exit_code == 2
    assert problem in made.stderr
    assert made.stdout == ""


def test_without_a_secret_it_is_said_how_to_get_one() -> None:
    made = token("service")
    assert made.exit_code == 2
    assert "LINGUA_AUTH_SECRET_FILE" in made.stderr
    assert "lingua token secret" in made.stderr


def test_show_says_what_a_token_says_and_whether_it_holds(secret: Path, tmp_path: Path) -> None:
    made = token("client", "--tenant", "acme", secret=secret).stdout
    shown = token("show", typed=made, secret=secret)
    assert shown.exit_code == 0
    assert "acme" in shown.stdout
    assert shown.stdout.endswith("valid\n")
    told = json.loads(token("show", made.strip(), "--json", secret=secret).stdout)
    assert (told["holds"], told["problem"], told["claims"]["tenant"]) == (True, "", "acme")

    other = tmp_path / "other"
    token("secret", str(other))
    foreign = token("show", "-", typed=made, secret=other)
    assert foreign.exit_code == 1
    assert "signature" in foreign.stdout
    unchecked = token("show", typed=made)
    assert unchecked.exit_code == 1
    assert "cannot be checked" in unchecked.stdout
    assert token("show", "nonsense").exit_code == 2


def test_who_is_refused_is_told_which_variable_to_set() -> None:
    for error in (UnauthenticatedError("no token"), PermissionDeniedError("of role client")):
        result, _ = run_client("nodes list", Answer("ListNodes", error=error))
        assert result.exit_code == 2
        for word in (error.message, "LINGUA_TOKEN_FILE", "LINGUA_AUTH_SECRET_FILE", "pool.test"):
            assert word in result.stderr
