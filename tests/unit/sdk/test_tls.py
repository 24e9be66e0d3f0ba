"""TLS of sessions with real certificates: what is accepted and refused, and new files."""

import datetime
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lingua_scheduler.cli.clients.sdk_access import tls_of
from lingua_scheduler.sdk import Channels, SessionUnavailableError, Tls
from lingua_scheduler.sdk._transport.tls import tls_hint
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.unit.sdk.session_peer import Peer, english, entered, leave, peers

LOCALHOST = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self.pem = self._sign(self._key, DAY, self._name, basic)

    def issue(
        self, name: x509.GeneralName = LOCALHOST, *, life: datetime.timedelta = DAY
    ) -> tuple[bytes, bytes]:
        """Returns a key and its certificate, as gRPC expects the pair."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")])
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        alternative = x509.SubjectAlternativeName([name])
        return key.private_bytes(*form), self._sign(key, life, subject, alternative)

    def _sign(
        self,
        key: ec.EllipticCurvePrivateKey,
        life: datetime.timedelta,
        subject: x509.Name,
        extension: x509.ExtensionType,
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder(self._name, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + life)
            .add_extension(extension, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM)


OURS, FOREIGN = Authority("ours"), Authority("foreign")


def mutual() -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([OURS.issue()], OURS.pem, require_client_auth=True)


def plain_tls(pair: tuple[bytes, bytes]) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([pair])


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Runs a gateway that requires client certificates."""
    async with peers("a", credentials=mutual()) as (made,):
        yield made


def written(folder: Path, authority: Authority = OURS) -> Tls:
    """Writes a client certificate of this authority, and returns its paths."""
    key, cert = authority.issue()
    (folder / "ca.pem").write_bytes(OURS.pem)
    (folder / "key.pem").write_bytes(key)
    (folder / "cert.pem").write_bytes(cert)
    return Tls(ca=folder / "ca.pem", cert=str(folder / "cert.pem"), key=folder / "key.pem")


async def why_not(peer: Peer, tls: Tls | None) -> str:
    """Returns the message with which a session fails."""
    session = english(peer, tls=tls, reconnect_seconds=0.3)
    with pytest.raises(SessionUnavailableError) as caught:
        await session.__aenter__()
    return str(caught.value)


async def test_a_session_shows_its_certificate_and_checks_the_servers(
    peer: Peer, tmp_path: Path
) -> None:
    key, cert = OURS.issue()
    for tls in (written(tmp_path), Tls(ca=OURS.pem, cert=cert, key=key)):
        session = english(peer, tls=tls)
        await entered(session, peer)
        assert session.connected
        await leave(session)


async def test_what_is_wrong_with_the_servers_certificate_is_said() -> None:
    tls = Tls(ca=OURS.pem)
    async with peers("a", credentials=plain_tls(OURS.issue())) as (peer,):
        for ca in (FOREIGN.pem, None):
            said = await why_not(peer, Tls(ca=ca))
            assert "CERTIFICATE_VERIFY_FAILED" in said
            assert "Tls(ca=...) must be the authority" in said
        assert "not PEM" in await why_not(peer, Tls(ca=b"garbage"))
        assert "the server may require TLS" in await why_not(peer, None)
    async with peers("a", credentials=plain_tls(OURS.issue(life=-DAY))) as (peer,):
        assert "the server's certificate has expired" in await why_not(peer, tls)
    async with peers("a", credentials=plain_tls(OURS.issue(x509.DNSName("gw.test")))) as (peer,):
        assert "pass that name as Tls(server_name=...)" in await why_not(peer, tls)
        session = english(peer, tls=Tls(ca=OURS.pem, server_name="gw.test"))
        await entered(session, peer)
        await leave(session)
    async with peers("a") as (peer,):
        assert "does not speak TLS" in await why_not(peer, tls)


async def test_what_may_be_wrong_with_the_apps_certificate_is_said(
    peer: Peer, tmp_path: Path
) -> None:
    assert "may require a certificate" in await why_not(peer, Tls(ca=OURS.pem))
    assert "may have rejected the certificate" in await why_not(peer, written(tmp_path, FOREIGN))


async def test_new_files_are_taken_up_by_the_next_connection_and_shared_until_then(
    peer: Peer, tmp_path: Path
) -> None:
    channels = Channels(tls=written(tmp_path))
    first = await channels.take(peer.address)
    assert await channels.take(peer.address) is first
    written(tmp_path)
    second = await channels.take(peer.address)
    assert second.channel is not first.channel
    assert await channels.take(peer.address) is second
    await channels.release(first)
    assert (first.stale, first.streams, first.channel.get_state().name) == (True, 1, "IDLE")
    await channels.release(first)
    assert first.channel.get_state().name == "SHUTDOWN"
    # A stale channel is closed as soon as nobody uses it.
    await channels.release(second)
    await channels.release(second)
    assert second.channel.get_state().name == "IDLE"
    written(tmp_path)
    await channels.take(peer.address)
    assert second.channel.get_state().name == "SHUTDOWN"
    await channels.close()


async def test_a_session_goes_on_with_files_that_were_changed_meanwhile(tmp_path: Path) -> None:
    pair = OURS.issue()
    trusted = [OURS]

    def now() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([pair], trusted[0].pem)

    credentials = grpc.dynamic_ssl_server_credentials(
        now(), now, require_client_authentication=True
    )
    async with peers("a", credentials=credentials) as (peer,):
        session = english(peer, tls=written(tmp_path))
        stream = await entered(session, peer)
        # From now on the server accepts other certificates, and the app has one.
        trusted[0] = FOREIGN
        written(tmp_path, FOREIGN)
        stream.end(grpc.StatusCode.UNAVAILABLE)
        await (await peer.stream()).opens()
        await session.drained()
        await leave(session)
        # Without the new certificate, it would have been refused.
        assert "may have rejected the certificate" in await why_not(peer, written(tmp_path))


async def test_files_that_are_gone_for_a_while_are_waited_for(peer: Peer, tmp_path: Path) -> None:
    session = english(peer, tls=written(tmp_path))
    stream = await entered(session, peer)
    key = tmp_path / "key.pem"
    kept = key.read_bytes()
    key.unlink()
    stream.end(grpc.StatusCode.UNAVAILABLE)
    await stream.gone.wait()
    events = session.events()
    await anext(events)
    key.write_bytes(kept)
    await (await peer.stream()).opens()
    await leave(session)

    session = english(peer, tls=written(tmp_path), reconnect_seconds=0.2)
    key.unlink()
    with pytest.raises(
        SessionUnavailableError, match=r"TLS files: key: cannot read '.*key\.pem': No"
    ):
        await session.__aenter__()


def test_a_wrong_path_or_half_a_pair_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^ca: cannot read 'nowhere': No such file"):
        Tls(ca="nowhere")
    with pytest.raises(ValueError, match=r"^cert: needs its key"):
        Tls(cert=b"pem")


def test_a_private_key_is_in_no_repr() -> None:
    key, cert = OURS.issue()
    assert "PRIVATE" not in repr(Tls(cert=cert, key=key))


def test_a_connection_that_breaks_for_other_reasons_gets_no_hint() -> None:
    refused = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"
    assert tls_hint(refused, None) == tls_hint("Socket closed", Tls()) == ""


def test_commands_take_their_tls_from_the_settings(tmp_path: Path) -> None:
    written(tmp_path)
    ca, cert, key = (str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key"))
    calls = {"LINGUA_TLS_CA_FILE": ca, "LINGUA_TLS_SERVER_NAME": "gw.test"}
    own = {"LINGUA_TLS_CLIENT_CERT_FILE": cert, "LINGUA_TLS_CLIENT_KEY_FILE": key}
    server = {"LINGUA_TLS_CERT_FILE": cert, "LINGUA_TLS_KEY_FILE": key}
    assert tls_of(load_settings(server)) is None
    assert tls_of(load_settings(calls)) == Tls(ca=Path(ca), server_name="gw.test")
    with_cert = Tls(ca=Path(ca), cert=Path(cert), key=Path(key), server_name="gw.test")
    assert tls_of(load_settings({**calls, **own})) == with_cert
    assert tls_of(load_settings({**calls, **server})) == with_cert
