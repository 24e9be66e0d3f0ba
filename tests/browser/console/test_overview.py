"""The overview: numbers, the matrix, shortages, instances that are down, and that it is live."""

from playwright.sync_api import expect

from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.support.scene import Scene


def test_numbers_and_matrix_follow_the_fleet_without_a_reload(
    fleet: ConsoleScheduler, scene: Scene, open_console: OpenConsole
) -> None:
    page = open_console(fleet.url)
    expect(page.title).to_have_text("Overview")
    direction = f"{scene.src}:{scene.tgt}"
    expect(page.cell(direction)).to_have_count(0)
    before = int(page.figure("free").inner_text().replace(",", ""))
    node = fleet.run(scene.node(slots=4))
    expect(page.cell(direction)).to_have_text("4/4")
    expect(page.figure("free")).to_have_text(f"{before + 4:,}")
    expect(page.card("shortages")).to_contain_text("No direction is short of slots.")
    fleet.submit(scene, 0, 1, 2)
    assigned = [fleet.run(node.take_job()) for _ in range(3)]
    expect(page.cell(direction)).to_have_text("1/4")
    expect(page.card("shortages")).to_contain_text("1 of 4 free")
    for each in assigned:
        fleet.run(node.result(each))
    expect(page.cell(direction)).to_have_text("4/4")
    expect(page.card("shortages")).to_contain_text("No direction is short of slots.")
    page.cell(direction).click()
    page.expect_path(f"/nodes?src={scene.src}&tgt={scene.tgt}")
    expect(page.row(node.node_id)).to_be_visible()
    page.check()
