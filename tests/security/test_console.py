"""The console with auth on: who may look, who may act, and what other sites cannot do."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lingua_scheduler.services.console.http.failed_sign_ins import BURST
from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from tests.security.certificates import Certificates, server_settings
from tests.security.issuer import ISSUER, Issuer
from tests.support.console import ConsoleProcess, watching
from tests.support.raw_http import raw_connection, request

DRAIN = "/api/v1/nodes/gpu-1/drain"


def auth(issuer: Issuer) -> dict[str, str]:
    return {
        "auth": "on",
        "auth_secret_file": str(issuer.secret_file),
        "auth_jwks_file": str(issuer.jwks_file),
        "auth_issuer": ISSUER,
        "log_level": "debug",
    }


@pytest.fixture
def console(tmp_path: Path, issuer: Issuer) -> Iterator[ConsoleProcess]:
    """A console with auth on. Its log has no token, and tells of no bug."""
    with ConsoleProcess(tmp_path, **auth(issuer)) as process:
        yield process
        assert not process.faults(), process.log()
        # Every token begins like this: '{"' in base64.
        assert "eyJ" not in process.log()


@pytest.fixture
async def browser(console: ConsoleProcess) -> AsyncIterator[aiohttp.ClientSession]:
    """A client with cookies, which says where its page is from, as browsers do."""
    async with browser_of(console) as made:
        yield made


def browser_of(console: ConsoleProcess) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        base_url=console.url,
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        headers={"Origin": console.url, "Sec-Fetch-Site": "same-origin"},
    )


async def sign_in(browser: aiohttp.ClientSession, token: str) -> tuple[int, Any, str]:
    """Signs in; returns the status, the error and the Set-Cookie header."""
    async with browser.post("/api/v1/sign-in", json={"token": token}) as response:
        error = (await response.json())["error"] if response.status != 204 else None
        return response.status, error, response.headers.get("Set-Cookie", "")


async def signed_in(browser: aiohttp.ClientSession, token: str) -> dict[str, Any]:
    """Signs in, which works; returns what the console says about the viewer."""
    assert (await sign_in(browser, token))[0] == 204
    async with browser.get("/api/v1/me") as response:
        assert response.status == 200
        return dict(await response.json())


async def post(
    client: aiohttp.ClientSession, path: str, body: Any = None, **headers: str
) -> tuple[int, str]:
    """Posts; returns the status and the reason of a refusal."""
    async with client.post(path, json=body or {}, headers=headers) as response:
        text = await response.text()
        return response.status, json.loads(text)["error"]["reason"] if text else ""


async def get(client: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str]:
    """Gets; returns the status and the reason of a refusal."""
    async with client.get(path, headers=headers) as response:
        if response.status == 200:
            return 200, ""
        return response.status, (await response.json())["error"]["reason"]


async def test_nobody_sees_anything_without_signing_in(browser: aiohttp.ClientSession) -> None:
    for path in ("me", "overview", "nodes", "nodes/a", "jobs", "sessions", "instances", "search"):
        assert await get(browser, f"/api/v1/{path}") == (401, "UNAUTHENTICATED")
        accept = {"Accept": "text/event-stream"}
        assert await get(browser, f"/api/v1/{path}", **accept) == (401, "UNAUTHENTICATED")
    assert (await get(browser, "/sign-in"))[0] == 200


async def test_an_operator_signs_in_and_out(
    browser: aiohttp.ClientSession, issuer: Issuer, console: ConsoleProcess
) -> None:
    token = issuer.token("operator", sub="ana")
    status, _, cookie = await sign_in(browser, token)
    assert status == 204
    name, *attributes = [part.strip() for part in cookie.split(";")]
    assert name == f"lingua_console={token}"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    (age,) = [each for each in attributes if each.startswith("Max-Age=")]
    assert 0 < int(age.removeprefix("Max-Age=")) < 400 * 24 * 3600
    async with browser.get("/api/v1/me") as response:
        me = await response.json()
    assert (me["name"], me["role"], me["may_act"], me["auth"]) == ("ana", "operator", True, True)
    assert me["expires_ms"] > time.time() * 1000
    assert await get(browser, "/api/v1/overview") == (200, "")
    assert await post(browser, "/api/v1/sign-out") == (204, "")
    assert await get(browser, "/api/v1/overview") == (401, "UNAUTHENTICATED")
    (line,) = console.events("signed in")
    assert (line["by"], line["role"], line["address"]) == ("ana", "operator", "127.0.0.1")


@pytest.mark.parametrize("role", ["client", "node", "service"])
async def test_tokens_of_other_roles_cannot_be_used(
    browser: aiohttp.ClientSession, issuer: Issuer, role: str
) -> None:
    token = issuer.token(role)
    status, error, cookie = await sign_in(browser, token)
    assert (status, error["reason"], cookie) == (403, "PERMISSION_DENIED", "")
    assert role in error["message"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert await get(browser, "/api/v1/overview", **bearer) == (403, "PERMISSION_DENIED")


async def test_wrong_tokens_are_refused_and_soon_no_more_are_checked(
    browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    expired = issuer.token("operator", exp=time.time() - 3600)
    wrong = ["abc", expired, issuer.token("operator")[:-4] + "AAAA"]
    for number in range(BURST):
        status, error, cookie = await sign_in(browser, wrong[number % len(wrong)])
        assert (status, error["reason"], cookie) == (401, "UNAUTHENTICATED", "")
    async with browser.post("/api/v1/sign-in", json={"token": "abc"}) as response:
        assert response.status == 429
        assert int(response.headers["Retry-After"]) >= 1
    bearer = {"Authorization": "Bearer abc"}
    assert (await get(browser, "/api/v1/me", **bearer))[0] == 429


async def test_a_token_that_no_cookie_can_have_is_refused_with_the_reason(
    browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    status, error, _ = await sign_in(browser, issuer.token("operator", extra="x" * 4000))
    assert (status, list(error["fields"])) == (400, ["token"])
    assert "cookie" in error["message"]
    token = issuer.token("operator")
    status, error, cookie = await sign_in(browser, f"{token[:20]}\r\nX-Evil: 1;{token[20:]}")
    assert (status, cookie) == (401, "")


async def test_an_operator_acts_with_the_own_token_and_it_is_logged(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    token = issuer.token("operator", sub="ana\nforged line")
    me = await signed_in(browser, token)
    csrf = {"X-CSRF-Token": me["csrf"]}
    assert await post(browser, DRAIN, **csrf) == (204, "")
    assert await post(browser, "/api/v1/jobs/j%201/cancel", {"why": "stuck"}, **csrf) == (204, "")
    assert await post(browser, "/api/v1/rooms/r1/close", **csrf) == (204, "")
    assert console.actions() == [
        ["drain", "gpu-1", token],
        ["cancel", "j 1", "stuck", token],
        ["close", "r1", token],
    ]
    first, second, third = console.events("action")
    expected = {
        "action": "drain",
        "target": "gpu-1",
        "by": "ana\nforged line",
        "role": "operator",
        "address": "127.0.0.1",
        "outcome": "OK",
    }
    assert expected.items() <= first.items()
    assert (second["action"], second["target"]) == ("cancel", "j 1")
    assert (third["action"], third["target"]) == ("close", "r1")


async def test_a_viewer_may_look_and_not_act(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    me = await signed_in(browser, issuer.token("viewer", sub="vic"))
    assert (me["role"], me["may_act"]) == ("viewer", False)
    assert await get(browser, "/api/v1/overview") == (200, "")
    for path in (
        "nodes/a/drain",
        "nodes/a/ready",
        "nodes/a/remove",
        "jobs/j/cancel",
        "rooms/r/close",
    ):
        denied = await post(browser, f"/api/v1/{path}", **{"X-CSRF-Token": me["csrf"]})
        assert denied == (403, "PERMISSION_DENIED")
    assert console.actions() == []
    lines = console.events("action refused")
    assert [each["action"] for each in lines] == ["drain", "ready", "remove", "cancel", "close"]
    assert all((each["by"], each["outcome"]) == ("vic", "PERMISSION_DENIED") for each in lines)


async def test_an_action_needs_the_csrf_token_of_its_own_sign_in(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    me = await signed_in(browser, issuer.token("operator", sub="ana"))
    async with browser_of(console) as another:
        other = await signed_in(another, issuer.token("operator", sub="bob"))
    assert other["csrf"] != me["csrf"]
    for value in ("", "x", me["csrf"][:-1], other["csrf"], "\xfc"):
        refused = await post(browser, DRAIN, **{"X-CSRF-Token": value})
        assert refused == (403, "WRONG_CSRF_TOKEN")
    assert await post(browser, DRAIN) == (403, "WRONG_CSRF_TOKEN")
    assert console.actions() == []


async def test_holders_of_tokens_without_a_name_can_be_told_apart(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    for number in (1, 2, 2):
        token = issuer.token("operator", sub="", jti=str(number))
        assert await post(browser, DRAIN, Authorization=f"Bearer {token}") == (204, "")
    one, two, again = (line["by"] for line in console.events("action"))
    assert one.startswith("unnamed-")
    assert one != two == again


async def test_a_token_for_another_audience_is_refused(
    browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    status, error, cookie = await sign_in(browser, issuer.token("operator", aud="elsewhere"))
    assert (status, error["reason"], cookie) == (401, "UNAUTHENTICATED", "")


async def test_bytes_that_are_no_text_are_refused_like_any_wrong_value(
    console: ConsoleProcess, issuer: Issuer
) -> None:
    cookie = f"lingua_console={issuer.token('operator')}"
    for header, value, status in (
        ("X_CSRF_Token", "\xff", 403),
        ("Cookie", "lingua_console=\xff", 401),
        ("Authorization", "Bearer \xff", 401),
        ("Origin", "http://\xff", 403),
        ("Content_Type", "\xff", 403),
    ):
        headers = {"Cookie": cookie, "Origin": console.url, header: value}
        async with raw_connection(console.address) as connection:
            await connection.send(request(console.address, DRAIN, "POST", **headers))
            assert await connection.status() == status, header
    assert console.actions() == []


async def test_what_is_not_http_learns_nothing_about_the_server(console: ConsoleProcess) -> None:
    async with raw_connection(console.address) as connection:
        await connection.send(b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = (await connection.reader.read(4096)).lower()
    assert b" 400 " in response
    assert b"aiohttp" not in response
    assert b"python" not in response


async def test_the_cookie_is_secure_if_a_proxy_terminates_tls(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    behind = {"Origin": f"https://{console.address}"}
    body = {"token": issuer.token("viewer")}
    async with browser.post("/api/v1/sign-in", json=body, headers=behind) as response:
        assert "Secure" in response.headers["Set-Cookie"].split("; ")
    _, _, cookie = await sign_in(browser, issuer.token("viewer"))
    assert "Secure" not in cookie.split("; ")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_pages_of_other_sites_are_refused_even_with_all_secrets(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer, headers: dict[str, str]
) -> None:
    me = await signed_in(browser, issuer.token("operator"))
    csrf = {"X-CSRF-Token": me["csrf"]}
    assert await post(browser, DRAIN, **csrf, **headers) == (403, "WRONG_ORIGIN")
    assert await get(browser, "/api/v1/me", **headers) == (403, "WRONG_ORIGIN")
    assert await post(browser, "/api/v1/sign-in", **headers) == (403, "WRONG_ORIGIN")
    assert console.actions() == []


async def test_a_request_with_a_cookie_has_to_say_where_its_page_is_from(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    token = issuer.token("operator")
    me = await signed_in(browser, token)
    async with aiohttp.ClientSession(base_url=console.url) as program:
        headers = {"Cookie": f"lingua_console={token}", "X-CSRF-Token": me["csrf"]}
        assert await post(program, DRAIN, **headers) == (403, "WRONG_ORIGIN")
        # Programs send the token in a header, which no browser does by itself.
        bearer = {"Authorization": f"Bearer {token}"}
        assert await post(program, DRAIN, **bearer) == (204, "")


async def test_a_form_of_another_site_cannot_act_or_sign_in(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    token = issuer.token("operator")
    me = await signed_in(browser, token)
    for path in (DRAIN, "/api/v1/sign-in"):
        async with browser.post(
            path, data=json.dumps({"token": token}), headers={"X-CSRF-Token": me["csrf"]}
        ) as response:
            assert response.status == 415
    assert console.actions() == []


async def test_a_name_that_points_here_is_refused(
    browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    bearer = {"Authorization": f"Bearer {issuer.token('operator')}"}
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert await get(browser, "/api/v1/me", **bearer, **rebound) == (403, "WRONG_HOST")
    assert await get(browser, "/", Host="evil.example") == (403, "WRONG_HOST")
    assert (await get(browser, "/healthz", Host="evil.example"))[0] == 200


async def test_every_response_has_headers_that_protect_it(browser: aiohttp.ClientSession) -> None:
    for path in ("/", "/nodes/a", "/api/v1/me", "/nowhere", "/healthz", "/page/nothing.js"):
        async with browser.get(path) as response:
            headers = response.headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy, path
            assert "frame-ancestors 'none'" in policy, path
            assert "unsafe" not in policy, path
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert headers["Referrer-Policy"] == "no-referrer", path
            assert "Access-Control-Allow-Origin" not in headers, path


async def test_a_stream_ends_when_the_token_expires(
    console: ConsoleProcess, browser: aiohttp.ClientSession, issuer: Issuer
) -> None:
    token = issuer.token("viewer", exp=time.time() - LEEWAY_S + 4)
    async with watching(browser, "/api/v1/overview", Authorization=f"Bearer {token}") as events:
        assert (await events.next())[0] == "document"
        assert await events.next() == ("end", {"reason": "UNAUTHENTICATED"})


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/sign-in", b"x" * 17_000, 413),
        ("/api/v1/sign-in", b"[]", 400),
        ("/api/v1/sign-in", b"{", 400),
        ("/api/v1/sign-in", b"[" * 10_000, 400),
        ("/api/v1/sign-in", b"{}", 400),
        ("/api/v1/sign-in", b'{"token": 1}', 400),
        ("/api/v1/jobs/j/cancel", json.dumps({"why": "x" * 501}).encode(), 400),
        ("/api/v1/overview", b"{}", 405),
    ],
)
async def test_bodies_are_limited_and_checked(
    browser: aiohttp.ClientSession, issuer: Issuer, path: str, body: bytes, status: int
) -> None:
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {issuer.token('operator')}",
    }
    async with browser.post(path, data=body, headers=headers) as response:
        assert response.status == status
        assert (await response.json())["error"]["message"]


async def test_queries_are_limited(browser: aiohttp.ClientSession, issuer: Issuer) -> None:
    await signed_in(browser, issuer.token("viewer"))
    assert await get(browser, "/api/v1/overview?a=" + "x" * 3000) == (414, "QUERY_TOO_LONG")
    assert await get(browser, "/api/v1/overview?a=1&a=2") == (400, "INVALID_MESSAGE")
    many = "&".join(f"a{number}=1" for number in range(40))
    assert await get(browser, f"/api/v1/overview?{many}") == (400, "INVALID_MESSAGE")


async def test_over_tls_the_cookie_is_secure_and_a_certificate_is_enough_to_look(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, issuer: Issuer
) -> None:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    settings = server_settings(certificates.issue(), mutual=True)
    with ConsoleProcess(
        tmp_path, **auth(issuer), **settings, console_health_listen="127.0.0.1:0"
    ) as console:
        caller = certificates.caller("lingua:operator/ana")
        context = ssl.create_default_context(cafile=str(certificates.ca))
        context.load_cert_chain(caller.cert, caller.key)
        connector = aiohttp.TCPConnector(ssl=context)
        url = f"https://{console.address}"
        headers = {"Origin": url}
        async with aiohttp.ClientSession(
            base_url=url, connector=connector, headers=headers
        ) as client:
            async with client.get("/api/v1/me") as response:
                me = await response.json()
            assert (me["role"], me["may_act"]) == ("operator", False)
            csrf = {"X-CSRF-Token": me["csrf"]}
            assert await post(client, DRAIN, **csrf) == (403, "PERMISSION_DENIED")
            _, _, cookie = await sign_in(client, issuer.token("operator"))
            assert "Secure" in cookie.split("; ")
        assert console.actions() == []
        # Probes have no certificate, and learn nothing but the health.
        (listening,) = console.events("listening")
        async with aiohttp.ClientSession(base_url=f"http://{listening['health']}") as probe:
            async with probe.get("/healthz") as response:
                assert await response.json() == {"status": "SERVING", "stale": ["jobs"]}
            assert await get(probe, "/api/v1/me") == (404, "NOT_FOUND")
            assert await get(probe, "/") == (404, "NOT_FOUND")


async def test_without_auth_everyone_on_this_machine_is_an_operator_but_no_other_site(
    tmp_path: Path,
) -> None:
    with ConsoleProcess(tmp_path) as console:
        async with browser_of(console) as browser:
            async with browser.get("/api/v1/me") as response:
                me = await response.json()
            assert (me["role"], me["auth"], me["may_act"]) == ("operator", False, True)
            assert await post(browser, DRAIN) == (403, "WRONG_CSRF_TOKEN")
            evil = {"Origin": "https://evil.example", "X-CSRF-Token": me["csrf"]}
            assert await post(browser, DRAIN, **evil) == (403, "WRONG_ORIGIN")
            assert await post(browser, DRAIN, **{"X-CSRF-Token": me["csrf"]}) == (204, "")
            assert console.actions() == [["drain", "gpu-1", None]]


def test_without_auth_it_does_not_listen_for_other_machines(tmp_path: Path) -> None:
    console = ConsoleProcess(tmp_path, console_listen="0.0.0.0:0")
    console.start()
    try:
        console.process.wait()
        assert "LINGUA_CONSOLE_LISTEN='0.0.0.0:0': without auth" in console.log()
    finally:
        console.stop()
