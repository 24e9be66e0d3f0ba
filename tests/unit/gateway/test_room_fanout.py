"""Large audiences are served in turns, and every listener gets its messages in order."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from lingua_scheduler.services.session_gateway.metrics import RoomMetrics
from lingua_scheduler.services.session_gateway.rooms.fanout import SENDS_PER_TURN, Fanout
from lingua_scheduler.services.session_gateway.rooms.lane import Form, Gap
from lingua_scheduler.services.session_gateway.rooms.lane_reads import Deliver
from lingua_scheduler.v1 import rooms_pb2


class Ear:
    """A listener that keeps what it is sent, and may break."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.heard: list[int] = []
        self._breaks_at = breaks_at

    def send(self, packed: Any) -> bool:
        """Takes a message."""
        (event,) = rooms_pb2.RoomMessage.FromString(packed.proto).events
        if event.missing.room_index == self._breaks_at:
            raise RuntimeError("a bug")
        self.heard.append(event.missing.room_index)
        return True


def deliver(ears: list[Ear], *indexes: int) -> Any:
    """Any items will do: gaps are the simplest."""
    items = tuple(Gap("de", index, index + 1) for index in indexes)
    return Deliver(Form.CAPTIONS, items, tuple(ears))  # type: ignore[type-var]


async def test_a_small_audience_is_served_at_once() -> None:
    fanout, ears = Fanout(RoomMetrics(CollectorRegistry())), [Ear() for _ in range(10)]
    fanout.add(deliver(ears, 1, 2))
    assert all(ear.heard == [1, 2] for ear in ears)


async def test_a_large_audience_is_served_in_turns_and_in_order() -> None:
    fanout = Fanout(RoomMetrics(CollectorRegistry()))
    ears = [Ear() for _ in range(3 * SENDS_PER_TURN)]
    fanout.add(deliver(ears, 1))
    assert sum(len(ear.heard) for ear in ears) == SENDS_PER_TURN
    # What follows does not overtake it, also if it concerns only the last.
    fanout.add(deliver(ears[-1:], 2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert all(ear.heard == [1] for ear in ears[:-1])
    assert ears[-1].heard == [1, 2]


async def test_everything_can_be_sent_at_once_when_a_room_ends() -> None:
    fanout = Fanout(RoomMetrics(CollectorRegistry()))
    ears = [Ear() for _ in range(3 * SENDS_PER_TURN)]
    fanout.add(deliver(ears, 1))
    fanout.finish()
    assert all(ear.heard == [1] for ear in ears)
    await asyncio.sleep(0)
    assert all(ear.heard == [1] for ear in ears)


async def test_a_delivery_that_fails_does_not_stop_those_that_follow() -> None:
    fanout, ears = Fanout(RoomMetrics(CollectorRegistry())), [Ear(), Ear(breaks_at=1)]
    fanout.add(deliver(ears, 1))
    fanout.add(deliver(ears, 2))
    assert [ear.heard for ear in ears] == [[1, 2], [2]]
