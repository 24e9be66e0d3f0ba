"""The web entry with auth on: who may open a WebSocket, for how long, and as whose tenant."""

import time
from typing import Any

import aiohttp
import pytest

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.security.test_expiry import gone
from tests.support.raw_client import new_session
from tests.support.raw_http import handshake, raw_connection
from tests.support.web_client import web_client


async def refused(services: Services, token: str = "", **options: Any) -> tuple[int, Any]:
    """The status and the JSON of a refused handshake."""
    protocols = ["lingua.v1"] + ([f"bearer.{token}"] if token else [])
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": ", ".join(protocols),
        **options,
    }
    url = f"http://{services.gateway.web_address}/v1/converse"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        return response.status, await response.json()


def token(issuer: Issuer, role: str = "client", **claims: Any) -> str:
    """A token as the SDK sends it, without its scheme."""
    ((_, value),) = issuer.metadata(role, **claims)
    return value.removeprefix("Bearer ")


async def test_a_token_comes_as_a_subprotocol_or_in_the_header(
    services: Services, issuer: Issuer
) -> None:
    mine, address = token(issuer), services.gateway.web_address
    async with web_client(address, mine) as client:
        assert client.socket.protocol == "lingua.v1"
        await client.open(new_session("qcy", tenant=""))
    async with web_client(address, headers={"Authorization": f"Bearer {mine}"}) as client:
        await client.open(new_session("qcy", tenant=""))


async def test_nobody_gets_in_without_a_valid_token(services: Services, issuer: Issuer) -> None:
    before = await services.gateway.metric("lingua_auth_refused_total")
    status, body = await refused(services)
    assert (status, body["reason"]) == (401, "UNAUTHENTICATED")
    for bad in ("abc", token(issuer, exp=time.time() - 3600), token(issuer)[:-4] + "AAAA"):
        status, body = await refused(services, bad)
        assert (status, body["reason"]) == (401, "UNAUTHENTICATED")
    assert await services.gateway.metric("lingua_auth_refused_total") == before + 4


async def test_a_page_can_ask_why_its_websocket_was_refused(
    services: Services, issuer: Issuer
) -> None:
    url = f"http://{services.gateway.web_address}/v1/converse"
    async with aiohttp.ClientSession() as http:
        for role, status in (("", 401), ("node", 403), ("client", 426)):
            headers = {"Authorization": f"Bearer {token(issuer, role)}"} if role else {}
            async with http.get(url, headers=headers) as response:
                assert response.status == status


@pytest.mark.parametrize("role", ["node", "operator", "service"])
async def test_only_clients_may_converse(services: Services, issuer: Issuer, role: str) -> None:
    status, body = await refused(services, token(issuer, role))
    assert (status, body["reason"]) == (403, "PERMISSION_DENIED")


async def test_two_tokens_are_refused(services: Services, issuer: Issuer) -> None:
    mine = token(issuer)
    status, body = await refused(services, mine, Authorization=f"Bearer {mine}")
    assert (status, body["reason"]) == (400, "INVALID_MESSAGE")


async def test_subprotocols_come_in_one_header_and_tokens_are_not_logged(
    services: Services, issuer: Issuer
) -> None:
    address, secret = services.gateway.web_address, token(issuer)
    asked = handshake(address, Sec_WebSocket_Protocol=f"bearer.{secret}")
    second = b"Sec-WebSocket-Protocol: lingua.v1\r\n\r\n"
    async with raw_connection(address) as connection:
        await connection.send(asked[:-2] + second)
        assert await connection.status() == 400
    assert secret not in services.gateway.log()


async def test_languages_are_for_clients_and_health_is_for_all(
    services: Services, issuer: Issuer
) -> None:
    url = f"http://{services.gateway.web_address}"
    async with aiohttp.ClientSession() as http:
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {token(issuer)}"}, 200)):
            async with http.get(f"{url}/v1/languages", headers=headers) as response:
                assert response.status == status
        async with http.get(f"{url}/healthz") as response:
            assert response.status == 200


async def test_a_session_goes_on_with_the_next_token(services: Services, issuer: Issuer) -> None:
    address, ends = services.gateway.web_address, time.time() + 2.5
    async with web_client(address, token(issuer, exp=ends - LEEWAY_S)) as client:
        opened = await client.open(new_session("qay", tenant=""))
        assert await client.closed() == 4401
        assert client.events[-1]["error"]["reason"] == "ERROR_REASON_UNAUTHENTICATED"
        assert time.time() >= ends
    await gone(services, "lingua_gateway_sessions")
    async with web_client(address, token(issuer)) as client:
        assert (await client.resume(opened))["sessionId"] == opened["sessionId"]


async def test_a_session_of_another_tenant_is_not_found_and_a_tenant_cannot_be_chosen(
    services: Services, issuer: Issuer
) -> None:
    address = services.gateway.web_address
    async with web_client(address, token(issuer, tenant="ours")) as ours:
        opened = await ours.open(new_session("qay", tenant=""))
        async with web_client(address, token(issuer, tenant="theirs")) as theirs:
            with pytest.raises(AssertionError):
                await theirs.resume(opened)
            assert await theirs.closed() in (4403, 4404)
    async with web_client(address, token(issuer, tenant="ours")) as client:
        with pytest.raises(AssertionError):
            await client.open(new_session("qay", tenant="theirs"))
        assert await client.closed() == 4403


async def test_the_quota_of_a_tenant_counts_both_transports(
    services: Services, issuer: Issuer
) -> None:
    address = services.gateway.web_address
    mine = token(issuer, tenant="small", limits={"sessions": 1})
    async with web_client(address, mine) as first:
        await first.open(new_session("qay", tenant=""))
        async with web_client(address, mine) as second:
            with pytest.raises(AssertionError):
                await second.open(new_session("qay", tenant=""))
            assert await second.closed() == 4429
            assert second.events[-1]["error"]["reason"] == "ERROR_REASON_QUOTA_EXCEEDED"
