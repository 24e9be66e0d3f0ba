"""Fixtures for tests of the console in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.chromium import Browsers
    from tests.browser.console.crowd import Crowd
    from tests.browser.console.opening import OpenConsole
    from tests.browser.console.scheduler import ConsoleScheduler
    from tests.support.scene import Scene


@pytest.fixture(scope="session")
def fleet(redis_url: str) -> Iterator[ConsoleScheduler]:
    """A scheduler with a console, which all tests share: each has languages of its own."""
    from tests.browser.chromium import require_chromium
    from tests.browser.console.scheduler import ConsoleScheduler

    require_chromium()
    with ConsoleScheduler(redis_url=redis_url) as made:
        yield made
        made.check_logs()


@pytest.fixture(scope="session")
def crowd(fleet: ConsoleScheduler) -> Crowd:
    """2,000 nodes and 10,000 jobs."""
    from tests.browser.console.crowd import Crowd

    made = Crowd(fleet.pool.address)
    fleet.run(made.fill())
    return made


@pytest.fixture
def scene(fleet: ConsoleScheduler) -> Scene:
    """Languages, nodes and jobs of one test."""
    return fleet.scene()


@pytest.fixture
def open_console(browsers: Browsers) -> Iterator[OpenConsole]:
    """Opens consoles. They are closed after the test."""
    from tests.browser.console.opening import OpenConsole

    opens = OpenConsole(browsers)
    yield opens
    opens.close()
