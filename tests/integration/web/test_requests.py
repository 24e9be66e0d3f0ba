"""HTTP at the web entry: what is refused before a WebSocket opens, health, languages."""

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from tests.support.process import SOON_S
from tests.support.raw_http import handshake, raw_connection, request
from tests.support.scene import Scene
from tests.support.services import GatewayProcess
from tests.support.web_attacks import EVIL, HANDSHAKES, NOT_HTTP


async def get(
    gateway: GatewayProcess, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of a request."""
    url = f"http://{gateway.web_address}{path}"
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, headers=headers) as response,
    ):
        body = await response.text()
        return response.status, dict(response.headers), json.loads(body) if body else None


@pytest.mark.parametrize(
    ("path", "method", "headers", "status", "reason"),
    [
        ("/nothing", "GET", {}, 404, "NOT_FOUND"),
        ("/v1/converse/", "GET", {}, 404, "NOT_FOUND"),
        ("/v1/../v1/Converse", "GET", {}, 404, "NOT_FOUND"),
        ("/v1/converse", "POST", {}, 405, "METHOD_NOT_ALLOWED"),
        ("/v1/languages", "DELETE", {}, 405, "METHOD_NOT_ALLOWED"),
        ("/v1/converse", "GET", {}, 426, "UPGRADE_REQUIRED"),
        ("/v1/converse", "GET", {"Upgrade": "h2c"}, 426, "UPGRADE_REQUIRED"),
        ("/v1/languages", "GET", {"Host": "evil.example"}, 403, "WRONG_HOST"),
        ("/healthz", "GET", {"Origin": EVIL}, 403, "WRONG_ORIGIN"),
        ("/v1/languages", "GET", {"Origin": EVIL}, 403, "WRONG_ORIGIN"),
        ("/v1/languages", "OPTIONS", {"Origin": EVIL}, 403, "WRONG_ORIGIN"),
    ],
)
async def test_a_request_is_refused_and_told_why_in_json(
    gateway: GatewayProcess,
    path: str,
    method: str,
    headers: dict[str, str],
    status: int,
    reason: str,
) -> None:
    found, answered, body = await get(gateway, path, method, **headers)
    assert (found, body["reason"]) == (status, reason)
    assert body["message"]
    assert set(body) == {"reason", "message", "metadata", "retryAfterMs"}
    assert answered["Connection"] == "close"
    assert answered["Server"] == "lingua-scheduler"
    assert "Access-Control-Allow-Origin" not in answered


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 101),
        ({"Origin": "http://{host}"}, 101),
        *HANDSHAKES,
    ],
)
async def test_only_a_proper_handshake_of_an_accepted_page_opens_a_websocket(
    gateway: GatewayProcess, headers: dict[str, str], status: int
) -> None:
    address = gateway.web_address
    filled = {name: value.format(host=address) for name, value in headers.items()}
    async with raw_connection(address) as connection:
        await connection.send(handshake(address, **filled))
        assert await connection.status() == status
        if status != 101:
            await connection.ended()


async def test_a_request_hidden_behind_a_refused_upgrade_is_not_served(
    gateway: GatewayProcess,
) -> None:
    address = gateway.web_address
    requests = "lingua_gateway_web_requests_total"
    before = await gateway.metric(requests, path="/healthz")
    async with raw_connection(address) as connection:
        refused = handshake(address, Sec_WebSocket_Version="12")
        await connection.send(refused + request(address, "/healthz"))
        assert await connection.status() == 400
        rest = await connection.reader.read(100_000)
        assert b"HTTP/1.1" not in rest
    assert await gateway.metric(requests, path="/healthz") == before


async def test_health_says_whether_sessions_can_be_opened(gateway: GatewayProcess) -> None:
    status, headers, body = await get(gateway, "/healthz")
    assert (status, body) == (200, {"status": "SERVING"})
    assert headers["Cache-Control"] == "no-store"
    # Load balancers use names of their own.
    assert (await get(gateway, "/healthz", Host="cluster-7"))[0] == 200


async def test_the_directions_of_the_nodes_are_listed_soon_after_they_connect(
    gateway: GatewayProcess, patient: Scene
) -> None:
    async def listed() -> list[dict[str, Any]]:
        status, _, body = await get(gateway, "/v1/languages")
        assert status == 200
        assert int(body["asOfMs"]) >= 0
        return [each for each in body["directions"] if each["src"] == patient.src]

    assert await listed() == []
    await patient.node(slots=1)
    # Soon, unless the machine is so slow that a sample of the fleet takes long.
    async with asyncio.timeout(6 * SOON_S):
        while len(found := await listed()) < 2:
            pass
    assert found == [
        {"src": patient.src, "tgt": "*", "speech": False, "room": True},
        {"src": patient.src, "tgt": patient.tgt, "speech": True, "room": True},
    ]


async def test_a_page_of_another_origin_that_is_allowed_can_read_the_answers(
    gateway: GatewayProcess,
) -> None:
    own = f"http://{gateway.web_address}"
    status, headers, _ = await get(gateway, "/v1/languages", "OPTIONS", Origin=own)
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == own
    assert headers["Access-Control-Allow-Headers"] == "authorization, content-type"
    assert headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert headers["Vary"] == "Origin"


@pytest.mark.parametrize("data", NOT_HTTP)
async def test_what_is_not_http_is_refused(gateway: GatewayProcess, data: bytes) -> None:
    async with raw_connection(gateway.web_address) as connection:
        await connection.send(data)
        status = 0
        with contextlib.suppress(TimeoutError):
            status = await connection.status(within=5)
        assert status in (0, 400, 403)
    assert not gateway.faults()
