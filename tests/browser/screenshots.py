"""Pictures of the talk page, for the documentation.

    python -m tests.browser.screenshots docs/pictures

The scheduler, the gateway, the browser and its microphone are real; the node knows its sentences by
heart.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.browser.chromium import Browsers
from tests.browser.opening import DESKTOP, PHONE, OpenPage
from tests.browser.phrase_node import DIALOGUE, PROGRAM
from tests.browser.scheduler import TalkScheduler
from tests.browser.talk_page import TalkPage


def say(page: TalkPage, lines: range) -> None:
    """The two take turns; each line is translated before the next one is said."""
    for line in lines:
        page.speak("ab"[line % 2], 1.2)  # type: ignore[arg-type]
        page.until_settled()
        done = page.utterances("a", "done")
        page.until(lambda done=done, line=line: done.count() == line + 1, "translated")


def take(page: TalkPage, path: Path, colours: str, size: ViewportSize) -> None:
    """Writes a picture of the page as it is."""
    page.page.set_viewport_size(size)
    page.page.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
    # What has just changed is laid out and faded in.
    page.page.wait_for_timeout(500)
    page.page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def take_all(opens: OpenPage, url: str, folder: Path) -> None:
    """Writes all pictures."""
    page = opens(url, viewport=PHONE, device_scale_factor=1.5)
    page.choose("en", "es")
    say(page, range(3))
    page.press("b")
    page.until_sent(0.6)
    take(page, folder / "talk-phone.png", "light", PHONE)
    page.release()
    page.until_settled()
    take(page, folder / "talk-phone-dark.png", "dark", PHONE)
    page = opens(url, viewport=DESKTOP)
    page.choose("en", "es")
    say(page, range(len(DIALOGUE) - 1))
    facts = page.utterances("a").last.locator("details[data-role=facts]")
    facts.locator("summary").click()
    facts.locator("li").last.scroll_into_view_if_needed()
    take(page, folder / "talk-desktop.png", "light", DESKTOP)


def main(folder: Path) -> None:
    """Brings everything up, and takes the pictures."""
    with (
        tempfile.TemporaryDirectory() as data,
        EmbeddedRedis(data_dir=Path(data)) as redis,
        TalkScheduler(redis_url=redis.url) as scheduler,
        sync_playwright() as playwright,
        Browsers(playwright) as browsers,
    ):
        scheduler.add_nodes_of(PROGRAM, "maple")
        scheduler.until_offered("en", "es")
        opens = OpenPage(browsers)
        take_all(opens, scheduler.url, folder)
        opens.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
