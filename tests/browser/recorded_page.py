"""A page in a browser, and everything that it records."""

import re
import time
from collections.abc import Callable

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
)

from tests.browser.frames import Wire
from tests.support.records import Record

# What is to come comes at once; a busy machine may need much longer for it.
SOON_S = 30.0
expect.set_options(timeout=SOON_S * 1000)

RECORDER = """
// What the browser does to voices would change sounds that are no voices.
const getUserMedia = navigator.mediaDevices?.getUserMedia.bind(navigator.mediaDevices);
if (getUserMedia !== undefined) {
  const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  navigator.mediaDevices.getUserMedia = (wanted) =>
    getUserMedia({ ...wanted, audio: { ...wanted.audio, ...plain } });
}
globalThis.recorded = [];
const note = (what, detail) => {
  const at = performance.timeOrigin + performance.now();
  globalThis.recorded.push({ what, at, detail: JSON.parse(JSON.stringify(detail ?? null)) });
};
document.addEventListener("lingua:event", (event) => note("event", event.detail));
document.addEventListener("lingua:room", (event) => note("room", event.detail));
document.addEventListener("lingua:sent", (event) => note("sent", event.detail));
document.addEventListener("securitypolicyviolation", (event) =>
  note("violation", `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
# Chromium writes these itself if a server goes away, or refuses.
CONNECTION_ERRORS = re.compile(
    "WebSocket connection to .* failed|Failed to load resource: (net::ERR_|the server responded)"
)


class RecordedPage:
    """One tab with a page of the gateway.

    Args:
        context: of the browser; it may have other tabs.
        url: of the gateway.

    Attributes:
        records: what the page has told of itself: `what`, `t` and `detail`.
        wire: the audio that it has sent.
        requests: addresses of all requests.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.records: list[Record] = []
        self.requests: list[str] = []
        self.wire = Wire()
        self.page: Page = context.new_page()
        self._taken = 0
        self._errors: list[str] = []
        self.page.add_init_script(RECORDER)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self._errors.append(f"page error: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("websocket", self.wire.follow)

    # What is on the page.

    @property
    def connection(self) -> Locator:
        """The state of the connection."""
        return self.page.locator("[data-role=connection]")

    def expect_connection(self, state: str) -> None:
        """Returns when the connection is in this state."""
        expect(self.connection).to_have_attribute("data-state", state)

    @property
    def alert(self) -> Locator:
        """A problem in words."""
        return self.page.locator("[role=alert][data-reason]")

    # What a person does.

    def until_sent(self, seconds: float) -> None:
        """Returns when so much more speech was given to the session."""
        wanted = self.sent_samples() + int(seconds * 16_000)
        self.until(lambda: self.sent_samples() >= wanted, f"{seconds} s were sent")

    # What it records.

    def sent(self) -> list[Record]:
        """Blocks that the page has given to its sessions."""
        return self.told("sent")

    def sent_samples(self) -> int:
        """How much speech that is."""
        return sum(each["detail"]["samples"] for each in self.sent())

    def events(self, *types: str) -> list[Record]:
        """Events of its sessions, as the SDK has them, with their time in `t`."""
        events = ({"t": each["t"], **each["detail"]} for each in self.told("event"))
        return [each for each in events if not types or each["type"] in types]

    def told(self, what: str) -> list[Record]:
        """Its records of a kind, up to now."""
        new = self.page.evaluate("from => globalThis.recorded.slice(from)", self._taken)
        self._taken += len(new)
        # The clock of the page is the wall clock of this machine.
        offset = time.time() - time.monotonic()
        self.records += [{**each, "t": each["at"] / 1000 - offset} for each in new]
        return [each for each in self.records if each["what"] == what]

    def until(self, condition: Callable[[], object], what: str, within: float = SOON_S) -> None:
        """Returns when a condition holds."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not {what}: {self.explain()}"
            self.page.wait_for_timeout(20)

    def until_events(self, count: int, *types: str) -> None:
        """Returns when there are this many events of these types."""
        self.until(lambda: len(self.events(*types)) >= count, f"{count} times {types}")

    def explain(self) -> str:
        """The latest events and errors, for a failure."""
        latest = "\n".join(str(each)[:300] for each in self.events()[-12:])
        return f"{self._errors}\n{latest}\n{self.alert.all_inner_texts()}"

    def check(self, *, connection_errors: bool = False) -> None:
        """Fails if the page has had an error, broken its policy, or asked another host.

        Args:
            connection_errors: whether the server went away, or refused something.
        """
        errors = [
            each
            for each in self._errors
            if not (connection_errors and CONNECTION_ERRORS.search(each))
        ]
        assert not errors, errors
        violations = [each["detail"] for each in self.told("violation")]
        assert not violations, violations
        others = [each for each in self.requests if not each.startswith((self.url, self._ws_url))]
        assert not others, others

    @property
    def _ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._errors.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
