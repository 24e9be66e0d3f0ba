"""What goes wrong is said in words, and can be put right."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from tests.browser.audit import DARK_DESKTOP, LIGHT_PHONE, audit
from tests.browser.chromium import Browsers
from tests.browser.opening import OpenPage
from tests.browser.record import violations
from tests.browser.scheduler import TalkScheduler
from tests.robustness.history import Excuses
from tests.security.issuer import ISSUER, Issuer

# Long enough to speak on a busy machine.
TOKEN_S = 12.0


def test_a_denied_microphone_is_explained_and_can_be_allowed_later(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url, microphone=False)
    page.press("a")
    expect(page.alert).to_have_attribute("data-reason", "NO_PERMISSION")
    expect(page.alert).to_contain_text("Allow it for this page")
    page.release()
    expect(page.talk_button("a")).to_have_attribute("aria-pressed", "false")
    expect(page.utterances("a")).to_have_count(0)
    page.context.grant_permissions(["microphone"])
    page.speak("a", 0.5)
    expect(page.alert).to_have_count(0)
    page.until_settled()
    expect(page.utterances("b", "done")).to_have_count(1)
    page.check()


def test_what_is_said_after_the_microphone_was_unplugged_is_shown(
    shared: TalkScheduler, open_page: OpenPage
) -> None:
    page = open_page(shared.url)
    page.page.evaluate("""() => {
      const getUserMedia = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
      navigator.mediaDevices.getUserMedia = async (wanted) => {
        globalThis.heard = await getUserMedia(wanted);
        return globalThis.heard;
      };
    }""")
    page.press("a")
    page.until_sent(1.0)
    page.page.evaluate("globalThis.heard.getTracks()[0].dispatchEvent(new Event('ended'))")
    expect(page.alert).to_have_attribute("data-reason", "DEVICE_LOST")
    page.release()
    for speaker in ("a", "a", "b"):
        page.speak(speaker, 0.5)
        page.until_settled()
    # The other person spoke last, so everything that was sent has a result by then.
    page.until(
        lambda: any(each["direction"]["src"] == "es" for each in page.events("result")),
        "everything has a result",
    )
    results = {each["index"]: each["texts"]["translated"] for each in page.events("result")}
    assert len(results) >= 3
    for side in ("a", "b"):
        expect(page.utterances(side, "done")).to_have_count(len(results))
        for index, words in results.items():
            expect(page.side(side).locator(f"li[data-index='{index}']")).to_contain_text(words)
        # What could not be sent has no index.
        expect(page.utterances(side, "missing")).to_have_count(1)
        assert page.utterances(side, "missing").get_attribute("data-index") is None
    page.check()


@pytest.fixture(scope="module")
def moody(browsers: Browsers, redis_url: str) -> Iterator[TalkScheduler]:
    """A scheduler with one node, which tests may order about."""
    with TalkScheduler(redis_url=redis_url) as made:
        made.add_hearing_nodes()
        made.until_offered("en", "es")
        yield made
        made.check_logs()


def test_what_is_missing_is_shown_as_missing(moody: TalkScheduler, open_page: OpenPage) -> None:
    (node,) = moody.nodes
    page = open_page(moody.url)
    page.speak("a", 0.5)
    page.until_settled()
    node.order(fail=1)
    # The node reads its orders every 50 ms.
    page.page.wait_for_timeout(100)
    page.speak("b", 0.5)
    page.until_settled()
    node.order()
    page.page.wait_for_timeout(100)
    page.speak("a", 0.5)
    page.until_settled()
    for side, words in (("a", "Missing: "), ("b", "Falta: ")):
        states = [each.get_attribute("data-state") for each in page.utterances(side).all()]
        assert states == ["done", "missing", "done"]
        expect(page.utterances(side).nth(1)).to_contain_text(words)
    (missing,) = page.events("missing")
    # Nothing else is lost.
    excused = Excuses(missing=frozenset({missing["reason"]}))
    assert violations(page, moody.nodes, excused) == []
    page.check()


def test_silence_is_shown_as_no_speech(moody: TalkScheduler, open_page: OpenPage) -> None:
    (node,) = moody.nodes
    node.order(deaf=1)
    page = open_page(moody.url)
    page.speak("a", 0.5)
    page.until_settled()
    node.order()
    expect(page.utterances("a", "no-speech")).to_contain_text("No speech heard")
    expect(page.utterances("b", "no-speech")).to_have_count(1)
    page.check()


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """Issues tokens that the scheduler accepts."""
    return Issuer(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def guarded(
    browsers: Browsers, redis_url: str, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TalkScheduler]:
    """A scheduler that wants tokens."""
    settings = {
        "auth": "on",
        "auth_secret_file": str(issuer.secret_file),
        "auth_jwks_file": str(issuer.jwks_file),
        "auth_issuer": ISSUER,
    }
    token: Path = tmp_path_factory.mktemp("node") / "token"
    token.write_text(issuer.token("node", node_id="n0"))
    with TalkScheduler(redis_url=redis_url, **settings) as made:
        made.add_hearing_nodes(token=str(token))
        made.until_offered("en", "es", token=issuer.token("client"))
        yield made
        made.check_logs()


def test_a_token_is_asked_for_and_checked(
    guarded: TalkScheduler, issuer: Issuer, open_page: OpenPage
) -> None:
    page = open_page(guarded.url, ready=False)
    dialog = page.page.locator("dialog[data-role=token]")
    expect(dialog).to_be_visible()
    enter, use = dialog.locator("input[name=token]"), dialog.locator("[data-action=use-token]")
    enter.fill(issuer.token("client", exp=1))
    use.click()
    expect(dialog).to_contain_text("not valid, or it has expired")
    audit(page, LIGHT_PHONE, DARK_DESKTOP)
    enter.fill(issuer.token("client"))
    use.click()
    expect(dialog).not_to_be_visible()
    page.until_languages()
    page.speak("a", 0.5)
    page.until_settled()
    expect(page.utterances("b", "done")).to_have_count(1)
    # Another load of the same tab knows it.
    page.page.reload()
    page.until_languages()
    expect(dialog).not_to_be_visible()
    page.check(connection_errors=True)


def test_a_link_with_a_token_works_in_a_tab_that_has_the_page_already(
    guarded: TalkScheduler, issuer: Issuer, open_page: OpenPage
) -> None:
    page = open_page(guarded.url, ready=False)
    dialog = page.page.locator("dialog[data-role=token]")
    expect(dialog).to_be_visible()
    page.page.goto(f"{guarded.url}/#token={issuer.token('client')}")
    expect(dialog).not_to_be_visible()
    page.until_languages()
    assert "token" not in page.page.url
    page.check(connection_errors=True)


def test_a_token_expires_and_is_renewed_and_no_word_is_lost(
    guarded: TalkScheduler, issuer: Issuer, open_page: OpenPage
) -> None:
    page = open_page(guarded.url, fragment=f"#token={issuer.token('client')}x", ready=False)
    # It is removed from the address, and this one is refused.
    dialog = page.page.locator("dialog[data-role=token]")
    expect(dialog).to_be_visible()
    assert "token" not in page.page.url
    short = issuer.token("client", exp=time.time() + TOKEN_S - LEEWAY_S)
    dialog.locator("input[name=token]").fill(short)
    dialog.locator("[data-action=use-token]").click()
    page.until_languages()
    page.speak("a", 0.5)
    page.until_settled()
    page.press("a")
    expect(dialog).to_be_visible()
    page.release()
    dialog.locator("input[name=token]").fill(issuer.token("client"))
    dialog.locator("[data-action=use-token]").click()
    page.expect_connection("connected")
    page.speak("b", 0.5)
    page.until_settled()
    assert violations(page, guarded.nodes) == []
    assert len(page.wire.sessions) == 1
    assert not [each for each in page.requests if "eyJ" in each], "a token is in an address"
    page.check(connection_errors=True)
