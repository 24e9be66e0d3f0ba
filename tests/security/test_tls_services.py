"""All services with mutual TLS, and with certificates alone to tell who calls.

Their certificates are those of `lingua certs`; there is no token anywhere.
"""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingua_scheduler.cli.certificates import Authority, Wanted
from lingua_scheduler.sdk import Session, Tls
from lingua_scheduler.sdk.errors import SessionRefusedError
from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
)
from tests.security.certificates import EXPIRED, HOUR, Pair
from tests.support.listening_node import connected_node
from tests.support.scheduler import SETTINGS
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, ServiceProcess
from tests.support.speaker import sentences, speaking

NAME = "lingua.internal"
NOT_AFTER = "lingua_tls_certificate_not_after_timestamp_seconds"
LINGUA = [sys.executable, "-m", "lingua_scheduler.cli"]
CALLERS = {
    "app": "lingua:client/acme",
    "node": "lingua:node/n0",
    "person": "lingua:operator/ann",
    "nobody": "https://example.org/somebody",
}


def lingua(*args: str, **settings: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command as a person does."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
    given = {f"LINGUA_{name.upper()}": str(value) for name, value in settings.items()}
    return subprocess.run(
        [*LINGUA, *args], env={**kept, **given}, capture_output=True, text=True, timeout=60
    )


@dataclass
class Secured:
    """One process of each service, and the folder of their certificates."""

    folder: Path
    pool: ServiceProcess
    dispatcher: ServiceProcess
    gateway: ServiceProcess

    def pair(self, name: str) -> Pair:
        return Pair(self.folder, name)

    def tls(self, name: str) -> Tls:
        """For the SDK."""
        pair = self.pair(name)
        return Tls(ca=pair.ca, cert=pair.cert, key=pair.key, server_name=NAME)

    def settings(self, name: str) -> dict[str, Path | str]:
        """For commands."""
        pair = self.pair(name)
        return {
            "tls_ca_file": pair.ca,
            "tls_client_cert_file": pair.cert,
            "tls_client_key_file": pair.key,
            "tls_server_name": NAME,
        }

    def channel(self, to: ServiceProcess, name: str) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(
            to.address,
            self.pair(name).credentials(),
            options=[("grpc.ssl_target_name_override", NAME)],
        )

    def processes(self) -> tuple[ServiceProcess, ...]:
        return self.pool, self.dispatcher, self.gateway


@pytest.fixture(scope="module")
def secured(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured") / "certs"
    made = lingua("certs", "init", str(folder))
    assert made.returncode == 0, made.stderr
    authority = Authority.found(folder)
    for name, uri in CALLERS.items():
        authority.issue(Wanted(name=name, uri=uri, life=HOUR))
    settings: dict[str, Any] = {
        **SETTINGS,
        "redis_url": redis_url,
        "auth": "on",
        "tls_client_ca_file": str(folder / "ca.crt"),
        "tls_ca_file": str(folder / "ca.crt"),
        "tls_server_name": NAME,
    }

    def files(name: str) -> dict[str, str]:
        pair = Pair(folder, name)
        return {"tls_cert_file": str(pair.cert), "tls_key_file": str(pair.key)}

    with contextlib.ExitStack() as stack:
        pool = PoolProcess(
            prefix=f"test:{uuid.uuid4().hex[:8]}",
            **settings,
            **files("pool"),
            pool_health_listen="127.0.0.1:0",
        )
        stack.enter_context(pool)
        dispatcher = DispatcherProcess(pool=pool, **settings, **files("dispatcher"))
        stack.enter_context(dispatcher)
        # Two addresses, as of several instances: a list has no name of its own to check.
        gateway = GatewayProcess(
            pool=pool,
            dispatchers=f"{dispatcher.address},{dispatcher.address}",
            **settings,
            **files("gateway"),
            metrics_tls="on",
        )
        stack.enter_context(gateway)
        yield Secured(folder, pool, dispatcher, gateway)
        for process in (pool, dispatcher, gateway):
            assert not process.faults(), process.log()


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_speech_goes_from_a_client_to_a_node_and_back_by_certificates_alone(
    secured: Secured,
) -> None:
    async with (
        connected_node(secured.dispatcher.address, "n0", tls=secured.tls("node")),
        speaking(secured.gateway.address, tls=secured.tls("app")) as speaker,
    ):
        await speaker.say_sentence(2, 4, 6)
    speaker.check_all_heard()
    assert len(speaker.results) == 1


async def test_a_certificate_says_what_its_holder_may_do(secured: Secured) -> None:
    ask = pool_pb2.ListNodesRequest()
    for who, code in (
        ("app", grpc.StatusCode.PERMISSION_DENIED),
        ("node", grpc.StatusCode.PERMISSION_DENIED),
        ("nobody", grpc.StatusCode.UNAUTHENTICATED),
    ):
        async with secured.channel(secured.pool, who) as channel:
            assert await code_of(pool_pb2_grpc.PoolServiceStub(channel).ListNodes(ask)) is code
    async with secured.channel(secured.pool, "person") as channel:
        await pool_pb2_grpc.PoolServiceStub(channel).ListNodes(ask)
    with pytest.raises(SessionRefusedError):
        async with Session(secured.gateway.address, src="en", tgt="es", tls=secured.tls("node")):
            pass


async def test_a_node_may_connect_with_the_id_of_its_certificate_only(secured: Secured) -> None:
    hello = dispatcher_pb2.Hello(
        node_id="n1",
        incarnation="i",
        max_concurrent_jobs=1,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=["en"], semantic_langs=["en"], tts_langs=["es"]
        ),
    )
    message = dispatcher_pb2.NodeMessage(events=[dispatcher_pb2.NodeEvent(hello=hello)])
    for who in ("node", "app"):
        async with secured.channel(secured.dispatcher, who) as channel:
            call = dispatcher_pb2_grpc.DispatcherStub(channel).Connect(iter([message]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                _ = [answer async for answer in call]
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED, who


async def test_who_has_no_certificate_or_an_expired_one_gets_no_answer(secured: Secured) -> None:
    authority = Authority.found(secured.folder)
    authority.issue(Wanted(name="late", uri=CALLERS["person"], life=EXPIRED))
    bare = grpc.ssl_channel_credentials(secured.pair("pool").ca.read_bytes())
    for credentials in (bare, secured.pair("late").credentials()):
        async with grpc.aio.secure_channel(secured.pool.address, credentials) as channel:
            call = pool_pb2_grpc.PoolServiceStub(channel).ListNodes(pool_pb2.ListNodesRequest())
            assert await code_of(call) is grpc.StatusCode.UNAVAILABLE


def scrape(secured: Secured) -> str:
    pair = secured.pair("person")
    context = ssl.create_default_context(cafile=pair.ca)
    context.load_cert_chain(pair.cert, pair.key)
    url = f"https://{secured.gateway.metrics_address}/metrics"
    with urllib.request.urlopen(url, timeout=10, context=context) as response:
        return str(response.read().decode())


async def test_metrics_are_served_with_mutual_tls_where_it_is_asked_for(secured: Secured) -> None:
    text = await asyncio.to_thread(scrape, secured)
    assert f'{NOT_AFTER}{{kind="server"}}' in text
    assert f'{NOT_AFTER}{{kind="client"}}' in text
    # The others show theirs in plain text.
    assert await secured.pool.metric(NOT_AFTER, kind="server") > 0


def test_commands_speak_tls_and_say_what_is_missing_where_they_do_not(secured: Secured) -> None:
    pool = secured.pool.address
    good = lingua("--pool", pool, "nodes", "list", **secured.settings("person"))
    assert good.returncode == 0, good.stderr
    plain = lingua("--pool", pool, "nodes", "list")
    assert plain.returncode == 3
    assert "if it uses TLS, set LINGUA_TLS_CA_FILE" in plain.stderr
    wrong = lingua(
        "--pool", pool, "nodes", "list", **{**secured.settings("person"), "tls_server_name": "x.y"}
    )
    assert wrong.returncode == 3
    assert "its certificate is for another name" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1


def test_health_is_asked_with_tls_or_by_the_listener_for_probes(secured: Secured) -> None:
    asked = lingua("health", secured.dispatcher.address, **secured.settings("person"))
    assert (asked.returncode, asked.stdout.split()[-1]) == (0, "SERVING"), asked.stderr
    asked = lingua("health", secured.dispatcher.address)
    assert asked.returncode == 3
    assert "LINGUA_TLS_CA_FILE" in asked.stdout
    (line,) = [each for each in secured.pool.log().splitlines() if "listening for probes" in each]
    probes = line.partition('"address": "')[2].partition('"')[0]
    asked = lingua("health", "--service", "pool", pool_health_listen=probes)
    assert (asked.returncode, asked.stdout.split()) == (0, ["pool", probes, "SERVING"])
    asked = lingua("health", "--name", "no.such", probes)
    assert (asked.returncode, "NOT_FOUND" in asked.stdout) == (4, True)


async def shown_by(secured: Secured, process: ServiceProcess) -> bytes:
    """The certificate that a new connection sees, DER."""
    pair = secured.pair("person")
    context = ssl.create_default_context(cafile=pair.ca)
    context.load_cert_chain(pair.cert, pair.key)
    context.set_alpn_protocols(["h2"])
    host, _, port = process.address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=NAME)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()
    return shown


async def streams_ended(secured: Secured) -> list[float]:
    """How often a stream from one service to another has come to its end."""
    name, package = "lingua_grpc_server_handled_total", "lingua_scheduler.v1"
    return [
        await secured.pool.metric(name, method=f"{package}.PoolService/Operate"),
        await secured.dispatcher.metric(name, method=f"{package}.Dispatcher/Submit"),
    ]


async def renewed(secured: Secured, before: list[float]) -> None:
    """Returns when each of these streams has been replaced since."""
    async with asyncio.timeout(30):
        now = before
        while any(each <= was for each, was in zip(now, before, strict=True)):
            now = await streams_ended(secured)


async def test_all_certificates_and_their_authority_are_replaced_while_people_talk(
    secured: Secured, tmp_path: Path
) -> None:
    new = Authority.made(tmp_path)
    services = {each: f"lingua:service/{each}" for each in ("pool", "dispatcher", "gateway")}
    for name, uri in {**services, **CALLERS}.items():
        new.issue(Wanted(name=name, uri=uri, life=2 * HOUR, hosts=[NAME, "127.0.0.1"]))
    ca, old_ca = secured.folder / "ca.crt", (secured.folder / "ca.crt").read_bytes()
    new_ca = (tmp_path / "ca.crt").read_bytes()
    old_person = secured.pair("person").cert.read_bytes(), secured.pair("person").key.read_bytes()

    def trust_both() -> None:
        replace(ca, old_ca + new_ca)

    def issue_all() -> None:
        for name in (*services, *CALLERS):
            secured.pair(name).take(Pair(tmp_path, name))

    def trust_the_new_one() -> None:
        replace(ca, new_ca)

    async def talk() -> None:
        for words in sentences(2, [3] * 1000):
            await speaker.say_sentence(*words)
            await speaker.outcome(len(speaker.outcomes))
            if over.is_set():
                return

    over = asyncio.Event()
    async with (
        connected_node(secured.dispatcher.address, "n0", tls=secured.tls("node")),
        speaking(secured.gateway.address, tls=secured.tls("app")) as speaker,
    ):
        talking = asyncio.create_task(talk())
        for step in (trust_both, issue_all, trust_the_new_one):
            before = await streams_ended(secured)
            step()
            await renewed(secured, before)
        over.set()
        await talking
    speaker.check_all_heard()
    assert len(speaker.results) > 3
    for name, process in zip(services, secured.processes(), strict=True):
        pem = Pair(tmp_path, name).cert.read_text()
        assert await shown_by(secured, process) == ssl.PEM_cert_to_DER_cert(pem)
    chain, key = old_person
    credentials = grpc.ssl_channel_credentials(new_ca, key, chain)
    async with grpc.aio.secure_channel(secured.pool.address, credentials) as channel:
        call = pool_pb2_grpc.PoolServiceStub(channel).ListNodes(pool_pb2.ListNodesRequest())
        assert await code_of(call) is grpc.StatusCode.UNAVAILABLE


def replace(path: Path, content: bytes) -> None:
    """The whole file at once."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)
