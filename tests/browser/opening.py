"""Opens talk pages for tests."""

from typing import Any

from playwright.sync_api import BrowserContext, ViewportSize

from tests.browser.chromium import Browsers
from tests.browser.sounds import MURMUR, Sound
from tests.browser.talk_page import TalkPage

PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}


class OpenPage:
    """Opens talk pages, each in a profile of its own, or beside another one."""

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers
        self._contexts: list[BrowserContext] = []

    def __call__(
        self,
        url: str,
        *,
        sound: Sound = MURMUR,
        microphone: bool = True,
        beside: TalkPage | None = None,
        fragment: str = "",
        ready: bool = True,
        **options: Any,
    ) -> TalkPage:
        """Opens a page.

        Args:
            url: where the gateway serves it.
            sound: what its microphone hears.
            microphone: whether it may use the microphone.
            beside: another page, in whose profile it is one more tab.
            fragment: of the address.
            ready: whether to wait until languages can be chosen.
            options: of the profile, as Playwright has them.
        """
        context = beside.context if beside is not None else None
        if context is None:
            context = self._browsers.hearing(sound).new_context(
                permissions=["microphone"] if microphone else [],
                **{"viewport": DESKTOP, "locale": "en-US", "reduced_motion": "reduce", **options},
            )
            self._contexts.append(context)
        page = TalkPage(context, url)
        page.open(fragment, ready=ready)
        return page

    def close(self) -> None:
        """Closes all pages."""
        for context in self._contexts:
            context.close()
