"""One round: people talk, alone and in rooms, faults strike and are healed, people talk on."""

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Sequence

from tests.robustness.faults.choice import ALL, excuses_of
from tests.robustness.faults.clients import HOSTILE
from tests.robustness.faults.fault import Fault
from tests.robustness.history import History, Struck
from tests.robustness.hostile import HOSTILE_EXCUSES, HostilePeers
from tests.robustness.traffic import WHO
from tests.robustness.traffic.client import Talker
from tests.robustness.traffic.rooms import CASTS, LiveRoom
from tests.robustness.world import World
from tests.support.javascript import JavaScriptTalker, why_not

PEOPLE = 10
# Every third of them wants partial texts, so often at most.
PARTIALS_MS = 200
# Each so many of them use the JavaScript SDK, if it is built (make js).
JAVASCRIPT_EACH = 5
# Beside the people who have a conversation.
ROOMS = len(CASTS)
# Far more than anything here may take: the result deadline is 30 s.
HEARD_S = 40.0
ENDED_S = 60.0
# The longest lease (running_lease_ms), and some for a busy machine.
LEASES_S = 16.0

AnyTalker = Talker | JavaScriptTalker


async def run_round(
    world: World,
    names: list[str],
    seed: int,
    *,
    people: int = PEOPLE,
    rooms: int = ROOMS,
    hostile: bool = False,
) -> History:
    """Runs one round in a world where all is well; all is well again at its end.

    `hostile`: hostile peers are at work from before the first fault until after the last.
    """
    rng = random.Random(seed)
    since = time.monotonic()
    faults = [ALL[name](random.Random(rng.random())) for name in names]
    people = max(people, *(each.people for each in faults))
    talkers = [talker(world, at, random.Random(rng.random())) for at in range(people)]
    if people > PEOPLE:
        # They need nearly all slots.
        rooms = min(rooms, 1)
    live_rooms = [live_room(world, at, seed) for at in range(rooms)]
    history = History(name=" + ".join(names), seed=seed)
    tasks = [asyncio.create_task(each.talk()) for each in talkers]
    meetings = [asyncio.create_task(each.run()) for each in live_rooms]
    try:
        await all_heard(talkers, tasks, 0.0)
        await rooms_heard(live_rooms, meetings, 0.0)
        await asyncio.sleep(rng.random())
        async with contextlib.AsyncExitStack() as stack:
            peers = HostilePeers(world, seed) if hostile or HOSTILE in names else None
            if peers is not None:
                await stack.enter_async_context(peers)
                history.hostile = peers.history
            await _strike(world, faults, rng, history)
            await all_heard(talkers, tasks, history.healed)
            await rooms_heard(live_rooms, meetings, history.healed)
            if peers is not None:
                await peers.done()
    finally:
        for one in (*talkers, *live_rooms):
            one.stop()
        await ended([*talkers, *live_rooms], [*tasks, *meetings])
    history.excuses = excuses_of(faults)
    if history.hostile is not None:
        history.excuses |= HOSTILE_EXCUSES
    history.stall_s = faults[0].stall_s if len(faults) == 1 else 0.0
    history.clients = [each.history for each in talkers]
    history.rooms = [each.history for each in live_rooms]
    await _collect(world, since, history)
    await world.all_up()
    return history


def talker(world: World, at: int, rng: random.Random) -> AnyTalker:
    """One person, with the SDK for Python or for JavaScript."""
    partial_interval_ms = PARTIALS_MS if at % 3 == 0 else 0
    if at % JAVASCRIPT_EACH == JAVASCRIPT_EACH - 1 and not why_not():
        return JavaScriptTalker(
            f"javascript-{at}",
            world.web_gateways,
            partial_interval_ms=partial_interval_ms,
            features={WHO: uuid.uuid4().hex},
            start=rng.randrange(100),
        )
    name = f"client-{at}"
    return Talker(name, world.gateways, rng, partial_interval_ms=partial_interval_ms)


def live_room(world: World, at: int, seed: int) -> LiveRoom:
    """One room. What its members do does not change what is drawn for anybody else."""
    rng = random.Random(f"{seed} room {at}")
    cast = CASTS[at % len(CASTS)]
    return LiveRoom(f"room-{at}", cast, world.gateways, world.web_gateways, rng)


async def _collect(world: World, since: float, history: History) -> None:
    """What the world has to say of a round that began then."""
    history.leases_left = await world.leases_left(LEASES_S)
    history.nodes = [each.history(since) for each in world.nodes.values()]
    history.logged = world.new_faults()


async def _strike(world: World, faults: list[Fault], rng: random.Random, history: History) -> None:
    """All faults, each with a beginning and an end of its own: none waits for another's end."""
    times = [(rng.random(), rng.uniform(each.least_s, each.most_s)) for each in faults]

    async def one(fault: Fault, after: float, lasts: float) -> None:
        await asyncio.sleep(after)
        # It has effects before `inject` returns.
        began = time.monotonic()
        await fault.inject(world)
        struck = Struck(fault.name, fault.at, began, 0.0)
        history.struck.append(struck)
        await asyncio.sleep(lasts)
        await fault.heal(world)
        struck.healed, struck.lost = time.monotonic(), fault.lost

    async with asyncio.TaskGroup() as tasks:
        for fault, (after, lasts) in zip(faults, times, strict=True):
            tasks.create_task(one(fault, after, lasts))


async def all_heard(
    talkers: Sequence[AnyTalker], tasks: list[asyncio.Task[None]], after: float
) -> None:
    """Returns when everybody has had a result since then, or has ended, or it takes too long."""

    def waits(talker: AnyTalker, task: asyncio.Task[None]) -> bool:
        results = talker.history.results()
        return not task.done() and not (results and results[-1]["t"] > after)

    deadline = time.monotonic() + HEARD_S
    while time.monotonic() < deadline:
        if not any(waits(each, task) for each, task in zip(talkers, tasks, strict=True)):
            return
        await asyncio.sleep(0.05)


async def rooms_heard(
    rooms: Sequence[LiveRoom], tasks: list[asyncio.Task[None]], after: float
) -> None:
    """The same for rooms: all who speak, and all who stay there."""
    deadline = time.monotonic() + HEARD_S
    while time.monotonic() < deadline:
        open_rooms = [room for room, task in zip(rooms, tasks, strict=True) if not task.done()]
        if all(room.is_heard(after) for room in open_rooms):
            return
        await asyncio.sleep(0.05)


async def ended(talkers: Sequence[AnyTalker | LiveRoom], tasks: list[asyncio.Task[None]]) -> None:
    """Waits for the ends of all sessions and rooms; one that does not come to its end is lost."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDED_S):
            await asyncio.wait(tasks)
    for each, task in zip(talkers, tasks, strict=True):
        if not task.done():
            task.cancel()
            each.history.lost = f"STUCK: not closed within {ENDED_S:.0f} s"
    await asyncio.gather(*tasks, return_exceptions=True)
