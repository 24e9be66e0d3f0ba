"""Looks for faults that keep people from using the page."""

from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ViewportSize

from tests.browser.console_page import ConsolePage
from tests.browser.opening import DESKTOP, PHONE
from tests.browser.recorded_page import RecordedPage

SMALLEST = {"width": 320, "height": 568}
SEVERE = ("serious", "critical")
# Elements that stick out of the page at the side.
STICK_OUT = """() => {
  const { clientWidth, scrollWidth } = document.documentElement;
  const out = [...document.querySelectorAll("body *")].filter((each) => {
    const { left, right, width } = each.getBoundingClientRect();
    return width > 1 && (left < -1 || right > clientWidth + 1);
  });
  return scrollWidth > clientWidth ? ["it scrolls", ...out.map((each) => each.outerHTML)] : [];
}"""


LIGHT_PHONE, DARK_PHONE = ("light", PHONE), ("dark", PHONE)
LIGHT_DESKTOP, DARK_DESKTOP = ("light", DESKTOP), ("dark", DESKTOP)


def audit(
    page: RecordedPage | ConsolePage, *looks: tuple[Literal["light", "dark"], ViewportSize]
) -> None:
    """Fails if axe finds a serious fault, or if something does not fit."""
    for colours, size in looks:
        page.page.set_viewport_size(size)
        page.page.emulate_media(color_scheme=colours)
        found = Axe().run(page.page).response["violations"]
        severe = [
            (each["id"], colours, size["width"], node["html"], node["failureSummary"])
            for each in found
            if each["impact"] in SEVERE
            for node in each["nodes"]
        ]
        assert severe == []
    page.page.set_viewport_size(SMALLEST)
    assert page.page.evaluate(STICK_OUT) == []
    page.page.set_viewport_size(PHONE)
