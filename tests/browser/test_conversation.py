"""Two people talk: what they say, see and hear."""

import json
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Browsers
from tests.browser.opening import OpenPage
from tests.browser.record import violations
from tests.browser.scheduler import TalkScheduler
from tests.browser.sounds import GOOD_MORNING, SENTENCES
from tests.support.process import CommandProcess

PHRASES = [{"hertz": 150, "seconds": 1.5, "texts": {"en": "Good morning!", "es": "¡Buenos días!"}}]


@pytest.fixture(scope="module")
def sample_url(
    browsers: Browsers, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The page of a scheduler with sample nodes, which know what a tone stands for."""
    phrases = tmp_path_factory.mktemp("phrases") / "phrases.json"
    phrases.write_text(json.dumps(PHRASES))
    with TalkScheduler(redis_url=redis_url) as scheduler:
        command = [sys.executable, "-m", "lingua_scheduler.cli", "sample-node", "--langs", "en,es"]
        to = ["--dispatcher", scheduler.dispatchers[0].address, "--phrases", phrases]
        with CommandProcess("sample-node", [*command, *to, "--id", "amber"]):
            scheduler.until_offered("en", "es")
            yield scheduler.url
        scheduler.check_logs()


def test_two_people_talk_over_the_sample_nodes(sample_url: str, open_page: OpenPage) -> None:
    page = open_page(sample_url, sound=GOOD_MORNING)
    page.choose("en", "es")
    for turn, (side, said, heard) in enumerate(
        [("a", "Good morning!", "¡Buenos días!"), ("b", "¡Buenos días!", "Good morning!")]
    ):
        page.speak(side, 1.8)
        page.until_settled()
        for shown in (page.utterances("a"), page.utterances("b")):
            expect(shown).to_have_count(turn + 1)
            utterance = shown.nth(turn)
            expect(utterance).to_have_attribute("data-state", "done")
            expect(utterance).to_have_attribute("data-index", str(turn))
            expect(utterance.locator("[data-role=source]")).to_have_text(said)
            expect(utterance.locator("[data-role=translated]")).to_have_text(heard)
        source, translated = ("en", "es") if side == "a" else ("es", "en")
        last = page.utterances(side).last
        expect(last.locator("[data-role=source]")).to_have_attribute("lang", source)
        expect(last.locator("[data-role=translated]")).to_have_attribute("lang", translated)
        # The speech of the sample nodes is what was said.
        assert page.events("result")[turn]["speechBytes"] > 1.5 * 32_000
        page.until(lambda turn=turn: page.wire.playbacks == turn + 1, "the translation is played")
    page.check()


def test_no_word_is_lost_in_a_conversation(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url)
    page.choose("es", "en")
    for side in ("a", "b", "b", "a"):
        page.speak(side, 0.6)
    page.until_settled()
    assert violations(page, shared.nodes) == []
    assert {each["direction"]["src"] for each in page.events("result")} == {"en", "es"}
    assert [each["index"] for each in page.events("result")] == [0, 1, 2, 3]
    assert page.wire.connections == 1
    page.check()


def test_a_lost_block_would_be_noticed(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url)
    # Empties the chunk with the sequence number 20.
    page.page.evaluate("""() => {
      const send = WebSocket.prototype.send;
      WebSocket.prototype.send = function (data) {
        const isChunk = typeof data !== "string" && new Uint8Array(data)[11] === 20;
        send.call(this, isChunk ? data.slice(0, 20) : data);
      };
    }""")
    page.speak("a", 0.8)
    page.until_settled()
    assert {each.rule for each in violations(page, shared.nodes)} == {"no word is lost or repeated"}


def test_words_appear_while_the_translation_is_made(redis_url: str, open_page: OpenPage) -> None:
    with TalkScheduler(redis_url=redis_url) as scheduler:
        (node,) = scheduler.add_hearing_nodes()
        scheduler.until_offered("en", "es")
        node.order(work_ms=4000)
        page = open_page(scheduler.url)
        page.press("a")
        expect(page.utterances("a", "speaking")).to_have_count(1)
        expect(page.talk_button("a")).to_have_attribute("aria-pressed", "true")
        page.until_sent(0.5)
        page.release()
        expect(page.talk_button("a")).to_have_attribute("aria-pressed", "false")
        waiting = page.utterances("b", "waiting")
        expect(waiting.locator("[data-role=source]")).to_contain_text("ms of en")
        expect(page.utterances("b", "done")).to_have_count(1)
        page.check()


def test_a_translation_is_replayed_by_a_tap(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url)
    page.speak("a", 0.5)
    page.until_settled()
    page.until(lambda: page.wire.playbacks == 1, "the translation is played")
    replay = page.utterances("a").locator("button[data-action=replay]")
    for times in (2, 3):
        # While it is played, the same button stops it.
        expect(replay).to_have_attribute("aria-label", "Play again")
        replay.click()
        page.until(lambda times=times: page.wire.playbacks == times, "it is played again")
    page.check()


def test_facts_are_shown_on_demand(shared: TalkScheduler, open_page: OpenPage) -> None:
    page = open_page(shared.url)
    page.speak("a", 0.5)
    page.until_settled()
    (result,) = page.events("result")
    facts = page.utterances("a").locator("details[data-role=facts]")
    expect(facts).not_to_contain_text(result["nodeId"])
    facts.locator("summary").click()
    expect(facts).to_contain_text(result["nodeId"])
    expect(facts).to_contain_text("Speech")
    expect(facts).to_contain_text("Finding a translator")
    page.check()


def test_hands_free_hears_one_sentence_after_the_other(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url, sound=SENTENCES)
    page.page.locator("button[data-action=hands-free]").click()
    page.talk_button("a").click()
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "true")
    page.until_events(2, "result")
    # The other half takes over by a tap.
    page.talk_button("b").click()
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "false")
    page.until(
        lambda: any(each["direction"]["src"] == "es" for each in page.events("result")),
        "the other half is heard",
    )
    page.talk_button("b").click()
    expect(page.talk_button("b")).to_have_attribute("aria-pressed", "false")
    page.until_settled()
    sent = page.sent_samples()
    # Longer than from one sentence to the next: nobody listens any more.
    page.page.wait_for_timeout(3500)
    assert page.sent_samples() == sent
    assert not page.events("missing")
    page.check()


@pytest.mark.long
def test_nobody_is_cut_off_because_the_page_was_idle(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    """The session ends after five minutes, here two seconds, but not while somebody speaks."""
    page = open_page(shared.url, ready=False)
    page.page.add_init_script(
        "const later = setTimeout;"
        "globalThis.setTimeout = (f, ms, ...more) => later(f, ms === 300000 ? 2000 : ms, ...more);"
    )
    page.page.reload()
    page.until_languages()
    page.speak("a", 0.5)
    page.until_settled()
    page.press("a")
    page.until_sent(4.0)
    page.release()
    page.until_settled()
    expect(page.utterances("b", "done")).to_have_count(2)
    assert violations(page, shared.nodes) == []
    page.expect_connection("idle")
    page.check()
