"""Nodes: a table of 2,000, one node, and a drain that takes time."""

from playwright.sync_api import expect

from tests.browser.console.crowd import LANGUAGES, NODES, Crowd, node_id
from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.support.scene import Scene


def test_two_thousand_nodes_are_paged_searched_filtered_and_sorted(
    fleet: ConsoleScheduler, crowd: Crowd, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url, "/nodes?search=crowd-")
    expect(page.range).to_have_text(f"1–50 of {NODES:,} nodes")
    assert page.keys("Nodes") == [node_id(number) for number in range(50)]
    page.page.locator("a[rel=next]").click()
    expect(page.range).to_have_text(f"51–100 of {NODES:,} nodes")
    assert page.keys("Nodes")[0] == node_id(50)
    page.expect_path("/nodes?search=crowd-&page=2")
    page.page.go_back()
    expect(page.range).to_have_text(f"1–50 of {NODES:,} nodes")

    page.field("search").fill("crowd-12")
    expect(page.range).to_have_text("1–50 of 100 nodes")
    page.field("search").fill("crowd-1234")
    expect(page.range).to_have_text("1–1 of 1 nodes")
    expect(page.row(node_id(1234))).to_contain_text("Ready")

    page.open(f"/nodes?search=crowd-&src={LANGUAGES[2]}")
    expect(page.range).to_have_text(f"1–50 of {NODES // len(LANGUAGES)} nodes")
    page.page.get_by_role("columnheader", name="Slots used").get_by_role("link").click()
    page.expect_path(f"/nodes?search=crowd-&src={LANGUAGES[2]}&sort=used&desc=1")
    page.open("/nodes?search=crowd-")
    page.page.get_by_role("columnheader", name="Node").get_by_role("link").click()
    expect(page.rows("Nodes").first).to_contain_text(node_id(NODES - 1))
    page.field("search").fill("nobody-has-this-name")
    expect(page.role("empty")).to_contain_text("Nothing matches these filters.")
    page.role("empty").get_by_role("link").click()
    page.expect_path("/nodes")
    page.check()


def test_nodes_are_filtered_by_health_as_it_changes(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    stays, leaves = (fleet.run(scene.node(name)) for name in "ab")
    page = open_console(fleet.url, f"/nodes?src={scene.src}&health=ready")
    expect(page.rows("Nodes")).to_have_count(2)
    fleet.run(leaves.cut())
    expect(page.rows("Nodes")).to_have_count(1)
    expect(page.row(stays.node_id)).to_be_visible()
    page.state("offline").click()
    expect(page.row(leaves.node_id)).to_contain_text("Offline")
    expect(page.rows("Nodes")).to_have_count(1)
    page.check()


def test_a_node_is_drained_until_it_is_empty_then_ready_then_removed(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    node = fleet.run(scene.node(slots=3))
    fleet.submit(scene, 0, 1)
    first, second = (fleet.run(node.take_job()) for _ in range(2))
    page = open_console(fleet.url, f"/nodes/{node.node_id}")
    expect(page.card("leases")).to_contain_text("Running jobs (2)")
    expect(page.card("capabilities")).to_contain_text(scene.src)

    expect(page.ask("drain")).to_contain_text("It finishes the 2 jobs that it has.")
    page.dismiss()
    page.ask("drain")
    page.press("Escape")
    expect(page.dialog).to_have_count(0)
    assert fleet.run(node.settled()) == []
    expect(page.role("drain")).to_have_count(0)
    assert not [each for each in page.requests if each.endswith("/drain")]

    page.act("drain")
    expect(page.role("notice")).to_contain_text("it gets no new jobs")
    expect(page.role("drain")).to_contain_text("Draining: 2 jobs left. None has finished yet.")
    fleet.run(node.result(first))
    expect(page.role("drain")).to_contain_text("Draining: 1 job left. 1 of 2 finished.")
    expect(page.page.locator("progress")).to_have_attribute("value", "1")
    fleet.run(node.result(second))
    expect(page.role("drain")).to_contain_text("Drained: it is empty.")
    expect(page.card("leases")).to_contain_text("Running jobs (0)")

    expect(page.ask("ready")).to_contain_text("The node gets new jobs again")
    page.confirm()
    expect(page.role("drain")).to_have_count(0)
    (job,) = fleet.submit(scene, 2)
    assert fleet.run(node.take_job()).attempt.job_id == job

    fleet.run(node.cut())
    expect(page.page.locator(".page-head [data-state=offline]")).to_be_visible()
    expect(page.ask("remove")).to_contain_text("taken out of all pools and forgotten")
    page.confirm()
    expect(page.role("gone")).to_contain_text(f"There is no node {node.node_id}.")
    page.expect_connection("ended")
    expect(page.role("lost")).to_have_count(0)
    page.check(connection_errors=True)
