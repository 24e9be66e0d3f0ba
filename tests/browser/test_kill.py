"""Parts of the scheduler go away while somebody speaks: the page goes on, and no word is lost."""

from collections import Counter
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Browsers
from tests.browser.opening import OpenPage
from tests.browser.record import violations
from tests.browser.scheduler import TalkScheduler
from tests.browser.talk_page import TalkPage


@pytest.fixture(scope="module")
def own(browsers: Browsers, redis_url: str) -> Iterator[TalkScheduler]:
    """A scheduler of this file's own, whose processes tests may kill. It cuts long speech."""
    with TalkScheduler(redis_url=redis_url, max_duration_ms=1500) as made:
        made.add_hearing_nodes(2)
        made.until_offered("en", "es")
        yield made
        made.check_logs()


@pytest.fixture
def scheduler(own: TalkScheduler) -> TalkScheduler:
    """The scheduler, all of which is alive, and whose nodes have no orders."""
    for each in (*own.services, *own.nodes):
        if each.process.poll() is not None:
            each.start()
            each.wait_ready()
    for node in own.nodes:
        node.order()
    return own


def check(page: TalkPage, scheduler: TalkScheduler) -> None:
    """Nothing is missing, nothing is lost, and the page shows that."""
    page.until_settled()
    assert violations(page, scheduler.nodes) == []
    for side in ("a", "b"):
        expect(page.utterances(side, "done").last).to_contain_text("ms of")
        expect(page.utterances(side, "missing")).to_have_count(0)
    page.check(connection_errors=True)


def test_kill_9_of_the_gateway_in_the_middle_of_speech_loses_no_word(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(scheduler.url)
    page.speak("a", 0.5)
    page.press("a")
    page.until_sent(1.0)
    scheduler.gateway.kill()
    page.expect_connection("reconnecting")
    # The person speaks on while there is no connection.
    page.until_sent(1.0)
    expect(page.side("a")).to_contain_text("Your words are kept")
    scheduler.gateway.start()
    scheduler.gateway.wait_ready()
    page.expect_connection("connected")
    page.until_sent(0.5)
    page.release()
    page.until_settled()
    # The other person answers, in the same session.
    page.speak("b", 0.5)
    check(page, scheduler)
    assert len(page.events("resumed")) == 1
    assert len(page.wire.sessions) == 1


def test_kill_9_after_the_last_word_loses_no_word(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    for node in scheduler.nodes:
        node.order(work_ms=1500)
    page = open_page(scheduler.url)
    page.speak("b", 0.7)
    page.until_events(1, "accepted")
    scheduler.gateway.kill()
    page.expect_connection("reconnecting")
    scheduler.gateway.start()
    scheduler.gateway.wait_ready()
    page.expect_connection("connected")
    check(page, scheduler)


def test_a_killed_node_costs_no_word(scheduler: TalkScheduler, open_page: OpenPage) -> None:
    for node in scheduler.nodes:
        node.order(work_ms=8000)
    page = open_page(scheduler.url)
    page.press("a")
    # An utterance has 1.5 s at most, so a node has got the first one while the person speaks on.
    page.until_events(1, "accepted")
    accepted = page.events("accepted")[0]
    (victim,) = (each for each in scheduler.nodes if each.node_id == accepted["nodeId"])
    victim.kill()
    for node in scheduler.nodes:
        node.order()
    page.until_sent(0.5)
    page.release()
    check(page, scheduler)
    expect(page.connection).to_have_attribute("data-state", "connected")
    first = page.events("result")[0]
    assert first["nodeId"] != victim.node_id
    assert first["attempts"] > 1


def test_speech_that_is_cut_held_and_joined_loses_no_word(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(scheduler.url)
    page.choose("es", "en")
    page.speak("b", 2.5)
    check(page, scheduler)
    expect(page.utterances("b", "held").first).to_contain_text("Continues in the next line")
    expect(page.utterances("a", "held").first).to_contain_text("Continúa")


@pytest.mark.long
def test_a_drained_scheduler_costs_no_word(scheduler: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(scheduler.url)
    page.press("a")
    page.until_sent(1.0)
    for service in scheduler.services:
        service.terminate()
    for service in scheduler.services:
        assert service.wait_end() == 0
    page.expect_connection("reconnecting")
    for service in scheduler.services:
        service.start()
        service.wait_ready()
    page.expect_connection("connected")
    page.until_sent(0.5)
    page.release()
    check(page, scheduler)


def test_another_language_does_not_cut_off_words_that_wait_for_a_connection(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(scheduler.url)
    page.speak("a", 0.5)
    page.until_settled()
    page.choose("es", "en")
    with scheduler.gateway.frozen():
        page.press("a")
        page.expect_connection("connecting")
        # Nothing can be sent, so nothing tells how much was recorded.
        page.page.wait_for_timeout(1000)
        page.release()
        page.choose("en", "es")
    page.until(lambda: len(page.events("result")) >= 2, "the second one is translated")
    page.speak("b", 0.5)
    check(page, scheduler)
    assert len(page.wire.sessions) == 3
    sent: Counter[str] = Counter()
    for each in page.sent():
        sent[each["detail"]["sessionId"]] += each["detail"]["samples"]
    # What was said meanwhile is half of a second at least, and went to the session in between.
    assert list(sent.values())[1] > 8_000
