"""Redis dies, stalls, is full, fails over; and its clock jumps."""

import asyncio
from typing import ClassVar

from tests.robustness.faults.fault import Fault
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.store import AOF, EMPTY, SENTINEL, Store, until
from tests.robustness.world import World

# All bindings and leases are gone, and what was kept for others: also what a gateway wrote down of
# held audio for the next one.
EMPTIED = Excuses(
    turns=ANY_NODE,
    held=True,
    capacity=True,
    missing=frozenset({"JOB_NOT_FOUND", "SESSION_NOT_FOUND"}),
    # Until a gateway has restored a room, nobody can tell whether a token is of it.
    sessions=frozenset({"SESSION_NOT_FOUND", "ROOM_NOT_FOUND", "PERMISSION_DENIED"}),
    rooms=True,
)
_BYTES_LEFT = 4096


class _Store(Fault):
    store: Store

    async def inject(self, world: World) -> None:
        """Strikes the primary, or one of them."""
        self.store = self.rng.choice(world.stores)
        at = world.stores.index(self.store)
        self.at = f"redis-{at}" if at else "redis"
        await asyncio.to_thread(self.strike, world)

    async def heal(self, world: World) -> None:
        """Makes it good."""
        await asyncio.to_thread(self.mend, world)

    def strike(self, world: World) -> None:
        """As inject, in a thread."""
        raise NotImplementedError

    def mend(self, world: World) -> None:
        """As heal, in a thread."""
        raise NotImplementedError


class RestartWithData(_Store):
    """kill -9; what was answered is in its file."""

    name = "Redis killed, back with its data"
    stores = frozenset({AOF})

    def strike(self, world: World) -> None:
        """It is dead."""
        self.store.primary.kill()

    def mend(self, world: World) -> None:
        """It is back."""
        self.store.primary.restart()


class RestartEmpty(RestartWithData):
    """kill -9; it comes back with nothing."""

    name = "Redis killed, back empty"
    stores = frozenset({EMPTY})
    excuses = EMPTIED


class Stall(_Store):
    """SIGSTOP: it accepts, and answers nothing; what was asked happens late."""

    name = "Redis pauses"
    stores = frozenset({AOF, EMPTY})
    least_s = 1.0
    most_s = 4.0

    def strike(self, world: World) -> None:
        """It stops."""
        self.store.primary.pause()

    def mend(self, world: World) -> None:
        """It goes on."""
        self.store.primary.resume()


class AwayForLong(Stall):
    """Longer than heartbeats, leases, jobs, queues and the deadline of a result last."""

    name = "Redis away for longer than every time-out"
    # result_deadline_ms is 30 s.
    least_s = 33.0
    most_s = 38.0
    is_alone = True


class Full(_Store):
    """Every write is refused."""

    name = "Redis is full (maxmemory)"
    stores = frozenset({AOF, EMPTY})
    least_s = 1.0
    most_s = 3.0

    def strike(self, world: World) -> None:
        """Not one byte more."""
        self.store.ask("CONFIG", "SET", "maxmemory", _BYTES_LEFT)

    def mend(self, world: World) -> None:
        """As much as there is."""
        self.store.ask("CONFIG", "SET", "maxmemory", 0)


class FailOver(_Store):
    """The primary dies, and a replica takes its place; the last writes may be lost."""

    name = "Redis fails over (Sentinel)"
    stores = frozenset({SENTINEL})
    excuses = EMPTIED
    least_s = 3.0
    most_s = 4.0

    def strike(self, world: World) -> None:
        """It is dead."""
        self.store.fail_over()

    def mend(self, world: World) -> None:
        """The other one is primary, and the first follows it."""
        until(self.store.has_failed_over, 20)
        self.store.bring_back()


class ClockJump(_Store):
    """The scripts' clock jumps, and jumps back."""

    by_ms: ClassVar[int]
    stores = frozenset({AOF, EMPTY})

    def strike(self, world: World) -> None:
        """From here on it is another time."""
        for prefix in world.prefixes(self.store):
            self.store.ask("SET", f"{prefix}:test:jump_ms", self.by_ms)

    def mend(self, world: World) -> None:
        """As before."""
        for prefix in world.prefixes(self.store):
            self.store.ask("DEL", f"{prefix}:test:jump_ms")


class ClockForward(ClockJump):
    """All leases end at once, and nobody has been heard of for a minute."""

    name = "clock jumps forward, and back"
    by_ms = 60_000
    # Until the nodes' next heartbeats put them back, no lease counts. In rooms, what is being
    # translated is overdue.
    excuses = Excuses(capacity=True, turns=ANY_NODE, overdue=True)


class ClockBack(ClockJump):
    """No lease ends for a minute, unless it is given back."""

    name = "clock jumps back, and forward"
    by_ms = -60_000
    # Leases that were made in the past end when the clock is right again, and what was cut then is
    # overdue in rooms.
    excuses = Excuses(capacity=True, turns=ANY_NODE, overdue=True)


STORE_FAULTS: dict[str, type[Fault]] = {
    each.name: each
    for each in (
        RestartWithData,
        RestartEmpty,
        Stall,
        AwayForLong,
        Full,
        FailOver,
        ClockForward,
        ClockBack,
    )
}
