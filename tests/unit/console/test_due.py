"""When a watched document is computed again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.http.due import (
    COST_FACTOR,
    INTERVAL_S,
    TOTAL_FACTOR,
    next_due,
)


def test_a_cheap_document_is_computed_once_per_second() -> None:
    due = next_due(100.0, 100.001, cost_s=0.001, total_s=0.001)
    assert due == pytest.approx(100.0 + INTERVAL_S)


def test_an_expensive_document_is_computed_less_often() -> None:
    assert next_due(100.0, 100.5, cost_s=0.5, total_s=0.5) == pytest.approx(110.0)


def test_many_documents_together_take_half_of_the_time() -> None:
    assert next_due(100.0, 100.02, cost_s=0.02, total_s=500 * 0.02) == pytest.approx(120.0)


def test_a_document_that_waited_for_a_service_waits_as_long_again() -> None:
    assert next_due(100.0, 103.0, cost_s=0.001, total_s=0.001) == pytest.approx(106.0)


@given(st.floats(0, 1e6), st.floats(0, 100), st.floats(0, 100), st.floats(0, 1000))
def test_a_document_never_takes_more_than_its_share(
    began: float, cost: float, waited: float, others: float
) -> None:
    ended = began + cost + waited
    due = next_due(began, ended, cost_s=cost, total_s=cost + others)
    assert due >= ended
    assert due - began >= COST_FACTOR * cost - 1e-6
    assert due - began >= TOTAL_FACTOR * (cost + others) - 1e-6
