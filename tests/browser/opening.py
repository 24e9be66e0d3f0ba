"""Opens pages of the gateway for tests."""

from typing import Any

from playwright.sync_api import BrowserContext, ViewportSize

from tests.browser.chromium import Browsers
from tests.browser.recorded_page import RecordedPage
from tests.browser.room_page import RoomPage
from tests.browser.sounds import MURMUR, Sound
from tests.browser.talk_page import TalkPage

PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}


class OpenPage:
    """Opens talk pages and room pages, each in a profile of its own, or beside another one."""

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
        page = TalkPage(self._context(sound, microphone, beside, options), url)
        page.open(fragment, ready=ready)
        return page

    def room(
        self,
        url: str,
        address: str = "",
        *,
        sound: Sound = MURMUR,
        microphone: bool = True,
        beside: RecordedPage | None = None,
        **options: Any,
    ) -> RoomPage:
        """Opens a room page.

        Args:
            url: of the gateway.
            address: a whole link, or only the fragment of the address.
            sound: what its microphone hears.
            microphone: whether it may use the microphone.
            beside: another page, in whose profile it is one more tab.
            options: of the profile, as Playwright has them.
        """
        page = RoomPage(self._context(sound, microphone, beside, options), url)
        page.open(address)
        return page

    def _context(
        self, sound: Sound, microphone: bool, beside: RecordedPage | None, options: dict[str, Any]
    ) -> BrowserContext:
        if beside is not None:
            return beside.context
        context = self._browsers.hearing(sound).new_context(
            permissions=["microphone"] if microphone else [],
            **{"viewport": DESKTOP, "locale": "en-US", "reduced_motion": "reduce", **options},
        )
        self._contexts.append(context)
        return context

    def close(self) -> None:
        """Closes all pages."""
        for context in self._contexts:
            context.close()
