"""An outbox stays within its bounds and keeps its order; against a plain list."""

import asyncio
import random
from dataclasses import dataclass

import pytest

from lingua_scheduler.services.runtime.rpc.outbox import Outbox


async def taken(outbox: Outbox[str]) -> list[str]:
    return await asyncio.wait_for(outbox.take(), 5)


async def test_all_that_is_ready_comes_out_together_and_in_order() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    assert outbox.put("a", 1)
    assert outbox.put("b", 2)
    assert (len(outbox), outbox.bytes) == (2, 3)
    assert await taken(outbox) == ["a", "b"]
    assert (len(outbox), outbox.bytes) == (0, 0)


async def test_the_consumer_wakes_once_for_all_events_of_a_turn() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    waiting = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    outbox.put("a", 1)
    outbox.put("b", 1)
    assert await asyncio.wait_for(waiting, 5) == ["a", "b"]


async def test_a_patient_event_waits_for_one_that_is_not() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    waiting = asyncio.create_task(outbox.take())
    outbox.put("a", 1, within_s=0.02)
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put("b", 1)
    assert await asyncio.wait_for(waiting, 5) == ["a", "b"]


async def test_patient_events_that_nothing_follows_come_a_little_later() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    for first, second in (("a", "b"), ("c", "d")):
        outbox.put(first, 1, within_s=0.02)
        outbox.put(second, 1, within_s=0.02)
        assert await taken(outbox) == [first, second]


async def test_the_least_patient_event_says_when_all_of_them_come() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    for first_s, second_s in ((3600.0, 0.001), (0.001, 3600.0)):
        outbox.put("a", 1, within_s=first_s)
        outbox.put("b", 1, within_s=second_s)
        assert await taken(outbox) == ["a", "b"]


async def test_at_the_end_patient_events_come_at_once() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    outbox.put("a", 1, within_s=0.02)
    outbox.close()
    assert await taken(outbox) == ["a"]
    assert await taken(outbox) == []


async def test_where_all_was_dropped_that_was_waited_for_it_goes_on_waiting() -> None:
    outbox: Outbox[str] = Outbox(1, 100)
    outbox.put("shown", 1, droppable=True)
    waiting = asyncio.create_task(outbox.take())
    assert await asyncio.wait_for(waiting, 5) == ["shown"]
    outbox.put("shown", 1, droppable=True, within_s=0.02)
    # It takes the place of what would have woken the consumer.
    outbox.put("firm", 1, within_s=0.02)
    assert await taken(outbox) == ["firm"]


async def test_a_message_stays_under_its_bound_but_for_a_single_large_event() -> None:
    outbox: Outbox[str] = Outbox(10, 1000, max_take_bytes=10)
    for event, size in (("a", 6), ("b", 4), ("c", 1), ("huge", 500), ("d", 10)):
        assert outbox.put(event, size)
    assert [await taken(outbox) for _ in range(4)] == [["a", "b"], ["c"], ["huge"], ["d"]]


async def test_a_full_outbox_refuses_and_queues_nothing() -> None:
    by_count: Outbox[str] = Outbox(1, 100)
    assert by_count.put("a", 1)
    assert not by_count.put("b", 1)
    assert not by_count.put("partial", 1, droppable=True)
    assert by_count.dropped == 1
    by_size: Outbox[str] = Outbox(10, 100)
    assert by_size.put("a", 60)
    assert not by_size.put("b", 41)
    assert by_size.put("c", 40)
    assert not Outbox[str](10, 100).put("never", 101)
    assert await taken(by_count) == ["a"]
    assert await taken(by_size) == ["a", "c"]


async def test_partials_give_way_oldest_first_and_are_counted() -> None:
    outbox: Outbox[str] = Outbox(3, 100)
    outbox.put("p1", 1, droppable=True)
    outbox.put("a", 1)
    outbox.put("p2", 1, droppable=True)
    assert outbox.put("b", 1)
    assert outbox.put("p3", 1, droppable=True)
    assert outbox.dropped == 2
    assert await taken(outbox) == ["a", "b", "p3"]


async def test_no_partial_is_dropped_in_vain() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    outbox.put("a", 60)
    outbox.put("p1", 30, droppable=True)
    assert not outbox.put("b", 50)
    assert await taken(outbox) == ["a", "p1"]
    assert outbox.dropped == 0


async def test_a_newer_partial_replaces_the_one_of_the_same_attempt() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    outbox.put("p1", 1, droppable=True, replaces="j1/1")
    outbox.put("q1", 1, droppable=True, replaces="j2/1")
    outbox.put("p2", 1, droppable=True, replaces="j1/1")
    assert await taken(outbox) == ["q1", "p2"]
    assert outbox.dropped == 1
    outbox.put("p3", 1, droppable=True, replaces="j1/1")
    assert await taken(outbox) == ["p3"]
    assert not outbox._latest


async def test_a_closed_outbox_gives_what_it_has_and_then_its_end() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    outbox.put("a", 1)
    outbox.close()
    assert outbox.closed
    assert not outbox.put("b", 1)
    assert await taken(outbox) == ["a"]
    assert await taken(outbox) == []
    other: Outbox[str] = Outbox(10, 100)
    waiting = asyncio.create_task(other.take())
    await asyncio.sleep(0)
    other.close()
    assert await asyncio.wait_for(waiting, 5) == []


async def test_a_take_that_is_cancelled_loses_nothing() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    waiting = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    outbox.put("a", 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await taken(outbox) == ["a"]


async def test_a_second_consumer_is_refused() -> None:
    outbox: Outbox[str] = Outbox(10, 100)
    first = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        await outbox.take()
    outbox.close()
    await first


@dataclass
class Entry:
    event: int
    size: int
    droppable: bool
    replaces: str | None


class Model:
    """The same rules on a list, looking at all of it every time."""

    def __init__(self, max_events: int, max_bytes: int, max_take_bytes: int) -> None:
        self.limits = (max_events, max_bytes, max_take_bytes)
        self.entries: list[Entry] = []
        self.dropped = 0

    def fits(self, entries: list[Entry]) -> bool:
        return len(entries) <= self.limits[0] and sum(e.size for e in entries) <= self.limits[1]

    def put(self, entry: Entry) -> bool:
        if not self.fits([*(e for e in self.entries if not e.droppable), entry]):
            self.dropped += entry.droppable
            return False
        kept = [e for e in self.entries if entry.replaces is None or e.replaces != entry.replaces]
        while not self.fits([*kept, entry]):
            kept.remove(next(e for e in kept if e.droppable))
        self.dropped += len(self.entries) - len(kept)
        self.entries = [*kept, entry]
        return True

    def take(self) -> list[int]:
        count = 1
        while (
            count < len(self.entries)
            and sum(e.size for e in self.entries[: count + 1]) <= self.limits[2]
        ):
            count += 1
        out, self.entries = self.entries[:count], self.entries[count:]
        return [e.event for e in out]


@pytest.mark.parametrize("seed", range(30))
async def test_random_puts_and_takes_do_what_a_list_would(seed: int) -> None:
    rng = random.Random(seed)
    limits = (rng.randrange(1, 12), rng.randrange(20, 80), rng.randrange(5, 40))
    outbox: Outbox[int] = Outbox(limits[0], limits[1], max_take_bytes=limits[2])
    model = Model(*limits)
    for event in range(2000):
        if rng.random() < 0.7:
            droppable = rng.random() < 0.5
            replaces = rng.choice((None, "x", "y")) if droppable else None
            entry = Entry(event, rng.randrange(1, 30), droppable, replaces)
            assert outbox.put(event, entry.size, droppable, replaces=replaces) == model.put(entry)
        elif model.entries:
            assert await outbox.take() == model.take()
        assert len(outbox) == len(model.entries)
        assert outbox.bytes == sum(e.size for e in model.entries)
        assert outbox.dropped == model.dropped
