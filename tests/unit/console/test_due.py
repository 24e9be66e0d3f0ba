"""When a watched document is computed again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.http.due import COST_FACTOR, INTERVAL_S, next_due


def test_a_cheap_document_is_computed_once_per_second() -> None:
    assert next_due(100.0, 100.001) == pytest.approx(100.0 + INTERVAL_S)


def test_an_expensive_document_is_computed_less_often() -> None:
    assert next_due(100.0, 100.5) == pytest.approx(110.0)


@given(st.floats(0, 1e6), st.floats(0, 100))
def test_a_document_never_takes_more_than_its_share(began: float, cost: float) -> None:
    ended = began + cost
    due = next_due(began, ended)
    assert due >= ended
    assert due - began >= COST_FACTOR * cost - 1e-6
