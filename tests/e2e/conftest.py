"""What the tests of processes share."""

from collections.abc import Iterator

import pytest

from .up_process import Start, Up


@pytest.fixture
def up() -> Iterator[Start]:
    """Starts `lingua up`; what still runs at the end of the test is ended."""
    started: list[Up] = []

    def start(*args: str, **settings: str) -> Up:
        started.append(Up(*args, **settings))
        return started[-1]

    yield start
    for each in started:
        each.close()
