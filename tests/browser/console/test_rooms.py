"""Rooms: who speaks and listens, which language waits, and how a room is closed."""

import json
import urllib.request

from playwright.sync_api import expect

from lingua_scheduler.sdk import Room
from tests.browser.audit import DARK_DESKTOP, DARK_PHONE, LIGHT_DESKTOP, LIGHT_PHONE, audit
from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.integration.console.test_rooms import speaker
from tests.support.audio import speech
from tests.support.scene import Scene

HEARD = "Zeppelins dazzle quaint foxgloves"


def test_a_room_is_watched_and_closed_without_a_word_of_what_was_said(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    gateway = fleet.gateway.address
    room = fleet.run(Room.create(gateway, name="Town hall", tenant="acme"))
    token = fleet.run(room.join_token("listener"))
    page = open_console(fleet.url, "/rooms")
    expect(page.row(room.room_id)).to_contain_text("Town hall")
    node, client = fleet.run(scene.node()), fleet.client()
    guest = Room(gateway, room_id=room.room_id, token=token)
    listener = fleet.enter(guest.listen(language=scene.tgt, name="Luis", speech=True))
    opened = fleet.run(client.open(speaker(room, scene.src)))

    page.field("search").fill("town HALL")
    expect(page.rows("Rooms")).to_have_count(1)
    expect(page.row(room.room_id)).to_contain_text(scene.tgt)
    audit(page, LIGHT_PHONE, DARK_DESKTOP)
    page.row(room.room_id).locator("a").first.click()
    page.expect_path(f"/rooms/{room.room_id}")
    expect(page.card("speakers")).to_contain_text("Ana")
    expect(page.rows("Members")).to_have_count(2)
    lane = page.card("languages").locator("tbody tr")
    expect(lane).to_have_count(1)

    fleet.run(client.send(speech(1), final=True))
    assign = fleet.run(node.take_job())
    expect(lane.locator("td[data-name=Waiting]")).to_have_text("1")
    expect(lane.locator("td[data-name=Lag]")).to_contain_text("s")
    fleet.run(node.result(assign, HEARD))
    assert fleet.run(anext(aiter(listener))).text == HEARD
    expect(lane.locator("td[data-name=Waiting]")).to_have_text("0")
    audit(page, DARK_PHONE, LIGHT_DESKTOP)

    everything = page.page.content() + json.dumps(page.heard())
    for path in ("rooms", f"rooms/{room.room_id}", f"sessions/{opened.session_id}"):
        with urllib.request.urlopen(f"{fleet.url}/api/v1/{path}") as answer:
            everything += answer.read().decode()
    for word in HEARD.split():
        assert word.lower() not in everything.lower()
    assert room.host_token not in everything
    assert token not in everything

    # From the speaker's session and back.
    page.card("speakers").locator("a").first.click()
    page.expect_path(f"/sessions/{opened.session_id}")
    page.card("facts").get_by_role("link", name=room.room_id).click()
    page.expect_path(f"/rooms/{room.room_id}")

    page.ask("close")
    expect(page.dialog).to_contain_text("1 speaker and 1 listener")
    page.dismiss()
    expect(page.card("speakers")).to_contain_text("Ana")
    page.act("close")
    expect(page.role("gone")).to_contain_text("closed")
    fleet.run(client.error("ROOM_CLOSED"))
    page.check(connection_errors=True)
