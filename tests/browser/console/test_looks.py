"""How the console looks and is used: for everybody, on phones and desktops, and by keyboard."""

import pytest
from playwright.sync_api import expect

from tests.browser.audit import (
    DARK_DESKTOP,
    DARK_PHONE,
    LIGHT_DESKTOP,
    LIGHT_PHONE,
    audit,
)
from tests.browser.console.crowd import Crowd
from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.support.raw_node import whoever_gets_it
from tests.support.scene import Scene

# Few rows: axe takes its time for each, and all are alike.
LISTS = {
    "/": (LIGHT_PHONE, DARK_DESKTOP),
    "/?kind=text": (DARK_PHONE, LIGHT_DESKTOP),
    "/nodes?search=crowd-000": (LIGHT_PHONE, DARK_DESKTOP),
    "/jobs?session=talk-00001": (DARK_PHONE, LIGHT_DESKTOP),
    "/sessions": (LIGHT_DESKTOP, DARK_PHONE),
    "/instances?search=retry": (LIGHT_PHONE, DARK_DESKTOP),
}


@pytest.mark.parametrize("path", LISTS)
def test_axe_finds_no_serious_fault_in_lists(
    fleet: ConsoleScheduler, crowd: Crowd, open_console: OpenConsole, path: str
) -> None:
    page = open_console(fleet.url, path)
    if path.startswith(("/nodes", "/jobs")):
        expect(page.range).to_contain_text("of 10")
    audit(page, *LISTS[path])
    page.check()


def test_axe_finds_no_serious_fault_in_details_and_dialogs(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    nodes = [fleet.run(scene.node(name)) for name in "ab"]
    (job,) = fleet.submit(scene, 0)
    first, assign = fleet.run(whoever_gets_it(nodes))
    fleet.run(first.ack(assign))
    fleet.run(first.fail(assign, "BROKEN", worth_retry=False))
    session = scene.spec().session_id
    page = open_console(fleet.url, f"/jobs/{job}")
    expect(page.role("failure")).to_be_visible()
    page.page.locator("details.more summary").click()
    audit(page, LIGHT_PHONE, DARK_DESKTOP)
    page.open(f"/sessions/{session}")
    expect(page.row("0")).to_be_visible()
    audit(page, DARK_PHONE, LIGHT_DESKTOP)
    page.open(f"/nodes/{first.node_id}")
    expect(page.card("failures")).to_contain_text("Recent failures (1)")
    audit(page, LIGHT_PHONE, DARK_DESKTOP)
    page.ask("remove")
    audit(page, DARK_PHONE, LIGHT_DESKTOP)
    page.dismiss()
    page.open("/jobs/there-is-no-such-job", live=False)
    expect(page.role("gone")).to_be_visible()
    audit(page, DARK_PHONE)
    page.check(connection_errors=True)


def test_the_console_is_used_by_keyboard(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    names = sorted(fleet.run(scene.node(name, slots=2)).node_id for name in "abc")
    page = open_console(fleet.url, "/nodes")
    page.press("/")
    page.page.keyboard.type(scene.src)
    expect(page.rows("Nodes")).to_have_count(3)
    page.press("Escape", "ArrowDown")
    focused = page.page.locator(":focus")
    expect(focused).to_have_text(names[0])
    page.press("ArrowDown", "ArrowDown", "ArrowUp")
    expect(focused).to_have_text(names[1])
    page.press("Enter")
    page.expect_path(f"/nodes/{names[1]}")
    expect(page.title).to_be_focused()

    page.press("?")
    expect(page.dialog).to_contain_text("search")
    page.press("Escape")
    expect(page.dialog).to_have_count(0)
    # The field that finds every id, from a view that has no field of its own.
    page.press("/")
    page.page.keyboard.type(names[2][:-1])
    options = page.page.locator("#matches [role=option]")
    expect(options).to_have_count(3)
    page.press("ArrowDown", "ArrowDown", "Enter")
    page.expect_path(f"/nodes/{names[2]}")

    page.open(f"/?src={scene.src}")
    cell = page.cell(f"{scene.src}:{scene.tgt}")
    expect(cell).to_be_visible()
    page.page.locator(".matrix tbody .cell").first.focus()
    for _ in range(page.page.locator(".matrix thead th").count()):
        if not cell.evaluate("(cell) => cell === document.activeElement"):
            page.press("ArrowRight")
    expect(page.role("tip")).to_contain_text("6 of 6 slots free")
    page.press("Enter")
    page.expect_path(f"/nodes?src={scene.src}&tgt={scene.tgt}")
    expect(page.rows("Nodes")).to_have_count(3)
    page.check()
