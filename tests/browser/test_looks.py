"""How the page looks and reads: on phones and desktops, for everybody, in three languages."""

import pytest
from playwright.sync_api import expect

from tests.browser.audit import (
    DARK_DESKTOP,
    DARK_PHONE,
    LIGHT_DESKTOP,
    LIGHT_PHONE,
    SMALLEST,
    audit,
)
from tests.browser.opening import DESKTOP, PHONE, OpenPage
from tests.browser.scheduler import TalkScheduler


def test_axe_finds_no_serious_fault_in_a_conversation(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    audit(page, LIGHT_PHONE, DARK_DESKTOP)
    page.press("a")
    page.until_sent(0.3)
    audit(page, DARK_PHONE, LIGHT_DESKTOP)
    page.release()
    page.until_settled()
    page.speak("b", 0.5)
    page.until_settled()
    for facts in page.page.locator("details[data-role=facts]").all():
        facts.locator("summary").click()
    audit(page, LIGHT_PHONE, DARK_PHONE, LIGHT_DESKTOP, DARK_DESKTOP)


def test_axe_finds_no_serious_fault_in_problems(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url, microphone=False)
    page.press("a")
    expect(page.alert).to_be_visible()
    page.release()
    page.alert.locator("summary").click()
    audit(page, DARK_PHONE, LIGHT_DESKTOP)


INTERFACES = {
    "en": ("Hands-free", "Hold to talk"),
    "es": ("Manos libres", "Mantener"),
    "zh": ("免提", "按住"),
}


@pytest.mark.parametrize(("locale", "language"), [("es-MX", "es"), ("zh-CN", "zh"), ("de", "en")])
def test_the_interface_speaks_the_language_of_the_browser(
    shared: TalkScheduler, open_page: OpenPage, locale: str, language: str
) -> None:
    page = open_page(shared.url, locale=locale)
    switch = page.page.locator("button[data-action=hands-free]")
    expect(switch).to_contain_text(INTERFACES[language][0])
    expect(page.page.locator("html")).to_have_attribute("lang", language)
    for chosen, (hands_free, _) in INTERFACES.items():
        page.page.locator("select[data-action=interface]").select_option(chosen)
        expect(switch).to_contain_text(hands_free)
        expect(page.page.locator("html")).to_have_attribute("lang", chosen)
    # People read their own half.
    page.choose("en", "es")
    expect(page.talk_button("a")).to_contain_text(INTERFACES["en"][1])
    expect(page.talk_button("b")).to_contain_text(INTERFACES["es"][1])
    page.check()


def test_the_upper_half_is_turned_on_a_phone_and_not_on_a_desktop(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url, viewport=PHONE)
    is_turned = """half => {
      const { transform, rotate } = getComputedStyle(half);
      return rotate === "180deg" || new DOMMatrix(transform).a < 0;
    }"""
    turn = page.page.locator("button[data-action=turn]")
    half = page.side("b")
    assert half.evaluate(is_turned)
    assert not page.side("a").evaluate(is_turned)
    above, below = half.bounding_box(), page.side("a").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"] + 1
    turn.click()
    assert not half.evaluate(is_turned)
    turn.click()
    page.page.set_viewport_size(DESKTOP)
    page.until(lambda: not half.evaluate(is_turned), "it is not turned")
    for side in ("a", "b"):
        box = page.talk_button(side).bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 44
    page.check()


def test_each_half_has_its_language_beside_a_large_button(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    for size in (PHONE, DESKTOP, SMALLEST):
        page.page.set_viewport_size(size)
        for side in ("a", "b"):
            half = page.side(side).bounding_box()
            button = page.talk_button(side).bounding_box()
            language = page.side(side).locator("select[data-role=language]").bounding_box()
            assert half is not None
            assert button is not None
            assert language is not None
            assert abs(button["y"] - language["y"]) <= 1
            assert button["height"] >= 72
            assert button["width"] >= half["width"] / 2
    page.check()


SAY_MUCH = """async (count) => {
  const { html, render } = await import("/page/app/html.js");
  const { initialState, reduce } = await import("/page/app/state.js");
  const { Page } = await import("/page/app/view-page.js");
  const languages = { a: "en", b: "es" };
  let state = initialState({ languages });
  for (let index = 0; index < count; index += 1) {
    const words = `${index} `.repeat(5000);
    const event = {
      type: "result",
      index,
      direction: { src: "en", tgt: "es" },
      kind: "TRANSLATED",
      texts: { source: words, repaired: words, translated: words },
      joined: [],
      lost: [],
      nodeId: "n0",
      jobId: "j",
      attempts: 1,
      timings: null,
    };
    state = reduce(state, { type: "session-event", session: 1, languages, event });
  }
  const root = document.getElementById("page");
  render(html`<${Page} state=${state} narrow=${false} controller=${{}} />`, root);
}"""


def test_the_page_stays_small_however_much_is_said(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    empty = page.page.locator("*").count()
    # To say so much takes an hour, so the events come from here.
    page.page.evaluate(SAY_MUCH, 1000)
    for side in ("a", "b"):
        expect(page.utterances(side)).to_have_count(200)
        expect(page.utterances(side).last).to_have_attribute("data-index", "999")
    expect(page.side("a")).to_contain_text("Only the last 200 are shown")
    assert page.page.locator("*").count() < empty + 2 * 200 * 15
    assert len(page.utterances("a").last.inner_text()) < 10_000
    page.check()
