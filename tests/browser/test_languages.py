"""People choose among the languages that nodes offer."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from tests.browser.chromium import Browsers
from tests.browser.opening import OpenPage
from tests.browser.scheduler import TalkScheduler
from tests.browser.talk_page import TalkPage


@pytest.fixture
def scheduler(browsers: Browsers, redis_url: str) -> Iterator[TalkScheduler]:
    """A scheduler of the test's own, with one node. What nobody can translate is missing soon."""
    with TalkScheduler(redis_url=redis_url, job_timeout_ms=3000, result_deadline_ms=5000) as made:
        made.add_hearing_nodes()
        made.until_offered("en", "es")
        yield made
        made.check_logs()


def options(page: TalkPage) -> dict[str, str]:
    """What side `a` can choose: the words for each language."""
    found = page.language("a").locator("option").all()
    return {each.get_attribute("value") or "": each.inner_text().strip() for each in found}


@pytest.mark.long
def test_languages_come_and_go_with_nodes(scheduler: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(scheduler.url)
    assert set(options(page)) == {"en", "es"}
    expect(page.language("b").locator("option:checked")).to_have_text("Español")
    expect(page.side("b")).to_have_attribute("aria-label", "Mitad en español")
    (french,) = scheduler.add_hearing_nodes(langs="en,fr")
    scheduler.until_offered("en", "es", "fr")
    page.ask_languages()
    page.until(lambda: set(options(page)) == {"en", "es", "fr"}, "French is offered")
    assert options(page)["fr"] == "Français"
    page.choose("fr", "en")
    page.speak("a", 0.5)
    page.until_settled()
    expect(page.utterances("b", "done")).to_contain_text("ms of fr in en")
    french.terminate()
    french.wait_end()
    scheduler.until_offered("en", "es")
    page.ask_languages()
    # It was chosen, so it stays, and says that nobody offers it.
    page.until(lambda: "not available" in options(page).get("fr", ""), "French is not offered")
    # What is said all the same is missing, and does not disturb the rest.
    page.speak("a", 0.5)
    page.until_settled()
    expect(page.utterances("a").last).to_have_attribute("data-state", "missing")
    page.choose("en", "es")
    page.until(lambda: set(options(page)) == {"en", "es"}, "French is gone")
    page.speak("a", 0.5)
    page.until_settled()
    expect(page.utterances("b").last).to_contain_text("ms of en in es")
    page.check()


def test_nodes_that_do_not_speak_are_used_if_there_are_no_others(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(scheduler.url)
    page.speak("a", 0.5)
    page.until_settled()
    (speaking,) = scheduler.nodes
    speaking.terminate()
    speaking.wait_end()
    scheduler.add_hearing_nodes(tts="fr")
    scheduler.until_only_text("en", "es")
    with page.page.expect_response("**/v1/languages"):
        page.ask_languages()
    page.speak("a", 0.5)
    page.until_settled()
    expect(page.utterances("b").last).to_have_attribute("data-state", "done")
    page.check()


def test_a_choice_is_remembered_and_the_same_language_is_exchanged(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    page.choose("es", "en")
    expect(page.language("a")).to_have_value("es")
    page.language("a").select_option("en")
    expect(page.language("b")).to_have_value("es")
    page.choose("es", "en")
    page.page.reload()
    page.until_languages()
    expect(page.language("a")).to_have_value("es")
    expect(page.language("b")).to_have_value("en")
    page.check()


def test_slow_and_refused_languages_are_explained_and_asked_for_again(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    asked: list[Route] = []
    page.page.route("**/v1/languages", lambda route: asked.append(route), times=2)
    page.page.reload()
    page.until(lambda: asked, "the languages are asked for")
    expect(page.side("a")).to_contain_text("Loading languages")
    expect(page.language("a")).to_be_disabled()
    asked.pop().abort()
    expect(page.side("a")).to_contain_text("Trying again")
    page.until(lambda: asked, "the languages are asked for again")
    asked.pop().continue_()
    page.until_languages()
    expect(page.language("a")).to_be_enabled()
    page.check(connection_errors=True)
