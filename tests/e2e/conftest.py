"""What the tests of processes share."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.commands import Start, Up


@pytest.fixture
def up() -> Iterator[Start]:
    """Starts `lingua up`; kills what still runs at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **variables: stack.enter_context(Up(*args, **variables))
