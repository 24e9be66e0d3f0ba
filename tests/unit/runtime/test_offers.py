"""What the parts of a fleet offer together."""

from lingua_scheduler.services.runtime.contract.offers import (
    NOTHING,
    Offer,
    Offers,
    merged,
    packed,
    unpacked,
)


def test_a_direction_has_what_any_part_of_the_fleet_has() -> None:
    first = Offers(5, (Offer("de", "en", True, False), Offer("zh", "en", False, False)))
    second = Offers(7, (Offer("de", "en", False, True), Offer("de", "*", True, True)))
    assert merged([first, second]) == Offers(
        7,
        (
            Offer("de", "*", True, True),
            Offer("de", "en", True, True),
            Offer("zh", "en", False, False),
        ),
    )


def test_one_part_offers_what_it_says() -> None:
    offers = unpacked(
        packed(3, [Offer("zh", "en", False, True), Offer("de", "*", True, True)]).encode()
    )
    assert merged([offers]) == merged([NOTHING, offers]) == offers
    assert merged([NOTHING]) == NOTHING
