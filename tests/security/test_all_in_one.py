"""All services in one process: each still asks who calls, also of the others in the process."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingua_scheduler.cli.certificates import Authority, Wanted
from lingua_scheduler.sdk import Tls
from lingua_scheduler.v1 import (
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from tests.security.certificates import HOUR, Pair
from tests.security.issuer import ISSUER, Issuer
from tests.support.all_in_one import AllInOneProcess
from tests.support.commands import lingua
from tests.support.listening_node import connected_node
from tests.support.scheduler import SETTINGS
from tests.support.speaker import speaking

NAME = "lingua.internal"


@contextlib.contextmanager
def running(redis_url: str, **settings: Any) -> Iterator[AllInOneProcess]:
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    given = {**SETTINGS, "auth": "on", **settings}
    with AllInOneProcess(redis_url=redis_url, prefix=prefix, **given) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture(scope="module")
def by_tokens(redis_url: str, issuer: Issuer) -> Iterator[AllInOneProcess]:
    """Everybody has a token."""
    with running(
        redis_url, auth_secret_file=str(issuer.secret_file), auth_issuer=ISSUER
    ) as process:
        yield process
        assert "eyJ" not in process.log(), "a token"


async def test_speech_goes_through_with_tokens(by_tokens: AllInOneProcess, issuer: Issuer) -> None:
    async with (
        connected_node(by_tokens.dispatcher.address, "n1", token=issuer.token("node")),
        speaking(by_tokens.gateway.address, token=issuer.token("client")) as speaker,
    ):
        await speaker.say_sentence(2, 4, 6)
    speaker.check_all_heard()
    assert len(speaker.results) == 1
    for part in by_tokens.parts:
        assert await part.metric("lingua_auth_refused_total") == 0


@pytest.mark.parametrize(
    ("role", "code"),
    [
        ("", grpc.StatusCode.UNAUTHENTICATED),
        ("node", grpc.StatusCode.PERMISSION_DENIED),
        ("operator", grpc.StatusCode.OK),
    ],
)
async def test_each_service_asks_strangers_at_its_own_port_who_they_are(
    by_tokens: AllInOneProcess, issuer: Issuer, role: str, code: grpc.StatusCode
) -> None:
    calls = [
        (by_tokens.pool, pool_pb2_grpc.PoolServiceStub, "ListNodes", pool_pb2.ListNodesRequest()),
        (
            by_tokens.dispatcher,
            dispatcher_pb2_grpc.DispatcherStub,
            "ListJobs",
            dispatcher_pb2.ListJobsRequest(),
        ),
        (
            by_tokens.gateway,
            session_pb2_grpc.SessionGatewayStub,
            "ListSessions",
            session_pb2.ListSessionsRequest(),
        ),
    ]
    for part, stub, method, request in calls:
        async with grpc.aio.insecure_channel(part.address) as channel:
            call = getattr(stub(channel), method)(
                request, metadata=issuer.metadata(role) if role else ()
            )
            assert await call.code() is code, part.service


async def test_speech_goes_through_by_certificates_alone(redis_url: str, tmp_path: Path) -> None:
    """A service takes the certificate of its process for that of the other service."""
    folder = tmp_path / "certs"
    authority = Authority.made(folder)
    made = lingua("certs", "issue", str(folder), "--server", "all")
    assert made.returncode == 0, made.stderr
    for name, uri in {"app": "lingua:client/acme", "node": "lingua:node/n1"}.items():
        authority.issue(Wanted(name=name, uri=uri, life=HOUR))

    def tls(name: str) -> Tls:
        pair = Pair(folder, name)
        return Tls(ca=pair.ca, cert=pair.cert, key=pair.key, server_name=NAME)

    own = Pair(folder, "all")
    files = {
        "tls_client_ca_file": own.ca,
        "tls_ca_file": own.ca,
        "tls_cert_file": own.cert,
        "tls_key_file": own.key,
    }
    settings = {name: str(path) for name, path in files.items()}
    with running(redis_url, tls_server_name=NAME, **settings) as process:
        async with (
            connected_node(process.dispatcher.address, "n1", tls=tls("node")),
            speaking(process.gateway.address, tls=tls("app")) as speaker,
        ):
            await speaker.say_sentence(2, 4, 6)
        speaker.check_all_heard()
        assert len(speaker.results) == 1
        for part in process.parts:
            samples = await part.samples("lingua_tls_certificate_not_after_timestamp_seconds")
            assert len(samples) == 2, part.service
