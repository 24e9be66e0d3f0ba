"""The talk buttons by finger, mouse and keyboard."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.opening import PHONE, OpenPage
from tests.browser.record import violations
from tests.browser.scheduler import TalkScheduler
from tests.browser.talk_page import Side, TalkPage


class Fingers:
    """Fingers on a screen."""

    def __init__(self, page: TalkPage) -> None:
        self._page = page
        self._screen = page.context.new_cdp_session(page.page)

    def touch(self, *sides: Side) -> None:
        """From now on there is a finger on the talk button of each of these sides, or none."""
        self._tell("touchStart" if sides else "touchEnd", dict(enumerate(sides)))

    def lift(self, finger: int, side: Side) -> None:
        """Only this finger, counted from 0 as in `touch`, leaves the button of its side."""
        self._tell("touchEnd", {finger: side})

    def _tell(self, what: str, fingers: dict[int, Side]) -> None:
        places = {each: self._page.talk_place(side) for each, side in fingers.items()}
        points = [{"x": x, "y": y, "id": each} for each, (x, y) in places.items()]
        self._screen.send("Input.dispatchTouchEvent", {"type": what, "touchPoints": points})


def mouse(page: TalkPage) -> Callable[[], None]:
    page.press("a")
    return page.release


def sliding_mouse(page: TalkPage) -> Callable[[], None]:
    page.press("a")
    page.page.mouse.move(1, 1)
    return page.release


def finger(page: TalkPage) -> Callable[[], None]:
    fingers = Fingers(page)
    fingers.touch("a")
    return fingers.touch


def space(page: TalkPage) -> Callable[[], None]:
    page.talk_button("a").focus()
    page.page.keyboard.down(" ")
    # Keys repeat while they are held.
    page.page.keyboard.down(" ")
    return lambda: page.page.keyboard.up(" ")


def enter(page: TalkPage) -> Callable[[], None]:
    page.talk_button("a").focus()
    page.page.keyboard.down("Enter")
    return lambda: page.page.keyboard.up("Enter")


def escape(page: TalkPage) -> Callable[[], None]:
    page.press("a")
    return lambda: page.page.keyboard.press("Escape")


@pytest.mark.parametrize("hold", [mouse, sliding_mouse, finger, space, enter, escape])
def test_a_button_is_held_to_talk(
    shared: TalkScheduler, open_page: OpenPage, hold: Callable[[TalkPage], Callable[[], None]]
) -> None:
    page = open_page(shared.url, viewport=PHONE, has_touch=True)
    let_go = hold(page)
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "true")
    page.until_sent(0.5)
    let_go()
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "false")
    page.until_settled()
    expect(page.utterances("b", "done")).to_have_count(1)
    assert violations(page, shared.nodes) == []
    page.check()


def test_a_tap_is_no_speech_but_gets_a_hint(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url)
    page.speak("a", 0.5)
    page.until_settled()
    sent = page.sent_samples()
    page.talk_button("a").click()
    expect(page.side("a").locator("[data-role=note]")).to_contain_text("Hold the button")
    expect(page.utterances("a")).to_have_count(1)
    assert page.sent_samples() == sent
    page.check()


def test_one_person_at_a_time(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url, viewport=PHONE, has_touch=True)
    fingers = Fingers(page)
    fingers.touch("a")
    page.until_sent(0.3)
    fingers.touch("a", "b")
    expect(page.side("b").locator("[data-role=note]")).not_to_be_empty()
    page.until_sent(0.3)
    fingers.touch()
    expect(page.side("b").locator("[data-role=note]")).to_be_empty()
    page.until_settled()
    assert {each["direction"]["src"] for each in page.events("result")} == {"en"}
    assert violations(page, shared.nodes) == []
    page.check()


def test_a_second_finger_on_the_button_does_not_end_the_take(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url, viewport=PHONE, has_touch=True)
    fingers = Fingers(page)
    fingers.touch("a")
    page.until_sent(0.3)
    fingers.touch("a", "a")
    fingers.lift(1, "a")
    page.until_sent(0.5)
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "true")
    fingers.touch()
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "false")
    page.until_settled()
    assert len(page.events("result")) == 1
    assert violations(page, shared.nodes) == []
    page.check()


def test_everything_is_reached_by_tab_and_nothing_keeps_the_focus(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    page.speak("a", 0.5)
    page.until_settled()
    describe = """() => {
      const { activeElement: element } = document;
      const { role, action } = element.dataset;
      const side = element.closest("section")?.dataset.side ?? "";
      return element === document.body ? "body" : `${side} ${action ?? role ?? element.tagName}`;
    }"""
    reached: list[str] = []
    # The first round begins at the button that was pressed.
    while reached.count("body") < 2:
        page.page.keyboard.press("Tab")
        reached.append(page.page.evaluate(describe))
        assert len(reached) < 60, reached
    reached = reached[reached.index("body") + 1 :]
    wanted = {" hands-free", " turn", " interface"} | {
        f"{side} {what}" for side in "ab" for what in ("talk", "language", "replay", "SUMMARY")
    }
    assert wanted <= set(reached), reached
    assert max(map(reached.count, wanted)) == 1, reached


def test_two_tabs_are_two_conversations(shared: TalkScheduler, open_page: OpenPage) -> None:
    first = open_page(shared.url)
    second = open_page(shared.url, beside=first)
    first.press("a")
    second.press("b")
    for page in (first, second):
        page.until_sent(1.0)
    for page in (first, second):
        page.release()
    for page in (first, second):
        page.until_settled()
        assert violations(page, shared.nodes) == []
        page.check()
    sessions = [{each["sessionId"] for each in page.events()} for page in (first, second)]
    assert sessions[0].isdisjoint(sessions[1])
    assert {each["direction"]["src"] for each in first.events("result")} == {"en"}
    assert {each["direction"]["src"] for each in second.events("result")} == {"es"}
