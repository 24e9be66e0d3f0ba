"""The directions that clients may choose from, out of a sample. Pure."""

from collections.abc import Iterator, Mapping

from lingua_scheduler.services.pool_service.fleet.cell_nodes import Room
from lingua_scheduler.services.pool_service.fleet.directions import OTHER, Direction
from lingua_scheduler.services.runtime.contract.capabilities import ANY
from lingua_scheduler.services.runtime.contract.offers import Offer


def offers(rooms: Mapping[Direction, Room]) -> Iterator[Offer]:
    """One offer for each pair of languages that a node serves, as speech if possible.

    Directions without labels of their own are left out: there are too many of them to choose from.
    """
    served = {each: room for each, room in rooms.items() if room.slots and each.src != OTHER}
    for kind, src, tgt in served:
        speech = Direction("speech", src, tgt)
        if kind == "text" and speech in served:
            continue
        room = served[Direction(kind, src, tgt)].free > 0
        yield Offer(src, ANY if tgt == "any" else tgt, speech=kind == "speech", room=room)
