"""Pictures of the console and of `lingua top`, for the documentation.

    python -m tests.browser.console.pictures docs/pictures

Services, console and browser are real; the nodes are simulated, or do what a script says.
"""

import io
import json
import re
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import ViewportSize, expect, sync_playwright
from rich.console import Console

from lingua_scheduler.cli.views.overview import WIDTH, overview_view
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.browser.chromium import Browsers
from tests.browser.console import lively
from tests.browser.console.opening import OpenConsole
from tests.browser.console.scheduler import ConsoleScheduler
from tests.browser.console_page import ConsolePage
from tests.browser.opening import PHONE
from tests.support.raw_node import RawNode
from tests.support.scene import Scene
from tests.support.services import addresses

WIDE: ViewportSize = {"width": 1280, "height": 900}
# A point each half second instead of each 5 s: a minute fills the charts.
POINT_S = 0.5
LIVELY_S = 75.0
SETTINGS: dict[str, str | int] = {"pause_ms": 400, "eject_ms": 300_000}


def take(page: ConsolePage, path: Path, size: ViewportSize) -> None:
    """Writes a picture of the page as it is."""
    page.page.set_viewport_size(size)
    page.page.evaluate("document.activeElement?.blur()")
    page.page.mouse.move(1, 1)
    # Charts follow the width.
    page.page.wait_for_timeout(500)
    page.page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


class Pictures:
    """Takes them one after the other.

    Args:
        scheduler: with simulated nodes, and people who talk.
        opens: opens consoles.
        folder: of the pictures.
    """

    def __init__(self, scheduler: ConsoleScheduler, opens: OpenConsole, folder: Path) -> None:
        self._scheduler = scheduler
        self._opens = opens
        self._folder = folder

    def job(self) -> None:
        """A job that was tried twice."""
        nodes = [self._node(f"rome-l4-{at}", ("it", "el"), 2) for at in range(2)]
        gateway = self._scheduler.gateway.address
        job = self._scheduler.run(lively.retried_job(gateway, nodes, "it", "el"))
        page = self._opens(self._scheduler.url, f"/jobs/{job}")
        expect(page.page.locator("[data-attempt='2'] [data-step=STAGE]")).to_have_count(3)
        take(page, self._folder / "console-job.png", WIDE)

    def node(self) -> None:
        """A node that drains."""
        node = self._node("kyiv-h100-0", ("uk", "pl"), 8)
        scene = self._scheduler.scene()
        scene.src, scene.tgt = "uk", "pl"
        running = self._jobs(scene, node, range(6))
        page = self._opens(self._scheduler.url, f"/nodes/{node.node_id}")
        for each in running[:2]:
            self._scheduler.run(lively.translated(node, each, 1500))
        running = [*running[2:], *self._jobs(scene, node, range(6, 9))]
        page.page.wait_for_timeout(8000)
        page.act("drain")
        expect(page.role("drain")).to_contain_text("7 jobs left")
        for each in running[:3]:
            self._scheduler.run(lively.translated(node, each, 1200))
        expect(page.role("drain")).to_contain_text("4 jobs left")
        page.page.wait_for_timeout(3000)
        take(page, self._folder / "console-node.png", WIDE)
        page.act("ready")

    def session(self) -> None:
        """A conversation."""
        node = self._node("porto-l4-0", ("pt", "nl"), 2)
        client = self._scheduler.client()
        # Others speak Portuguese, too, but not Dutch.
        session = self._scheduler.run(lively.conversation(client, node, "nl", "pt"))
        page = self._opens(self._scheduler.url, f"/sessions/{session}")
        expect(page.page.locator(".mark.spoken")).to_have_count(8)
        take(page, self._folder / "console-session.png", WIDE)

    def room(self) -> None:
        """A room with listeners in six languages."""
        room = self._scheduler.run(lively.town_hall(self._scheduler.gateway.address))
        page = self._opens(self._scheduler.url, f"/rooms/{room}")
        expect(page.card("languages").locator("tbody tr")).to_have_count(len(lively.LISTENERS))
        page.page.wait_for_timeout(8000)
        take(page, self._folder / "console-room.png", WIDE)

    def overview(self) -> None:
        """The overview, by day and by night."""
        page = self._opens(self._scheduler.url)
        page.page.wait_for_timeout(500)
        take(page, self._folder / "console-overview.png", WIDE)
        page = self._opens(
            self._scheduler.url, viewport=PHONE, device_scale_factor=1.5, color_scheme="dark"
        )
        take(page, self._folder / "console-overview-dark-phone.png", PHONE)

    def top(self) -> None:
        """The same numbers in a terminal."""
        with urllib.request.urlopen(f"{self._scheduler.url}/api/v1/overview") as answer:
            document: dict[str, Any] = json.load(answer)
        console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
        now_ms = time.time_ns() // 1_000_000
        console.print(overview_view(document, now_ms=now_ms, sparklines=True))
        svg = console.export_svg(title="lingua top", unique_id="lingua-top")
        path = self._folder / "top.svg"
        # Fonts would come from another host.
        path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")

    def leave_some(self) -> None:
        """One node drains, and one goes offline."""
        gone = self._node("lagos-t4-0", ("en", "es"), 2)
        self._scheduler.run(gone.cut())
        page = self._opens(self._scheduler.url, "/nodes/madrid-l4-3")
        page.act("drain")

    def _node(self, name: str, langs: tuple[str, ...], slots: int) -> RawNode:
        address = self._scheduler.dispatchers[0].address
        hello = lively.hello(name, langs, slots)
        node = self._scheduler.background.call(lambda: RawNode(address, hello))
        self._scheduler.run(node.open())
        return node

    def _jobs(self, scene: Scene, node: RawNode, indexes: range) -> list[Any]:
        self._scheduler.submit(scene, *indexes)
        return [self._scheduler.run(node.take_job()) for _ in indexes]


def main(folder: Path) -> None:
    """Brings everything up, and takes the pictures."""
    modules = ("services.sources", "documents.overview", "documents.nodes")
    limits = {f"{module}.INTERVAL_S": POINT_S for module in modules}
    with (
        tempfile.TemporaryDirectory() as data,
        EmbeddedRedis(data_dir=Path(data)) as redis,
        ConsoleScheduler(
            redis_url=redis.url, console={"limits": limits, "log_level": "warning"}, **SETTINGS
        ) as scheduler,
        sync_playwright() as playwright,
        Browsers(playwright) as browsers,
    ):
        began = time.monotonic()
        tasks = scheduler.run(lively.simulated(addresses(scheduler.dispatchers)))
        scheduler.background.start(lively.talk(scheduler.gateway.address))
        opens = OpenConsole(browsers)
        pictures = Pictures(scheduler, opens, folder)
        pictures.leave_some()
        pictures.session()
        pictures.job()
        pictures.node()
        time.sleep(max(0.0, began + LIVELY_S - time.monotonic()))
        pictures.overview()
        pictures.top()
        pictures.room()
        opens.close()
        scheduler.run(lively.stop(tasks))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
