"""Who may look and act: operators, viewers, and nobody from another site."""

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.security.issuer import ISSUER, Issuer
from tests.support.raw_node import RawNode

NODE = "gpu-1"
DRAIN = f"/api/v1/nodes/{NODE}/drain"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """Makes tokens."""
    return Issuer(Path(tmp_path_factory.mktemp("issuer")))


@pytest.fixture(scope="module")
def guarded(redis_url: str, issuer: Issuer) -> Iterator[ConsoleScheduler]:
    """A scheduler with auth on, and one node."""
    settings = {"auth_secret_file": str(issuer.secret_file), "auth_issuer": ISSUER}
    with ConsoleScheduler(redis_url=redis_url, auth="on", **settings) as made:
        hello = dispatcher_pb2.Hello(
            node_id=NODE,
            incarnation="1",
            max_concurrent_jobs=2,
            capabilities=common_pb2.NodeCapabilities(
                asr_langs=["en"], semantic_langs=["en"], tts_langs=["es"]
            ),
        )
        metadata = issuer.metadata("node", node_id=NODE)
        address = made.dispatchers[0].address
        node = made.background.call(lambda: RawNode(address, hello, metadata=metadata))
        made.run(node.open())
        yield made
        made.run(node.cut())
        made.check_logs()
        assert "eyJ" not in made.console.log()


def test_an_operator_signs_in_acts_and_signs_out(
    guarded: ConsoleScheduler, issuer: Issuer, open_console: OpenConsole
) -> None:
    page = open_console(guarded.url, f"/nodes/{NODE}", live=False)
    page.expect_path(f"/sign-in?next=%2Fnodes%2F{NODE}")
    page.sign_in(issuer.token("operator", sub="ana"))
    page.expect_path(f"/nodes/{NODE}")
    expect(page.role("who")).to_contain_text("ana")
    assert page.page.evaluate("document.cookie") == ""
    page.act("drain")
    expect(page.role("drain")).to_be_visible()
    page.act("ready")
    expect(page.role("drain")).to_have_count(0)
    page.page.locator("[data-action=sign-out]").click()
    page.expect_path("/sign-in")
    page.open("/nodes", live=False)
    page.expect_path("/sign-in?next=%2Fnodes")
    page.check(connection_errors=True)


def test_wrong_tokens_are_refused_in_words(
    guarded: ConsoleScheduler, issuer: Issuer, open_console: OpenConsole
) -> None:
    page = open_console(guarded.url, live=False)
    page.expect_path("/sign-in")
    for token in ("no token at all", issuer.signed(issuer.claims(), "another secret" * 4)):
        page.sign_in(token)
        expect(page.page.locator("[role=alert]")).to_contain_text("The token was refused")
    page.sign_in(issuer.token("client"))
    expect(page.page.locator("[role=alert]")).to_contain_text("role")
    page.expect_path("/sign-in")
    page.sign_in(issuer.token("operator"))
    page.expect_path("/")
    page.check(connection_errors=True)


def test_a_viewer_may_look_but_not_act(
    guarded: ConsoleScheduler, issuer: Issuer, open_console: OpenConsole
) -> None:
    page = open_console(guarded.url, f"/nodes/{NODE}", live=False)
    page.sign_in(issuer.token("viewer", sub="vic"))
    page.expect_path(f"/nodes/{NODE}")
    page.expect_connection("live")
    for action in ("drain", "remove"):
        button = page.page.locator(f"main button[data-action={action}]")
        expect(button).to_have_attribute("aria-disabled", "true")
        button.click(force=True)
        expect(page.dialog).to_have_count(0)
        expect(page.role("notice")).to_contain_text("you may look, but not act")
    csrf = page.page.evaluate("fetch('/api/v1/me').then((me) => me.json()).then((me) => me.csrf)")
    assert page.post(DRAIN, {}, {"X-CSRF-Token": csrf}) == (403, "PERMISSION_DENIED")
    status, _ = page.post(DRAIN, {}, {})
    assert status == 403
    expect(page.role("drain")).to_have_count(0)
    page.check(connection_errors=True)


def test_an_expired_token_leads_to_the_sign_in_and_back(
    guarded: ConsoleScheduler, issuer: Issuer, open_console: OpenConsole
) -> None:
    page = open_console(guarded.url, "/jobs?state=failed", live=False)
    soon = int(time.time()) - LEEWAY_S + 4
    page.sign_in(issuer.token("operator", exp=soon, iat=soon - 600))
    page.expect_path("/jobs?state=failed")
    page.expect_path("/sign-in?next=%2Fjobs%3Fstate%3Dfailed")
    page.sign_in(issuer.token("operator"))
    page.expect_path("/jobs?state=failed")
    page.expect_connection("live")
    page.check(connection_errors=True)


class _Evil(http.server.BaseHTTPRequestHandler):
    """A page of another site."""

    def do_GET(self) -> None:
        """Serves an empty page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title><body></body>")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def evil() -> Iterator[str]:
    """Another site: for cookies, localhost is not 127.0.0.1."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


FRAME = "(url) => { document.body.innerHTML = `<iframe src=${url}></iframe>`; }"
FETCH = """([url, body]) => fetch(url, {
  method: "POST", mode: "no-cors", credentials: "include", body,
}).then(() => "sent", () => "not sent")"""
FORM = """([url]) => {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", enctype: "text/plain", action: url });
  const field = document.createElement("input");
  Object.assign(field, { name: '{"why":"', value: '"}' });
  form.append(field);
  document.body.append(form);
  form.submit();
}"""


def test_requests_of_another_site_are_refused(
    guarded: ConsoleScheduler, issuer: Issuer, open_console: OpenConsole, evil: str
) -> None:
    page = open_console(guarded.url, f"/nodes/{NODE}", live=False)
    page.sign_in(issuer.token("operator"))
    page.expect_connection("live")
    other = page.context.new_page()
    other.goto(evil)
    with other.expect_event("framenavigated", lambda frame: frame != other.main_frame):
        other.evaluate(FRAME, guarded.url)
    assert other.frames[1].locator("#page").count() == 0
    target = guarded.url + DRAIN

    def refused() -> float:
        console = guarded.console
        return float(guarded.run(console.metric("lingua_console_requests_total", status="403")))

    before = refused()
    # What the answer is, the other site does not learn either.
    assert other.evaluate(FETCH, [target, "{}"]) == "not sent"
    assert refused() == before + 1
    with other.expect_response(target) as answer:
        other.evaluate(FORM, [target])
    assert answer.value.status == 403
    assert refused() == before + 2
    page.open(f"/nodes/{NODE}")
    expect(page.role("drain")).to_have_count(0)
    page.check(connection_errors=True)
