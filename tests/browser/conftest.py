"""Fixtures for tests in a browser: the browser, a scheduler, and the talk page.

Without Playwright the tests are skipped, so nothing here imports it before a test needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.scheduler import TalkScheduler

if TYPE_CHECKING:
    from tests.browser.chromium import Browsers
    from tests.browser.opening import OpenPage

NEEDED = ("playwright", "axe_playwright_python")


class _Skipped(pytest.Module):
    """A module whose imports are not installed."""

    def collect(self) -> list[pytest.Item]:
        """Skips it."""
        what = " and ".join(each.replace("_", "-") for each in NEEDED)
        pytest.skip(f"needs {what}: make .venv/.ready, or pip install", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> _Skipped | None:
    """Skips all modules of this folder if something is not installed."""
    if all(find_spec(each) for each in NEEDED):
        return None
    return _Skipped.from_parent(parent, path=module_path)


@pytest.fixture(scope="module")
def browsers() -> Iterator[Browsers]:
    """The browsers of a module.

    Not of a session: Playwright keeps an event loop running as long as they are there, and asyncio
    tests of other modules could not run in the same worker.
    """
    from playwright.sync_api import sync_playwright

    from tests.browser.chromium import Browsers, require_chromium

    require_chromium()
    with sync_playwright() as playwright, Browsers(playwright) as made:
        yield made


@pytest.fixture
def open_page(browsers: Browsers) -> Iterator[OpenPage]:
    """Opens talk pages. They are closed after the test."""
    from tests.browser.opening import OpenPage

    opens = OpenPage(browsers)
    yield opens
    opens.close()


@pytest.fixture(scope="session")
def shared(redis_url: str) -> Iterator[TalkScheduler]:
    """A scheduler with two nodes, for tests that break nothing."""
    from tests.browser.chromium import require_chromium

    require_chromium()
    with TalkScheduler(redis_url=redis_url) as made:
        made.add_hearing_nodes(2)
        made.until_offered("en", "es")
        yield made
        made.check_logs()
