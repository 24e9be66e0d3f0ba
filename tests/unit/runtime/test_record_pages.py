"""Where a list over several cells has got, as its page tokens say it."""

import pytest

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.runtime.redis.record_pages import Position

HIGHEST_CURSOR = str(2**52 - 1)


@pytest.mark.parametrize("cells", [1, 2, 1000])
def test_a_list_begins_in_the_first_cell(cells: int) -> None:
    assert Position.of_token("", cells) == Position.of_token("0", cells) == Position(0, "0")


@pytest.mark.parametrize("at", [0, 1, 999])
@pytest.mark.parametrize("cursor", ["0", "1", "4096", HIGHEST_CURSOR])
def test_a_token_says_which_cell_and_how_far(at: int, cursor: str) -> None:
    position = Position(at, cursor)
    token = position.token(1000)
    assert Position.of_token(token, 1000) == position
    assert int(token) < 2**64


@pytest.mark.parametrize("cursor", ["1", str(2**64 - 1)])
def test_the_token_of_a_list_in_one_cell_is_the_cursor(cursor: str) -> None:
    assert Position(0, cursor).token(1) == cursor
    assert Position.of_token(cursor, 1) == Position(0, cursor)


def test_one_cell_follows_the_other_and_nothing_the_last() -> None:
    position = Position.of_token("", 2).after("7")
    assert position == Position(0, "7")
    position = position.after("0")
    assert position == Position(1, "0")
    assert position.token(2) == "1"
    assert position.after("7").after("0").token(2) == ""
    assert Position.of_token("", 1).after("0").token(1) == ""


@pytest.mark.parametrize("token", ["4", "4095", str(2**64 - 1)])
def test_a_token_of_a_cell_that_does_not_exist_is_refused(token: str) -> None:
    with pytest.raises(InvalidMessageError, match="page_token: names cell"):
        Position.of_token(token, 4)
