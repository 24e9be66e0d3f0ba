"""`lingua certs` and `lingua health`: what they make, and what they refuse."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.certificates import Authority, Wanted, names_of, read_certificate
from lingua_scheduler.cli.commands.health import services_of
from lingua_scheduler.services.runtime.rpc.tls import client_tls, server_tls
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.security.certificates import EXPIRED


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LINGUA_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what `init` has made."""
    made = tmp_path_factory.mktemp("made") / "certs"
    result = run("certs", "init", str(made), "--host", "pool.example", "--host", "10.1.2.3")
    assert result.exit_code == 0, result.output
    return made


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args, prog_name="lingua")


def usages(certificate: x509.Certificate) -> set[object]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def settings_in(output: str) -> dict[str, str]:
    lines = [line.strip() for line in output.splitlines() if line.startswith("  LINGUA_")]
    return dict(line.split("=", 1) for line in lines)


def test_init_makes_an_authority_and_a_certificate_for_each_service(folder: Path) -> None:
    authority = read_certificate(folder / "ca.crt")
    assert (authority.not_valid_after_utc - authority.not_valid_before_utc).days == 3650
    for service in ("pool", "dispatcher", "gateway"):
        certificate = read_certificate(folder / f"{service}.crt")
        certificate.verify_directly_issued_by(authority)
        hosts, uris = names_of(certificate)
        assert {"pool.example", "10.1.2.3", "localhost", "127.0.0.1", "::1"} < set(hosts)
        assert "lingua.internal" in hosts
        assert uris == [f"lingua:service/{service}"]
        assert usages(certificate) == {
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        }
        assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 825


def test_only_the_owner_can_read_keys(folder: Path) -> None:
    keys = list(folder.glob("*.key"))
    assert len(keys) >= 4
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_what_init_prints_is_what_services_can_start_with(tmp_path: Path) -> None:
    result = run("certs", "init", str(tmp_path / "with space"))
    common, *services = result.stdout.split("\nFor the ")
    for each in services:
        lines = {**settings_in(common), **settings_in(each)}
        environ = {name: value.strip("'") for name, value in lines.items()}
        settings = load_settings(environ)
        server, client = server_tls(settings), client_tls(settings)
        assert server is not None
        assert client is not None
        assert client.files.current().chain == server.files.current().chain


def test_init_overwrites_nothing_and_then_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "gateway.key").write_text("precious")
    result = run("certs", "init", str(tmp_path))
    assert result.exit_code == 1
    assert "gateway.key already exists and is not overwritten" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.key"]


@pytest.mark.parametrize(
    ("option", "name", "uri"),
    [
        ("client", "acme", "lingua:client/acme"),
        ("node", "acme.gpu-1", "lingua:node/acme.gpu-1"),
        ("owner", "acme", "lingua:owner/acme"),
        ("operator", "ann", "lingua:operator/ann"),
        ("service", "tool", "lingua:service/tool"),
    ],
)
def test_issue_makes_a_certificate_for_each_role(
    folder: Path, option: str, name: str, uri: str
) -> None:
    result = run("certs", "issue", str(folder), f"--{option}", name, "--for", "12h")
    assert result.exit_code == 0, result.output
    path = Path(settings_in(result.stdout)["LINGUA_TLS_CLIENT_CERT_FILE"])
    assert path == folder / f"{option}-{name}.crt"
    certificate = read_certificate(path)
    assert names_of(certificate) == ([], [uri])
    assert usages(certificate) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert 12 * 3600 <= life.total_seconds() < 13 * 3600
    again = run("certs", "issue", str(folder), f"--{option}", name)
    assert (again.exit_code, "is not overwritten" in again.stderr) == (1, True)


def test_issue_makes_one_more_server(folder: Path) -> None:
    result = run("certs", "issue", str(folder), "--server", "pool-2", "--host", "b.example")
    assert "LINGUA_TLS_CERT_FILE" in settings_in(result.stdout)
    hosts, uris = names_of(read_certificate(folder / "pool-2.crt"))
    assert {"b.example", "lingua.internal"} < set(hosts)
    assert uris == ["lingua:service/pool-2"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "give one of --client"),
        (["--client", "a", "--node", "b"], 2, "give one of --client"),
        (["--client", "a/b"], 2, "must be 1 to 128 characters"),
        (["--client", "a" * 129], 2, "must be 1 to 128 characters"),
        (["--owner", "a.b"], 2, "must not contain a dot"),
        (["--node", "n", "--host", "h"], 2, "--host is valid only with --server"),
        (["--server", "s", "--host", "a b"], 2, "must be a host name or an IP address"),
        (["--client", "a", "--for", "soon"], 2, "such as 90d"),
        (["--client", "a", "--for", "0d"], 2, "such as 90d"),
        (["--client", "a", "--for", "3660d"], 1, "expires before that"),
    ],
)
def test_issue_refuses_what_would_not_work(
    folder: Path, args: list[str], code: int, words: str
) -> None:
    before = set(folder.iterdir())
    result = run("certs", "issue", str(folder), *args)
    assert (result.exit_code, words in result.stderr) == (code, True), result.output
    assert set(folder.iterdir()) == before


def test_issue_without_an_authority_says_how_to_make_one(tmp_path: Path) -> None:
    result = run("certs", "issue", str(tmp_path), "--client", "acme")
    assert result.exit_code == 4
    assert f"'lingua certs init {tmp_path}' creates it" in result.stderr


def test_show_tells_whose_it_is_and_until_when(folder: Path) -> None:
    result = run("certs", "show", str(folder / "pool.crt"))
    assert result.exit_code == 0
    assert "service/pool" in result.stdout
    assert "824 days left" in result.stdout
    assert "pool.example" in result.stdout
    told = json.loads(run("certs", "show", str(folder / "pool.crt"), "--json").stdout)
    assert told["role"] == "service/pool"
    assert told["issued_by_authority"]
    assert json.loads(run("certs", "show", "--json", str(folder / "ca.crt")).stdout)["role"] == (
        "authority"
    )


def test_show_fails_for_one_that_is_foreign_or_expired(folder: Path, tmp_path: Path) -> None:
    other = Authority.made(tmp_path)
    other.issue(Wanted(name="late", uri="lingua:client/a", life=EXPIRED))
    result = run("certs", "show", str(tmp_path / "late.crt"))
    assert (result.exit_code, "expired at 20" in result.stderr) == (1, True)
    result = run("certs", "show", str(folder / "pool.crt"), "--ca", str(tmp_path / "ca.crt"))
    assert (result.exit_code, "was not issued by that authority" in result.stderr) == (1, True)
    result = run("certs", "show", str(folder / "pool.key"))
    assert (result.exit_code, "contains no certificate" in result.stderr) == (1, True)


def test_health_of_what_cannot_be_reached_is_exit_code_3_with_a_line_each() -> None:
    nobody = [f"--{service}=127.0.0.1:1" for service in ("pool", "dispatcher", "gateway")]
    result = run("health", *nobody)
    assert result.exit_code == 3
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["pool", "dispatcher", "gateway"]
    assert all(
        line[1:] == ["127.0.0.1:1", "UNAVAILABLE:", "connection", "refused"] for line in lines
    )
    told = json.loads(run("health", "--json", "127.0.0.1:1").stdout)["health"]
    assert [(each["address"], each["status"][:11]) for each in told] == [
        ("127.0.0.1:1", "UNAVAILABLE")
    ]


def test_health_is_asked_in_one_way_only() -> None:
    result = run("health", "--service", "pool", "127.0.0.1:1")
    assert (result.exit_code, "give one of" in result.stderr) == (2, True)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize(
    ("args", "services"),
    [
        (["serve", "pool"], ("pool",)),
        (["serve", "--json", "gateway"], ("gateway",)),
        (["serve", "all"], ("pool", "dispatcher", "gateway")),
        (["serve", "console"], ("console",)),
        (["up"], ()),
    ],
)
def test_what_a_process_serves_is_seen_by_its_arguments(
    args: list[str], services: tuple[str, ...]
) -> None:
    program = [sys.executable, "-c", "input(1)", *args]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.read(1) == b"1"
        assert services_of(other.pid) == services
        other.communicate(b"\n")
