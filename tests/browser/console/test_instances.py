"""Instances and settings: every process, what differs, and what is down."""

from playwright.sync_api import expect

from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ODD_RETRIES, ConsoleScheduler


def test_all_processes_are_listed_and_differences_are_marked(
    fleet: ConsoleScheduler, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url, "/instances")
    for name in ("pool-1", "dispatcher-1", "dispatcher-2", "gateway-1", "console-1"):
        expect(page.row(name)).to_contain_text("Serving")
    setting = page.page.locator("[data-setting=max_retry]")
    expect(setting).to_have_attribute("data-differs", "true")
    odd = setting.locator(".setting-values > li", has_text="dispatcher-2")
    expect(odd.locator("code")).to_have_text(str(ODD_RETRIES))
    same = page.page.locator("[data-setting=job_timeout_ms]")
    expect(same).to_have_attribute("data-differs", "false")
    page.page.locator("[data-action=differences]").click()
    expect(same).to_have_count(0)
    expect(setting).to_be_visible()
    page.page.locator("[data-action=differences]").click()
    page.field("search").fill("max_retry")
    expect(page.page.locator("[data-setting]")).to_have_count(1)
    page.check()


def test_a_gateway_and_a_dispatcher_that_are_killed_are_down(
    fleet: ConsoleScheduler, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url)
    killed = [
        fleet.add_gateway(instance_id="gateway-9"),
        fleet.add_dispatcher(instance_id="dispatcher-8"),
    ]
    page.go("instances")
    for name in ("gateway-9", "dispatcher-8"):
        expect(page.row(name)).to_contain_text("Serving")
    page.go("overview")
    expect(page.role("down")).to_have_count(0)
    for each in killed:
        each.kill()
    expect(page.role("down")).to_contain_text("2 instances are down")
    expect(page.role("down")).to_contain_text("gateway-9")
    expect(page.role("down")).to_contain_text("dispatcher-8")
    page.role("down").get_by_role("link").click()
    for name in ("gateway-9", "dispatcher-8"):
        expect(page.row(name)).to_contain_text("Down")
    for each in killed:
        each.start()
        each.wait_ready()
    page.go("overview")
    expect(page.role("down")).to_have_count(0)
    for each in killed:
        # It signs off, so that other tests find nothing down.
        each.terminate()
        each.wait_end()
    page.check()


def test_a_lost_console_is_shown_and_healed(
    fleet: ConsoleScheduler, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url)
    shown = page.figure("free").inner_text()
    fleet.console.kill()
    expect(page.role("lost")).to_contain_text("Connection lost")
    page.expect_connection("lost")
    expect(page.figure("free")).to_have_text(shown)
    fleet.console.start()
    fleet.console.wait_ready()
    page.expect_connection("live")
    expect(page.role("lost")).to_have_count(0)
    expect(page.figure("free")).to_have_text(shown)
    page.check(connection_errors=True)
