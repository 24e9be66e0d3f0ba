"""Opens consoles for tests."""

from typing import Any

from playwright.sync_api import BrowserContext

from tests.browser.chromium import Browsers
from tests.browser.console_page import ConsolePage
from tests.browser.opening import DESKTOP
from tests.browser.sounds import MURMUR


class OpenConsole:
    """Opens consoles, each in a profile of its own."""

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers
        self._contexts: list[BrowserContext] = []

    def __call__(
        self, url: str, path: str = "/", *, live: bool = True, **options: Any
    ) -> ConsolePage:
        """Opens a view.

        Args:
            url: of the console.
            path: of the view.
            live: whether to wait until it is live.
            options: of the profile, as Playwright has them.
        """
        context = self._browsers.hearing(MURMUR).new_context(
            **{"viewport": DESKTOP, "locale": "en-US", "reduced_motion": "reduce", **options}
        )
        self._contexts.append(context)
        page = ConsolePage(context, url)
        page.open(path, live=live)
        return page

    def close(self) -> None:
        """Closes all pages."""
        for context in self._contexts:
            context.close()
