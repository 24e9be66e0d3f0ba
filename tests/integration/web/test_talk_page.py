"""The talk page over HTTP: its headers, what is reachable, and when it is served."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import pytest
from multidict import CIMultiDictProxy
from yarl import URL

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.session_gateway.web.talk_page import page_files
from tests.support.process import SOON_S
from tests.support.raw_client import new_session
from tests.support.raw_http import raw_connection, raw_socket, request
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, running
from tests.support.web_client import web_client

REQUESTS = "lingua_gateway_web_requests_total"
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "media-src": "'self'",
    "worker-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


class Answer(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes


async def ask(
    gateway: GatewayProcess, path: str = "/", method: str = "GET", **headers: str
) -> Answer:
    """Makes a request whose path is sent as it is."""
    url = URL(f"http://{gateway.web_address}{path}", encoded=True)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url, headers=named) as response,
    ):
        return Answer(response.status, response.headers, await response.read())


async def test_every_file_is_served_as_it_is_with_headers_that_confine_it(
    gateway: GatewayProcess,
) -> None:
    for path, file in page_files().items():
        status, headers, body = await ask(gateway, path)
        assert (status, body) == (200, file.body), path
        parts = [part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; ")]
        assert dict(parts) == POLICY
        assert "unsafe" not in headers["Content-Security-Policy"]
        for name, value in {
            "Cache-Control": "no-cache",
            "Content-Type": file.headers["Content-Type"],
            "Content-Length": str(len(body)),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "ETag": f'"{file.tag}"',
            "Permissions-Policy": "microphone=(self)",
            "Referrer-Policy": "no-referrer",
            "Server": "lingua-scheduler",
            "X-Content-Type-Options": "nosniff",
        }.items():
            assert headers[name] == value, (path, name)


async def test_a_head_request_gets_the_headers_only(gateway: GatewayProcess) -> None:
    whole, head = await ask(gateway), await ask(gateway, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    dated = {"Date": ""}
    assert {**head.headers, **dated} == {**whole.headers, **dated}
    assert (await ask(gateway, "/page/nothing.js", method="HEAD")).status == 404


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ("{tag}", 304),
        ("W/{tag}", 304),
        ('"other", {tag}', 304),
        ("*", 304),
        ('"other"', 200),
        ("", 200),
        ("not a tag", 200),
        ('"' * 2000, 200),
    ],
)
async def test_a_browser_that_has_a_file_is_not_sent_it_again(
    gateway: GatewayProcess, known: str, status: int
) -> None:
    tag = f'"{page_files()["/"].tag}"'
    for method in ("GET", "HEAD"):
        answer = await ask(gateway, method=method, If_None_Match=known.format(tag=tag))
        assert answer.status == status
        assert answer.headers["ETag"] == tag
        assert "Content-Security-Policy" in answer.headers
        if status == 304:
            assert answer.body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_the_page_is_only_read(gateway: GatewayProcess, method: str) -> None:
    answer = await ask(gateway, method=method)
    assert answer.status == (204 if method == "OPTIONS" else 405)
    assert answer.headers["Allow"].startswith("GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/",
        "/page/index.html",
        "/page/nothing.js",
        "/page/app/",
        "/page/../entry.py",
        "/page/../../entry.py",
        "/page/%2e%2e/entry.py",
        "/page/..%2fentry.py",
        "/page/%2e%2e%2fentry.py",
        "/page/%252e%252e%252fentry.py",
        "/page/..%5centry.py",
        "/page/..\\entry.py",
        "/page/....//entry.py",
        "/page//etc/passwd",
        "/page/%00",
        "/page/page.css%00.js",
        "/page/%c0%ae%c0%ae/entry.py",
        "/page/vendor/README.md",
        "/page/./page.css/",
        "//page.css",
        "/entry.py",
        "/PAGE/page.css",
    ],
)
async def test_nothing_else_is_reachable(gateway: GatewayProcess, path: str) -> None:
    address = gateway.web_address
    async with raw_connection(address) as connection:
        await connection.send(request(address, path))
        head = await connection.reader.readuntil(b"\r\n\r\n")
        rest = await connection.reader.read()
    assert head.split()[1] in (b"404", b"400"), head
    assert b"import" not in rest
    assert b'"reason"' in rest


async def test_a_page_is_served_by_the_names_of_this_server_only(gateway: GatewayProcess) -> None:
    assert (await ask(gateway, Host="evil.example")).status == 403
    assert (await ask(gateway, Origin="http://evil.example")).status == 403
    assert (await ask(gateway, Host="localhost")).status == 200


async def test_the_whole_page_has_one_label_in_metrics(gateway: GatewayProcess) -> None:
    before = await gateway.metric(REQUESTS, path="page", status="200")
    others = await gateway.metric(REQUESTS, path="other", status="404")
    for path in (*page_files(), "/?from=a", "/page/one.js", "/page/two.js"):
        await ask(gateway, path)
    count = len(page_files()) + 1
    assert await gateway.metric(REQUESTS, path="page", status="200") == before + count
    assert await gateway.metric(REQUESTS, path="other", status="404") == others + 2


async def test_one_connection_can_fetch_all_files(gateway: GatewayProcess) -> None:
    address = gateway.web_address
    async with raw_connection(address) as connection:
        for path, file in page_files().items():
            await connection.send(request(address, path))
            head = await connection.reader.readuntil(b"\r\n\r\n")
            assert re.search(rb"Content-Length: (\d+)", head)[1] == b"%d" % len(file.body)
            assert await connection.reader.readexactly(len(file.body)) == file.body


@pytest.fixture
async def without_page(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> AsyncIterator[GatewayProcess]:
    """A gateway whose page is off."""
    gateway = GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        talk_page="no",
    )
    async with running(gateway):
        yield gateway


async def test_a_page_that_is_off_is_not_there_and_sessions_are(
    without_page: GatewayProcess,
) -> None:
    answer = await ask(without_page)
    assert answer.status == 404
    assert b"LINGUA_TALK_PAGE" in answer.body
    for path in page_files():
        assert (await ask(without_page, path)).status == 404
    async with raw_socket(without_page.web_address):
        pass


@pytest.fixture
async def alone(
    own_redis: EmbeddedRedis, prefix: str, patient_process: DispatcherProcess
) -> AsyncIterator[GatewayProcess]:
    """A gateway with a Redis of its own."""
    gateway = GatewayProcess(
        # Not started: only its prefix is used.
        pool=PoolProcess(redis_url=own_redis.url, prefix=prefix),
        redis_url=own_redis.url,
        dispatchers=patient_process.address,
        redis_timeout_ms=500,
        drain_grace_ms=30_000,
    )
    async with running(gateway):
        yield gateway


async def test_the_page_is_served_while_redis_is_away_and_while_the_gateway_drains(
    alone: GatewayProcess, own_redis: EmbeddedRedis
) -> None:
    async with raw_socket(alone.web_address):
        own_redis.kill()
        async with asyncio.timeout(SOON_S):
            while (await ask(alone, "/healthz")).status != 503:
                pass
        assert (await ask(alone)).status == 200
        await asyncio.to_thread(own_redis.restart)
        async with asyncio.timeout(SOON_S):
            while (await ask(alone, "/healthz")).status != 200:
                pass
    async with web_client(alone.web_address) as client:
        # A gateway waits for the clients that it sends elsewhere.
        await client.open(new_session("en", "es"))
        alone.terminate()
        async with asyncio.timeout(SOON_S):
            while (await ask(alone, "/v1/converse")).status != 503:
                pass
        assert (await ask(alone)).status == 200


async def test_the_page_needs_no_token_and_what_it_asks_for_does(
    patient_process: DispatcherProcess,
    pool_process: PoolProcess,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    secret = tmp_path_factory.mktemp("auth") / "secret"
    secret.write_text("x" * 40)
    gateway = GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        auth="on",
        auth_secret_file=str(secret),
    )
    async with running(gateway):
        assert (await ask(gateway)).status == 200
        assert (await ask(gateway, "/v1/languages")).status == 401
