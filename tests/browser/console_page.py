"""The console in a browser, as an operator sees and uses it, and everything that it records."""

import re
import time
from collections.abc import Callable

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, Request, expect

# What is to come comes at once; a busy machine may need much longer for it.
SOON_S = 30.0
expect.set_options(timeout=SOON_S * 1000)

RECORDER = """
globalThis.heard = [];
globalThis.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
const RealSource = globalThis.EventSource;
globalThis.EventSource = class extends RealSource {
  constructor(url) {
    super(url);
    for (const type of ["document", "patch", "problem", "tick", "end"]) {
      this.addEventListener(type, ({ data }) => globalThis.heard.push({ url, type, data }));
    }
  }
};
const realFetch = globalThis.fetch;
globalThis.fetch = async (...asked) => {
  const answer = await realFetch(...asked);
  const url = String(asked[0]);
  answer.clone().text().then((data) => globalThis.heard.push({ url, type: "answer", data }));
  return answer;
};
"""
# Chromium writes these itself if a server goes away, or refuses.
CONNECTION_ERRORS = re.compile(
    r"Failed to load resource: (net::ERR_|the server responded)|net::ERR_"
)


class ConsolePage:
    """One tab with the console.

    Args:
        context: of the browser; it may have other tabs.
        url: of the console.

    Attributes:
        requests: addresses of all requests.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.requests: list[str] = []
        self.page: Page = context.new_page()
        self._errors: list[str] = []
        self.page.add_init_script(RECORDER)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self._errors.append(f"page error: {error}"))
        self.page.on("request", self._on_request)

    def open(self, path: str = "/", *, live: bool = True) -> None:
        """Loads a view; returns when it is live, unless not `live`."""
        self.page.goto(f"{self.url}{path}")
        if live:
            self.expect_connection("live")

    def go(self, place: str) -> None:
        """Follows a link of the main navigation, such as "nodes"."""
        self.page.locator(f"nav.places a[data-place={place}]").click()
        self.expect_path(f"/{'' if place == 'overview' else place}")

    # What is on the page.

    def expect_connection(self, state: str) -> None:
        """Returns when the connection is in this state."""
        expect(self.role("connection")).to_have_attribute("data-state", state)

    def expect_path(self, path: str) -> None:
        """Returns when this path, with its query, is the address."""
        expect(self.page).to_have_url(f"{self.url}{path}")

    @property
    def path(self) -> str:
        """The address without the host."""
        return self.page.url.removeprefix(self.url)

    def role(self, name: str) -> Locator:
        """A part of the page by its role here, such as "drain"."""
        return self.page.locator(f"[data-role={name}]")

    @property
    def title(self) -> Locator:
        """The heading of the view."""
        return self.page.locator("h1")

    def figure(self, name: str) -> Locator:
        """A number of the overview, such as "free"."""
        return self.page.locator(f"[data-figure={name}] .figure-value")

    def cell(self, direction: str) -> Locator:
        """A cell of the matrix, such as "en:es"."""
        return self.page.locator(f'[data-direction="{direction}"]')

    def card(self, name: str) -> Locator:
        """A section of the page by its id."""
        return self.page.locator(f"section#{name}")

    def rows(self, label: str = "") -> Locator:
        """The rows of a table: of the one with this label, or of the only one."""
        which = f'table[aria-label="{label}"]' if label else "table[role=table]"
        return self.page.locator(f"{which} > tbody > tr")

    def row(self, key: str) -> Locator:
        """The row of a node, job, session, instance or utterance."""
        return self.page.locator(f'tr[data-key="{key}"]')

    def keys(self, label: str = "") -> list[str]:
        """The ids in a table, in order."""
        found: list[str] = self.rows(label).evaluate_all("(rows) => rows.map(r => r.dataset.key)")
        return found

    @property
    def range(self) -> Locator:
        """Which rows of how many are shown."""
        return self.role("range")

    def state(self, name: str) -> Locator:
        """The link that filters by a state, such as "draining"."""
        return self.page.locator(f'nav.states a[data-state="{name}"]')

    def field(self, name: str) -> Locator:
        """A field that filters, such as "search"."""
        return self.page.locator(f"main [name={name}]")

    @property
    def dialog(self) -> Locator:
        """The open dialog."""
        return self.page.locator("dialog[open]")

    # What a person does.

    def ask(self, action: str) -> Locator:
        """Asks for an action, such as "drain"; returns the dialog that asks back."""
        self.page.locator(f"main button[data-action={action}]").click()
        expect(self.dialog).to_be_visible()
        return self.dialog

    def confirm(self) -> None:
        """Confirms the dialog; returns when that has worked."""
        self.dialog.locator("[data-action=confirm]").click()
        expect(self.dialog).to_have_count(0)

    def dismiss(self) -> None:
        """Closes the dialog without doing anything."""
        self.dialog.locator("[data-action=dismiss]").click()
        expect(self.dialog).to_have_count(0)

    def act(self, action: str) -> None:
        """Asks for an action, and confirms it."""
        self.ask(action)
        self.confirm()

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def sign_in(self, token: str) -> None:
        """Fills in the form for a token, and sends it."""
        self.page.locator("input#token").fill(token)
        self.page.locator("[data-action=sign-in]").click()

    def post(self, path: str, body: object, headers: dict[str, str]) -> tuple[int, str]:
        """What the page's own origin can send; returns the status and the reason of a refusal."""
        status, reason = self.page.evaluate(
            """async ([path, body, headers]) => {
                 const answer = await fetch(path, {
                   method: "POST", body: JSON.stringify(body),
                   headers: { "Content-Type": "application/json", ...headers },
                 });
                 const text = await answer.text();
                 return [answer.status, text ? JSON.parse(text).error.reason : ""];
               }""",
            [path, body, headers],
        )
        return int(status), str(reason)

    # What it records.

    def heard(self) -> list[dict[str, str]]:
        """All events and answers since the page was loaded: `url`, `type` and `data`."""
        found: list[dict[str, str]] = self.page.evaluate("globalThis.heard")
        return found

    def until(self, condition: Callable[[], object], what: str, within: float = SOON_S) -> None:
        """Returns when a condition holds."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not {what}: {self._errors}"
            self.page.wait_for_timeout(20)

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
        violations = self.page.evaluate("globalThis.violations")
        assert not violations, violations
        others = [each for each in self.requests if not each.startswith(self.url)]
        assert not others, others

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._errors.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
