"""Sessions: a conversation as a timeline, without a word of what was said."""

import json
import urllib.request

from playwright.sync_api import expect

from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.support.audio import speech
from tests.support.raw_client import new_session
from tests.support.scene import Scene

HEARD = "Xylophones tremble beneath viaducts"


def test_a_conversation_is_a_timeline_without_what_was_said(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    node, client = fleet.run(scene.node()), fleet.client()
    opened = fleet.run(client.open(new_session(scene.src, scene.tgt, tenant="acme")))
    session = opened.session_id
    page = open_console(fleet.url, "/sessions")
    expect(page.row(session)).to_contain_text("Connected")
    page.field("search").fill(session)
    expect(page.rows("Sessions")).to_have_count(1)
    page.row(session).locator("a").first.click()
    page.expect_path(f"/sessions/{session}")
    expect(page.page.locator("main")).to_contain_text("No utterance yet.")

    # A pause cuts the first, and the node holds it; the second one joins it.
    fleet.run(client.send(speech(1)))
    fleet.run(node.held(fleet.run(node.take_job())))
    fleet.run(client.result(0))
    expect(page.row("0")).to_contain_text("Held")
    expect(page.card("turns")).to_contain_text("Holds audio")
    fleet.run(client.send(speech(2), final=True))
    assign = fleet.run(node.take_job())
    fleet.run(node.partial(assign, HEARD))
    fleet.run(node.result(assign, HEARD))
    assert fleet.run(client.result(1)).texts.translated == HEARD
    # The third one gets no result.
    fleet.run(client.send(speech(3), final=True))
    third = fleet.run(node.take_job())
    expect(page.row("2")).to_contain_text("Waiting")
    fleet.run(node.fail(third, "BAD_AUDIO", worth_retry=False))
    fleet.run(client.missing(2))

    expect(page.row("0")).to_contain_text("into #1")
    expect(page.row("0")).to_contain_text("Pause")
    expect(page.row("1")).to_contain_text("contains #0")
    expect(page.row("1")).to_contain_text("Translated")
    expect(page.row("1").locator("td[data-name=Latency]")).to_contain_text("s")
    expect(page.row("2")).to_contain_text("Missing")
    for index in range(3):
        expect(page.page.locator(f".mark.spoken[data-utterance='{index}']")).to_be_visible()
    expect(page.page.locator("path.join")).to_have_count(1)
    # Marks lie on each other if all was said quickly: the pointer may not get to this one.
    page.page.locator(".mark.spoken[data-utterance='1']").focus()
    expect(page.role("tip")).to_contain_text(node.node_id)
    documents = [f"sessions/{session}", f"jobs/{assign.attempt.job_id}", f"nodes/{node.node_id}"]
    everything = page.page.content() + json.dumps(page.heard())
    page.row("1").locator("a").first.click()
    page.expect_path(f"/jobs/{assign.attempt.job_id}")
    expect(page.rows("Attempts")).to_have_count(1)
    everything += page.page.content() + json.dumps(page.heard())
    for path in (*documents, "overview", "nodes", "jobs", "sessions", "instances"):
        with urllib.request.urlopen(f"{fleet.url}/api/v1/{path}") as answer:
            everything += answer.read().decode()
    assert assign.attempt.job_id in everything
    for word in HEARD.split():
        assert word.lower() not in everything.lower()
    page.check()
