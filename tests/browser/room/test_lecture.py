"""One speaks, several listen: everybody gets everything once and in order, whatever happens."""

from collections.abc import Callable

import pytest
from playwright.sync_api import WebSocketRoute, expect

from tests.browser.opening import OpenPage
from tests.browser.room_page import RoomPage
from tests.browser.scheduler import TalkScheduler
from tests.browser.sounds import SENTENCES


class Line:
    """The line of one listener, which can be cut. The scheduler does not notice anything else."""

    def __init__(self, page: RoomPage) -> None:
        self._is_cut = False
        self._routes: list[WebSocketRoute] = []
        page.page.route_web_socket("**/v1/listen", self._on_socket)

    def _on_socket(self, route: WebSocketRoute) -> None:
        if self._is_cut:
            route.close(code=1013)
            return
        route.connect_to_server()
        self._routes.append(route)

    def cut(self) -> None:
        """Ends the connection, and lets no other one through."""
        self._is_cut = True
        for route in self._routes:
            route.close(code=1013)
        self._routes.clear()

    def mend(self) -> None:
        """Lets connections through again."""
        self._is_cut = False


Join = Callable[..., RoomPage]


@pytest.fixture
def host(scheduler: TalkScheduler, open_page: OpenPage) -> RoomPage:
    """A host who speaks English, alone in a room."""
    page = open_page.room(scheduler.url)
    page.make(language="en", name="Ana", room="Guided tour")
    return page


@pytest.fixture
def join(scheduler: TalkScheduler, open_page: OpenPage, host: RoomPage) -> Join:
    """Lets listeners come, each in a browser profile of its own."""

    def come(language: str, *, sound: bool = False) -> RoomPage:
        page = open_page.room(scheduler.url, host.link("listener"))
        page.enter(language=language, sound=sound)
        return page

    return come


def check_captions(page: RoomPage, expected: dict[int, str]) -> None:
    """The page shows these utterances once and in order, each in its language."""
    page.until(lambda: len(page.captions()) >= len(expected), f"all of {expected} are shown")
    shown = page.captions()
    assert {each.index: each.language for each in shown} == expected
    assert [each.index for each in shown] == sorted(expected)
    for each in shown:
        assert each.text.endswith(f" ms of en in {each.language}"), shown


def say(host: RoomPage, count: int) -> None:
    """The host says something, so many times; each has its receipt before the next one."""
    for _ in range(count):
        before = host.receipts().count()
        host.speak(0.4)
        expect(host.receipts()).to_have_count(before + 1)


def test_three_listeners_get_every_utterance_once_and_in_their_language(
    host: RoomPage, join: Join
) -> None:
    anna, ben, cleo = join("es", sound=True), join("es"), join("fr")
    expect(host.people("es")).to_have_attribute("data-count", "2")
    expect(host.people("fr")).to_have_attribute("data-count", "1")
    expect(host.page.locator("[data-role=listeners]")).to_have_attribute("data-count", "3")
    # Not one after the other: the next utterance begins while the last one is translated.
    for _ in range(4):
        host.speak(0.4)
    for page, language in ((anna, "es"), (ben, "es"), (cleo, "fr"), (host, "en")):
        check_captions(page, dict.fromkeys(range(4), language))
        assert page.heard() == [0, 1, 2, 3]
    expect(host.receipts()).to_have_count(4)
    for receipt in host.receipts().all():
        assert set((receipt.get_attribute("data-delivered") or "").split()) == {"en", "es", "fr"}
    # All hear the same, and only who wants to hear it gets speech.
    assert [each.text for each in anna.captions()] == [each.text for each in ben.captions()]
    assert all(each["speechBytes"] > 0 for each in anna.room_events("said"))
    assert not any(each["speechBytes"] for each in ben.room_events("said"))
    for page in (host, anna, ben, cleo):
        page.check()


def test_a_listener_changes_the_language_between_two_utterances(host: RoomPage, join: Join) -> None:
    anna, ben = join("es"), join("fr")
    say(host, 2)
    anna.choose("fr")
    anna.until(lambda: bool(anna.room_events("changed")), "the change is in effect")
    say(host, 2)
    check_captions(anna, {0: "es", 1: "es", 2: "fr", 3: "fr"})
    check_captions(ben, dict.fromkeys(range(4), "fr"))
    # Nobody wants Spanish any more, so nothing is translated into it.
    last = host.receipts().last.get_attribute("data-delivered") or ""
    assert set(last.split()) == {"en", "fr"}
    expect(host.people("es")).to_have_count(0)
    for page in (host, anna, ben):
        page.check()


def test_a_listener_without_a_connection_misses_nothing(host: RoomPage, join: Join) -> None:
    anna, ben = join("es"), join("es")
    line = Line(anna)
    # The line is in place from the next connection on.
    anna.page.reload()
    anna.expect_connection("connected")
    say(host, 1)
    check_captions(anna, {0: "es"})
    line.cut()
    anna.expect_connection("reconnecting")
    expect(anna.page.locator("[data-role=note]")).to_contain_text("reconnecting")
    say(host, 2)
    check_captions(ben, dict.fromkeys(range(3), "es"))
    assert anna.heard() == [0]
    line.mend()
    anna.expect_connection("connected")
    say(host, 1)
    check_captions(anna, dict.fromkeys(range(4), "es"))
    assert anna.heard() == [0, 1, 2, 3]
    assert len(anna.room_events("rejoined")) == 1
    anna.check(connection_errors=True)
    ben.check()


def test_a_late_comer_reads_what_was_said_last(host: RoomPage, join: Join) -> None:
    anna = join("es")
    say(host, 3)
    late = join("es", sound=True)
    check_captions(late, dict.fromkeys(range(3), "es"))
    assert [each["replayed"] for each in late.room_events("said")] == [True] * 3
    # Nobody has listened to French before.
    later = join("fr")
    say(host, 1)
    check_captions(late, dict.fromkeys(range(4), "es"))
    check_captions(anna, dict.fromkeys(range(4), "es"))
    check_captions(later, {3: "fr"})
    for page in (host, anna, late, later):
        page.check()


def test_kill_9_of_the_gateway_costs_nobody_a_word(
    scheduler: TalkScheduler, host: RoomPage, join: Join
) -> None:
    anna, ben = join("es"), join("fr")
    say(host, 1)
    host.press()
    host.until_sent(0.5)
    scheduler.gateway.kill()
    for page in (host, anna, ben):
        page.expect_connection("reconnecting")
    # The speaker goes on, and what is said is kept.
    host.until_sent(0.5)
    host.release()
    scheduler.gateway.start()
    scheduler.gateway.wait_ready()
    for page in (host, anna, ben):
        page.expect_connection("connected")
    say(host, 1)
    for page, language in ((host, "en"), (anna, "es"), (ben, "fr")):
        check_captions(page, dict.fromkeys(range(3), language))
        assert page.heard() == [0, 1, 2]
        page.check(connection_errors=True)


def test_who_listens_in_the_speakers_language_hears_the_speaker(host: RoomPage, join: Join) -> None:
    anna = join("en", sound=True)
    say(host, 1)
    check_captions(anna, {0: "en"})
    (said,) = anna.room_events("said")
    assert said["speechBytes"] + said["originalBytes"] >= 0.4 * 32_000
    replay = anna.lines().locator("button[data-action=replay]")
    expect(replay).to_be_visible()
    anna.check()


def test_another_speaker_comes_by_link_and_both_read_each_other(
    scheduler: TalkScheduler, open_page: OpenPage, host: RoomPage, join: Join
) -> None:
    anna = join("fr")
    guide = open_page.room(scheduler.url, host.link("speaker"))
    guide.enter(language="es", speak=True, name="Ben")
    say(host, 1)
    guide.speak(0.4)
    expect(guide.receipts()).to_have_count(1)
    assert [each.text.split(" ms of ")[1] for each in anna.captions()] == ["en in fr", "es in fr"]
    assert [each.text.split(" ms of ")[1] for each in host.captions()] == ["en in en", "es in en"]
    names = [each.inner_text() for each in anna.page.locator("[data-role=who]").all()]
    assert names == ["Ana", "Ben"]
    expect(host.page.locator("ul[data-role=speakers] > li")).to_have_count(2)
    for page in (host, guide, anna):
        page.check()


def test_hands_free_speaks_one_sentence_after_the_other(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    host = open_page.room(scheduler.url, sound=SENTENCES)
    host.make(language="en")
    anna = open_page.room(scheduler.url, host.link("listener"))
    anna.enter(language="es")
    host.page.locator("button[data-action=hands-free]").click()
    host.talk_button.click()
    anna.until(lambda: len(anna.heard()) >= 2, "two sentences are heard")
    host.talk_button.click()
    expect(host.talk_button).to_have_attribute("aria-pressed", "false")
    assert anna.heard() == list(range(len(anna.heard())))
    for page in (host, anna):
        page.check()


def test_what_is_missing_is_shown_to_listeners_and_in_the_receipt(
    scheduler: TalkScheduler, host: RoomPage, join: Join
) -> None:
    anna = join("es")
    say(host, 1)
    for node in scheduler.nodes:
        node.order(fail=1)
    # The nodes read their orders every 50 ms.
    host.page.wait_for_timeout(100)
    say(host, 1)
    expect(anna.lines("missing")).to_contain_text("Missing: ")
    expect(host.receipts().last.locator("[data-missing=es]")).to_contain_text("Not in Spanish")
    for node in scheduler.nodes:
        node.order()
    host.page.wait_for_timeout(100)
    say(host, 1)
    states = [each.get_attribute("data-state") for each in anna.lines().all()]
    assert states == ["said", "missing", "said"]
    for page in (host, anna):
        page.check()
