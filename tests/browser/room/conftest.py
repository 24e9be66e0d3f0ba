"""Fixtures for tests of the room page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.scheduler import TalkScheduler

if TYPE_CHECKING:
    from tests.browser.chromium import Browsers

LANGUAGES = "en,es,fr"


@pytest.fixture(scope="module")
def hall(browsers: Browsers, redis_url: str) -> Iterator[TalkScheduler]:
    """A scheduler with nodes of three languages, whose gateway may die."""
    with TalkScheduler(redis_url=redis_url) as made:
        made.add_hearing_nodes(2, langs=LANGUAGES, slots=8)
        made.until_offered(*LANGUAGES.split(","))
        yield made
        made.check_logs()


@pytest.fixture
def scheduler(hall: TalkScheduler) -> TalkScheduler:
    """The scheduler, all of which is alive, and whose nodes have no orders."""
    for each in (*hall.services, *hall.nodes):
        if each.process.poll() is not None:
            each.start()
            each.wait_ready()
    for node in hall.nodes:
        node.order()
    return hall
