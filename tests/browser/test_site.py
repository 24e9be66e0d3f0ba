"""The site of the documentation in a browser: search, looks, and no request to elsewhere."""

import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import run

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.audit import SEVERE
from tests.browser.chromium import Browsers
from tests.browser.opening import DESKTOP, PHONE
from tests.browser.sounds import MURMUR

ROOT = Path(__file__).parents[2]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Logs nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of the site."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    run([*command, str(tmp_path / "site")], cwd=ROOT, check=True, timeout=120)
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_site_can_be_searched_and_read_by_everybody(site: str, browsers: Browsers) -> None:
    context = browsers.hearing(MURMUR).new_context(viewport=DESKTOP)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site}/index.html")
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type("queue_wait_ms")
    first = page.locator(".md-search-result__item").first
    expect(first).to_contain_text("LINGUA_QUEUE_WAIT_MS", timeout=30_000)
    broken = (
        "() => [...document.images].filter((each) => !each.naturalWidth).map((each) => each.src)"
    )
    assert page.evaluate(broken) == []
    for path, colours, size in (
        ("index.html", "light", PHONE),
        ("reference/errors.html", "dark", DESKTOP),
    ):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
        page.goto(f"{site}/{path}")
        found = Axe().run(page).response["violations"]
        severe = [each for each in found if each["impact"] in SEVERE]
        assert [(each["id"], each["nodes"][0]["html"]) for each in severe] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    context.close()
    elsewhere = [url for url in asked if not url.startswith((site, "data:", "blob:"))]
    assert elsewhere == []
