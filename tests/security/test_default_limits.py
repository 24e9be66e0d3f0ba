"""With auth on a tenant has limits even if no setting names any; reaching them stops no other."""

import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
import redis

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc, session_pb2
from tests.security.conftest import Services
from tests.security.issuer import Issuer, Metadata
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.raw_node import RawNode

SESSIONS = JOBS = 200
AUDIO_MS = 12_000_000
# Longer than the test: what is in use stays so.
HOLD_MS = 600_000


class Tenant:
    """A tenant whose use of the services is written to Redis as the scripts write it."""

    def __init__(self, name: str, services: Services, store: redis.Redis) -> None:
        self.name = name
        self._prefix = f"{services.pool.prefix}:tenant:{name}"
        self._store = store

    def uses(self, what: str, count: int) -> None:
        """Has so many sessions or jobs."""
        ends = time.time() * 1000 + HOLD_MS
        names = {f"{what}-{number}": ends for number in range(count)}
        self._store.zadd(f"{self._prefix}:{what}", names)
        self._store.pexpire(f"{self._prefix}:{what}", HOLD_MS)

    def has_spoken(self, minutes: int) -> None:
        """Has used as much speech as it may in so many minutes."""
        paid_ms = int(time.time() * 1000 + minutes * 60_000)
        self._store.set(f"{self._prefix}:audio", paid_ms, px=HOLD_MS)


@pytest.fixture
def tenant(services: Services, redis_url: str) -> Iterator[Tenant]:
    with redis.Redis.from_url(redis_url) as store:
        yield Tenant(f"t{uuid.uuid4().hex[:8]}", services, store)


@contextlib.asynccontextmanager
async def dispatching(services: Services, issuer: Issuer, src: str) -> AsyncIterator[Any]:
    """A dispatcher that has a node for a language, which answers at once."""
    hello = dispatcher_pb2.Hello(
        node_id=f"n-{src}",
        incarnation="1",
        max_concurrent_jobs=2,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=[src], semantic_langs=[src], tts_langs=["es"]
        ),
    )
    metadata = issuer.metadata("node", node_id=hello.node_id)
    node = RawNode(services.dispatcher.address, hello, metadata=metadata)
    try:
        await node.open()
        async with working(node), grpc.aio.insecure_channel(services.dispatcher.address) as channel:
            yield dispatcher_pb2_grpc.DispatcherStub(channel)
    finally:
        await node.cut()


def _job(src: str) -> dispatcher_pb2.DispatchRequest:
    spec = dispatcher_pb2.JobSpec(
        session_id=f"s-{uuid.uuid4().hex[:8]}",
        pair=common_pb2.LanguagePair(src=src, tgt="es"),
        audio=speech(3),
        audio_format=FORMAT,
        reason=common_pb2.FINALIZE_REASON_IS_FINAL,
    )
    return dispatcher_pb2.DispatchRequest(job=spec)


async def _refusal(stub: Any, src: str, metadata: Metadata) -> dict[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Dispatch(_job(src), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    said = from_rpc_error(caught.value)
    assert said is not None
    assert said.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED
    return dict(said.metadata)


async def test_a_tenant_cannot_open_any_number_of_sessions(
    services: Services, issuer: Issuer, tenant: Tenant
) -> None:
    tenant.uses("sessions", SESSIONS)
    start = session_pb2.Open(new=new_session("qtx", tenant=""))
    ours = issuer.metadata("client", tenant=tenant.name)
    async with raw_client(services.gateway.address, ours) as client:
        await client.say(open=start)
        said = await client.refused("QUOTA_EXCEEDED")
    assert (said.metadata["limit"], said.metadata["allowed"]) == ("sessions", str(SESSIONS))
    others = issuer.metadata("client", tenant=f"{tenant.name}-other")
    unlimited = issuer.metadata("client", tenant=tenant.name, limits={"sessions": 0})
    for metadata in (others, unlimited):
        async with raw_client(services.gateway.address, metadata) as client:
            await client.open(new_session("qtx", tenant=""))


async def test_a_tenant_cannot_have_any_number_of_jobs_in_flight(
    services: Services, issuer: Issuer, tenant: Tenant
) -> None:
    tenant.uses("jobs", JOBS)
    async with dispatching(services, issuer, "qsx") as stub:
        ours = issuer.metadata("client", tenant=tenant.name)
        said = await _refusal(stub, "qsx", ours)
        assert (said["limit"], said["allowed"]) == ("jobs", str(JOBS))
        await stub.Dispatch(_job("qsx"), metadata=issuer.metadata("client", tenant="other"))


async def test_a_tenant_cannot_send_any_amount_of_speech(
    services: Services, issuer: Issuer, tenant: Tenant
) -> None:
    tenant.has_spoken(minutes=5)
    async with dispatching(services, issuer, "qrx") as stub:
        ours = issuer.metadata("client", tenant=tenant.name)
        said = await _refusal(stub, "qrx", ours)
        assert (said["limit"], said["allowed"]) == ("audio", str(AUDIO_MS))
        await stub.Dispatch(_job("qrx"), metadata=issuer.metadata("client", tenant="other"))
