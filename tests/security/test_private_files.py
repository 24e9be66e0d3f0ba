"""What the commands write is for its owner alone, whatever the umask is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.speak.speech_files import SpeechFolder
from lingua_scheduler.sdk import AudioFormat, Encoding, Result, ResultKind


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def lingua(*args: str | Path) -> str:
    ran = CliRunner().invoke(app, list(map(str, args)))
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    lingua("token", "secret", path)
    return path


@pytest.mark.parametrize(
    "role",
    [
        ["client", "--tenant", "t"],
        ["node", "--owner", "acme"],
        ["service"],
        ["operator"],
    ],
    ids=lambda role: role[0],
)
def test_secrets_and_tokens(tmp_path: Path, secret: Path, role: list[str]) -> None:
    assert mode(secret) == 0o600
    out = tmp_path / "token"
    out.write_text("an old one")
    out.chmod(0o644)
    assert lingua("token", *role, "--secret-file", secret, "--out", out) == ""
    assert mode(out) == 0o600
    assert jwt.get_unverified_header(out.read_text().strip())["alg"] == "HS256"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret", "token"]


def test_a_token_that_cannot_be_written_is_an_error(tmp_path: Path, secret: Path) -> None:
    out = tmp_path / "missing" / "token"
    args = ["token", "service", "--secret-file", str(secret), "--out", str(out)]
    ran = CliRunner().invoke(app, args)
    assert ran.exit_code == 2
    assert "cannot be written" in ran.stderr
    assert ran.stdout == ""


def test_certificates_and_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "certs"
    lingua("certs", "init", folder)
    lingua("certs", "issue", folder, "--node", "gpu-1")
    assert mode(folder) == 0o700
    modes = {each.name: mode(each) for each in folder.iterdir()}
    assert {name for name in modes if name.endswith(".key")} >= {"ca.key", "pool.key"}
    assert all(
        value == (0o600 if name.endswith(".key") else 0o644) for name, value in modes.items()
    )


def test_saved_speech(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    pcm = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=16_000, channels=1)
    result = Result(
        index=0,
        src="en",
        tgt="es",
        kind=ResultKind.TRANSLATED,
        speech=bytes(320),
        speech_format=pcm,
    )
    saved = SpeechFolder(folder).save(result)
    assert saved is not None
    assert (mode(folder), mode(saved)) == (0o700, 0o600)


def test_a_clients_token_holds_for_an_hour_unless_asked_otherwise(secret: Path) -> None:
    made = lingua("token", "client", "--tenant", "t", "--secret-file", secret).strip()
    claims = jwt.decode(made, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 3600
