"""What Redis reads for a list of sessions grows with the list, not with what else Redis has."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import pytest
import redis

from lingua_scheduler.services.session_gateway.store.session_store import SessionStore
from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.support.cells import cell_settings, open_cells

# About 8 KB each, as a client may make them: 16 MB in all.
MANY = 2000
FEATURES = {f"feature-{number}": "x" * 250 for number in range(32)}
# What Redis may send for one session of a page, and for what else the services do meanwhile
# (heartbeats, renewals). Far less than the records of MANY.
SESSION_BYTES, SESSION_COMMANDS = 1_000, 4
BESIDE_BYTES, BESIDE_COMMANDS = 200_000, 500


class Spent(NamedTuple):
    """What Redis has sent, and how many commands it has carried out."""

    bytes_sent: int
    commands: int


@pytest.fixture
async def crowd(services: Services, redis_url: str) -> AsyncIterator[set[str]]:
    """Many sessions of the tenant `crowded`, and three of `few`. Gives the ids of the many."""
    prefix = services.pool.prefix
    settings = cell_settings(redis_url, prefix, instance_id="gone")
    # The id of a session that has ended cannot be used again.
    run = uuid.uuid4().hex[:8]
    tenants = {f"{run}-{number}": "crowded" for number in range(MANY)}
    tenants |= {f"{run}-few-{number}": "few" for number in range(3)}
    async with open_cells(settings) as cells:
        store = SessionStore(cells=cells, settings=settings)
        async with asyncio.TaskGroup() as tasks:
            for name, tenant in tenants.items():
                tasks.create_task(store.open(session_id=name, token="t", opened=_opened(tenant)))
        yield {name for name, tenant in tenants.items() if tenant == "crowded"}
        async with asyncio.TaskGroup() as tasks:
            for name in tenants:
                tasks.create_task(store.end(session_id=name, epoch=1))


def _opened(tenant: str) -> session_pb2.NewSession:
    return session_pb2.NewSession(
        tenant=tenant,
        direction=common_pb2.LanguagePair(src="en", tgt="es"),
        options=session_pb2.SessionOptions(features=FEATURES),
    )


class Lister:
    """Lists sessions as a tenant, and measures what that costs Redis."""

    def __init__(self, stub: Any, issuer: Issuer, store: redis.Redis) -> None:
        self._stub = stub
        self._issuer = issuer
        self._store = store

    async def page(
        self, tenant: str, page_size: int = 0, token: str = ""
    ) -> tuple[session_pb2.ListSessionsResponse, Spent]:
        metadata = self._issuer.metadata("client", tenant=tenant)
        answer, spent = await self._page(metadata, page_size, token)
        assert {each.tenant for each in answer.sessions} <= {tenant}
        return answer, spent

    async def page_of_all(
        self, page_size: int, token: str
    ) -> tuple[session_pb2.ListSessionsResponse, Spent]:
        """As an operator, who sees the sessions of all tenants."""
        return await self._page(self._issuer.metadata("operator"), page_size, token)

    async def _page(
        self, metadata: Any, page_size: int, token: str
    ) -> tuple[session_pb2.ListSessionsResponse, Spent]:
        request = session_pb2.ListSessionsRequest(page_size=page_size, page_token=token)
        before = self._spent()
        answer = await self._stub.ListSessions(request, metadata=metadata)
        after = self._spent()
        return answer, Spent(after[0] - before[0], after[1] - before[1])

    def _spent(self) -> Spent:
        facts: Any = self._store.info("stats")
        return Spent(facts["total_net_output_bytes"], facts["total_commands_processed"])


@pytest.fixture
async def lister(
    services: Services, issuer: Issuer, redis_url: str, crowd: set[str]
) -> AsyncIterator[Lister]:
    async with contextlib.AsyncExitStack() as stack:
        channel = grpc.aio.insecure_channel(services.gateway.address)
        await stack.enter_async_context(channel)
        store = stack.enter_context(redis.Redis.from_url(redis_url))
        yield Lister(session_pb2_grpc.SessionGatewayStub(channel), issuer, store)


def _assert_in_proportion(spent: Spent, sessions: int) -> None:
    assert spent.bytes_sent < BESIDE_BYTES + sessions * SESSION_BYTES, spent
    assert spent.commands < BESIDE_COMMANDS + sessions * SESSION_COMMANDS, spent


@pytest.mark.parametrize(("tenant", "has"), [("nobody", 0), ("few", 3)])
async def test_a_tenant_with_few_sessions_does_not_have_those_of_others_read(
    lister: Lister, tenant: str, has: int
) -> None:
    answer, spent = await lister.page(tenant, page_size=1000)
    assert (len(answer.sessions), answer.next_page_token) == (has, "")
    _assert_in_proportion(spent, has)


async def test_what_is_read_for_a_page_is_in_proportion_to_the_page(
    lister: Lister, crowd: set[str]
) -> None:
    found, token, pages = set(), "", 0
    while True:
        answer, spent = await lister.page("crowded", 50, token)
        assert len(answer.sessions) <= 200
        _assert_in_proportion(spent, 200)
        found |= {each.session_id for each in answer.sessions}
        token, pages = answer.next_page_token, pages + 1
        if not token:
            break
    assert found == crowd
    assert pages >= MANY / 200


async def test_an_operators_page_of_all_sessions_is_not_found_among_other_keys(
    lister: Lister, crowd: set[str], services: Services, redis_url: str
) -> None:
    other = [f"{services.pool.prefix}:job:other-{number}" for number in range(20_000)]
    with redis.Redis.from_url(redis_url) as store:
        for at in range(0, len(other), 1000):
            store.mset(dict.fromkeys(other[at : at + 1000], "x"))
        try:
            found, token = set(), ""
            while True:
                answer, spent = await lister.page_of_all(50, token)
                _assert_in_proportion(spent, 200)
                found |= {each.session_id for each in answer.sessions}
                token = answer.next_page_token
                assert answer.sessions or not token, "a page is not empty because others have keys"
                if not token:
                    break
        finally:
            for at in range(0, len(other), 1000):
                store.unlink(*other[at : at + 1000])
    assert crowd < found
