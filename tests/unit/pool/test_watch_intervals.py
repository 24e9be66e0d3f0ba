"""How often the fleet is sampled, and how often watchers get a message."""

import pytest

from lingua_scheduler.services.pool_service.fleet.watch import interval_s, tell_every_s
from lingua_scheduler.services.runtime.settings.settings import load_settings


@pytest.mark.parametrize(
    ("took_s", "expected_s"),
    [(0.0, 2.0), (0.1, 2.0), (0.2, 4.0), (0.5, 10.0), (4.0, 10.0), (8.0, 16.0)],
)
def test_slow_samples_are_taken_less_often(took_s: float, expected_s: float) -> None:
    assert interval_s(2.0, took_s) == expected_s


def test_samples_are_never_taken_more_often_than_wanted() -> None:
    assert interval_s(30.0, 0.5) == 30.0


@pytest.mark.parametrize(("every_s", "expected_s"), [(0.2, 0.5), (2.0, 5.0), (60.0, 5.0)])
def test_watchers_get_a_message_at_least_every_five_seconds(
    every_s: float, expected_s: float
) -> None:
    assert tell_every_s(every_s) == expected_s


def test_the_fleet_is_sampled_every_two_seconds_by_default() -> None:
    assert load_settings({}).fleet_watch_ms == 2000
