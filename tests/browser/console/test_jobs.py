"""Jobs: a table of 10,000, filters that are in the address, one job, and its cancellation."""

import re
import time

from playwright.sync_api import expect

from tests.browser.console.crowd import JOBS, LANGUAGES, ODD, Crowd, job_id, session_id
from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.support.raw_node import whoever_gets_it
from tests.support.scene import Scene

FEW = f"{JOBS // ODD:,}"


def test_ten_thousand_jobs_are_paged_searched_and_filtered(
    fleet: ConsoleScheduler, crowd: Crowd, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url, "/jobs")
    total = re.compile(r"of (\d+,\d{3}) jobs")
    expect(page.range).to_have_text(total)
    found = total.search(page.range.inner_text())
    assert found is not None
    assert int(found[1].replace(",", "")) >= JOBS
    page.page.locator("a[rel=next]").click()
    expect(page.range).to_contain_text("51–100 of")

    page.open("/jobs?src=" + LANGUAGES[1])
    expect(page.range).to_have_text(f"1–50 of {JOBS // len(LANGUAGES):,} jobs")
    page.open(f"/jobs?src={LANGUAGES[1]}&state=failed")
    expect(page.range).to_have_text(f"1–50 of {FEW} jobs")
    page.state("cancelled").click()
    expect(page.role("empty")).to_contain_text("Nothing matches these filters.")

    page.open("/jobs?tenant=tenant-1")
    page.field("search").fill(job_id(4321))
    expect(page.rows("Jobs")).to_have_count(1)
    page.field("search").fill(session_id(4321))
    expect(page.rows("Jobs")).to_have_count(10 // 3)
    page.open(f"/jobs?search={job_id(42)}")
    expect(page.rows("Jobs")).to_have_count(1)
    node = page.row(job_id(42)).locator("td[data-name=Node] a")
    expect(page.row(job_id(42))).to_contain_text("×2")
    name = node.inner_text()
    page.field("search").fill(name)
    expect(page.rows("Jobs").locator("td[data-name=Node]").first).to_contain_text(name)
    expect(page.row(job_id(42))).to_be_visible()
    page.check()


def test_an_address_with_filters_shows_the_same_to_somebody_else(
    fleet: ConsoleScheduler, crowd: Crowd, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url, "/jobs")
    page.field("src").fill(LANGUAGES[3])
    expect(page.range).to_have_text(f"1–50 of {JOBS // len(LANGUAGES):,} jobs")
    page.state("cancelled").click()
    expect(page.range).to_have_text(f"1–50 of {FEW} jobs")
    page.page.locator(".time-filter summary").click()
    page.page.get_by_role("button", name="Last hour").click()
    page.until(lambda: "from_ms=" in page.path, "filtered by time")
    page.page.get_by_role("columnheader", name="Created").get_by_role("link").click()
    page.until(lambda: "sort=created" in page.path, "sorted")
    page.page.locator("a[rel=next]").click()
    expect(page.range).to_have_text(f"51–100 of {FEW} jobs")
    other = open_console(fleet.url, page.path)
    expect(other.range).to_have_text(f"51–100 of {FEW} jobs")
    expect(other.field("src")).to_have_value(LANGUAGES[3])
    expect(other.state("cancelled")).to_have_attribute("aria-current", "true")
    assert other.keys("Jobs") == page.keys("Jobs")
    other.check()

    long_ago = int(time.time() * 1000) - 3_600_000
    page.open(f"/jobs?src={LANGUAGES[3]}&to_ms={long_ago}")
    expect(page.role("empty")).to_contain_text("Nothing matches these filters.")
    page.open("/jobs?error=NO_SUCH_REASON", live=False)
    expect(page.role("refused")).to_contain_text("error")
    page.check(connection_errors=True)


def test_a_job_that_failed_tells_where_its_time_went_and_why(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    nodes = [fleet.run(scene.node(name)) for name in "ab"]
    (job,) = fleet.submit(scene, 0)
    first, assign = fleet.run(whoever_gets_it(nodes))
    fleet.run(first.ack(assign))
    fleet.run(first.fail(assign, "BROKEN", "the model ran out of memory", worth_retry=True))
    (second,) = (node for node in nodes if node is not first)
    again = fleet.run(second.take_job())
    page = open_console(fleet.url, f"/jobs/{job}")
    expect(page.page.locator("[data-attempt='2'] [data-step=NODE]")).to_be_visible()
    fleet.run(second.fail(again, "BAD_AUDIO", "no sample is valid", worth_retry=False))

    expect(page.role("failure")).to_be_visible()
    assert len(page.role("failure").locator("p").nth(1).inner_text().split()) > 4
    expect(page.rows("Attempts")).to_have_count(2)
    expect(page.rows("Attempts").first).to_contain_text(first.node_id)
    expect(page.rows("Attempts").first).to_contain_text("the model ran out of memory")
    for attempt in (1, 2):
        steps = page.page.locator(f"[data-attempt='{attempt}'] [data-step]")
        kinds = steps.evaluate_all("(all) => all.map((each) => each.dataset.step)")
        assert {"ALLOCATE", "SEND", "ACK", "NODE"} <= set(kinds)
    page.page.locator("[data-attempt='1'] [data-step=NODE]").hover()
    expect(page.role("tip")).to_contain_text(first.node_id)
    expect(page.page.locator("[data-action=cancel]")).to_have_attribute("aria-disabled", "true")

    reason = page.role("failure").locator(".banner-title").inner_text()
    page.open(f"/jobs?src={scene.src}")
    page.field("error").select_option(index=1)
    expect(page.row(job)).to_contain_text(reason)
    page.row(job).locator("td[data-name=Direction]").click()
    page.expect_path(f"/jobs/{job}")
    page.page.go_back()
    expect(page.rows("Jobs")).to_have_count(1)
    page.check()


def test_a_running_job_is_cancelled(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    node = fleet.run(scene.node())
    (job,) = fleet.submit(scene, 0)
    assign = fleet.run(node.take_job())
    page = open_console(fleet.url, f"/jobs/{job}")
    expect(page.ask("cancel")).to_contain_text(f"{node.node_id} is told to stop")
    page.dismiss()
    expect(page.page.locator(".page-head [data-state=active]")).to_be_visible()
    page.ask("cancel").locator("input[name=why]").fill("a runaway job")
    page.confirm()
    assert "a runaway job" in fleet.run(node.expect_cancel(assign))
    expect(page.page.locator(".page-head [data-state=cancelled]")).to_be_visible()
    page.check()
