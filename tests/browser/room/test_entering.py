"""How people come into a room: by making it, by a link, and again after a reload."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.audit import DARK_PHONE, LIGHT_DESKTOP, audit
from tests.browser.chromium import Browsers
from tests.browser.opening import DESKTOP, OpenPage
from tests.browser.room_page import RoomPage
from tests.browser.scheduler import TalkScheduler
from tests.security.issuer import ISSUER, Issuer

# Of a room, or of a client.
TOKEN = re.compile(r"room\.[0-9a-f]{8}|eyJ|token=")


def say(host: RoomPage) -> None:
    """The host says something, and all have it."""
    before = host.receipts().count()
    host.speak(0.4)
    expect(host.receipts()).to_have_count(before + 1)


@pytest.mark.long
def test_members_stay_when_they_load_the_page_again_until_the_room_is_closed(
    scheduler: TalkScheduler, open_page: OpenPage
) -> None:
    host = open_page.room(scheduler.url)
    audit(host, DARK_PHONE, LIGHT_DESKTOP)
    # On a phone, the code for others lies over the button at first.
    host.page.set_viewport_size(DESKTOP)
    host.make(language="en", name="Ana", room="Guided tour")
    link = host.link("listener")
    listener = open_page.room(scheduler.url, link)
    expect(listener.view("lobby")).to_contain_text("Join Guided tour")
    expect(listener.view("lobby")).to_contain_text("Ana")
    audit(listener, DARK_PHONE, LIGHT_DESKTOP)
    listener.enter(language="es")
    say(host)
    expect(listener.lines("said")).to_have_count(1)
    # Neither the address nor anything that was requested has a token.
    for page in (host, listener):
        assert "token" not in page.page.url
        assert not [each for each in page.requests if TOKEN.search(each)]
        page.page.reload()
        expect(page.view("inside")).to_be_visible()
        page.expect_connection("connected")
    expect(listener.lines("said")).to_have_count(1)
    say(host)
    expect(listener.lines("said")).to_have_count(2)
    audit(host, DARK_PHONE, LIGHT_DESKTOP)
    audit(listener, DARK_PHONE, LIGHT_DESKTOP)
    host.page.locator("[data-action=panel]").click()
    audit(host, DARK_PHONE)
    host.page.locator("[data-action=close-room]").click()
    host.page.locator("[data-action=confirm-close]").click()
    for page in (host, listener):
        expect(page.page.locator("[data-role=closed]")).to_contain_text("The room was closed")
    late = open_page.room(scheduler.url, link)
    expect(late.page.locator("[data-refusal]")).to_contain_text("You cannot join this room")
    for page in (host, listener):
        page.check()
    late.check(connection_errors=True)


@pytest.mark.parametrize(
    ("fragment", "refusal", "words"),
    [
        ("#room=nowhere", "NO_TOKEN", "The link is incomplete"),
        (
            f"#room=nowhere&token=room.nowhere.l.9999999999.abc.{'x' * 43}",
            # Nobody is told which rooms there are.
            "PERMISSION_DENIED",
            "not valid",
        ),
    ],
)
def test_a_link_that_leads_nowhere_is_explained(
    scheduler: TalkScheduler, open_page: OpenPage, fragment: str, refusal: str, words: str
) -> None:
    page = open_page.room(scheduler.url, fragment)
    refused = page.page.locator("[data-refusal]")
    expect(refused).to_have_attribute("data-refusal", refusal)
    expect(refused).to_contain_text(words)
    audit(page, DARK_PHONE)
    page.page.locator("[data-action=to-start]").click()
    expect(page.view("start")).to_be_visible()
    page.check(connection_errors=True)


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


def test_guests_need_nothing_but_the_link(
    guarded: TalkScheduler, issuer: Issuer, open_page: OpenPage
) -> None:
    """Making a room needs a token of a client. A link brings in everybody else."""
    host = open_page.room(guarded.url, f"#token={issuer.token('client')}")
    host.make(language="en", name="Ana")
    listener = open_page.room(guarded.url, host.link("listener"))
    listener.enter(language="es")
    guest = open_page.room(guarded.url, host.link("speaker"))
    guest.enter(language="es", speak=True, name="Ben")
    say(host)
    say(guest)
    expect(listener.lines("said")).to_have_count(2)
    assert listener.heard() == [0, 1]
    for page in (host, listener, guest):
        assert not [each for each in page.requests if TOKEN.search(each)]
        page.check()
    stranger = open_page.room(guarded.url)
    expect(stranger.page.locator("dialog[data-role=token]")).to_be_visible()
