"""The directions that clients may choose from."""

import pytest

from lingua_scheduler.services.pool_service.fleet.cell_nodes import Room
from lingua_scheduler.services.pool_service.fleet.directions import OTHER, Direction
from lingua_scheduler.services.pool_service.fleet.offered import offers
from lingua_scheduler.services.runtime.contract.offers import Offer, Offers, packed, unpacked


def test_a_direction_is_offered_once_and_with_speech_if_there_is_some() -> None:
    rooms = {
        Direction("speech", "en", "es"): Room(2, 0),
        Direction("text", "en", "es"): Room(5, 3),
        Direction("text", "en", "fr"): Room(1, 1),
        Direction("text", "de", "any"): Room(1, 1),
    }
    assert sorted(offers(rooms)) == [
        Offer("de", "*", speech=False, room=True),
        Offer("en", "es", speech=True, room=False),
        Offer("en", "fr", speech=False, room=True),
    ]


def test_what_nobody_serves_and_what_has_no_name_is_not_offered() -> None:
    rooms = {
        Direction("speech", "en", "es"): Room(0, 0),
        Direction("text", "en", "es"): Room(1, 1),
        Direction("speech", OTHER, OTHER): Room(9, 9),
    }
    assert list(offers(rooms)) == [Offer("en", "es", speech=False, room=True)]


def test_gateways_read_what_the_pool_service_writes() -> None:
    listed = [Offer("en", "es", True, False), Offer("de", "*", False, True)]
    assert unpacked(packed(7, listed).encode()) == Offers(7, tuple(sorted(listed)))


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b"[1, [[1]]]", b"[null, []]", b"3"])
def test_a_value_of_another_form_is_not_read(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any
        unpacked(value)
