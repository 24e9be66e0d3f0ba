"""The record of one job in the pool, and its leases: a model of the scripts in lua/.

Does what lua/{allocate,commit,release,complete,end_job}.lua do.
"""

from dataclasses import dataclass, field

from lingua_scheduler.v1 import pool_pb2

RUNNING_LEASE = 2000.0

COMMIT = pool_pb2.CommitResponse
OVER = {"done", "failed", "cancelled"}


@dataclass
class Record:
    """The job in the store, and the leases of its attempts."""

    state: str = ""
    latest: int = 0
    winner: int = 0
    home: int = 0
    node: dict[int, str] = field(default_factory=dict)
    attempt: dict[int, str] = field(default_factory=dict)
    reserved: dict[int, float] = field(default_factory=dict)
    running: dict[int, float] = field(default_factory=dict)

    def lease(self, number: int, now: float) -> float:
        """When the attempt's lease ends; 0 if it has none."""
        held = {"reserved": self.reserved, "running": self.running}.get(
            self.attempt.get(number, ""), {}
        )
        end = held.get(number, 0.0)
        return end if end > now else 0.0

    def leases(self, now: float) -> list[int]:
        """The attempts that hold a slot, except for released ones, whose leases expire."""
        return [
            n
            for held in (self.reserved, self.running)
            for n, end in held.items()
            if end > now and self.attempt[n] != "released"
        ]

    def commit(self, number: int, now: float, has_room: bool) -> COMMIT.Outcome.ValueType:
        if self.state in OVER:
            won = self.winner == number
            return COMMIT.OUTCOME_ALREADY if won else COMMIT.OUTCOME_SUPERSEDED
        if self.winner not in (0, number) and self.lease(self.winner, now):
            return COMMIT.OUTCOME_SUPERSEDED
        was = self.attempt[number]
        if was in OVER or (
            was == "released" and self.latest != number and self.lease(self.latest, now)
        ):
            return COMMIT.OUTCOME_SUPERSEDED
        if self.running.get(number, 0) > now:
            return COMMIT.OUTCOME_ALREADY
        in_time = self.reserved.pop(number, 0) > now
        if not in_time and not has_room:
            return COMMIT.OUTCOME_NO_ROOM
        self.running[number] = now + RUNNING_LEASE
        self.state, self.winner, self.attempt[number] = "acked", number, "running"
        return COMMIT.OUTCOME_COMMITTED if in_time else COMMIT.OUTCOME_COMMITTED_LATE

    def release(self, number: int, final: str, now: float, *, may_run: bool) -> None:
        if self.running.get(number, 0) > now:
            return
        if not may_run:
            self.reserved.pop(number, None)
        first = self.attempt[number] == "reserved"
        if first:
            self.attempt[number] = "released"
        if self.state not in OVER:
            if final:
                self.state = final
            elif first and self.state == "reserved" and self.latest == number:
                self.state = "retrying"

    def complete(self, number: int, outcome: str, final: str) -> None:
        self.running.pop(number, None)
        self.reserved.pop(number, None)
        if self.attempt[number] in OVER:
            return
        self.attempt[number] = "failed" if outcome == "timed_out" else outcome
        if self.state in OVER:
            return
        if outcome == "done":
            self.state, self.winner = "done", number
            return
        if final:
            self.state = final
        elif self.winner in (0, number) and self.state != "unplaced":
            self.state = "retrying"
        if self.winner == number:
            self.winner = 0

    def end(self, state: str, home: int) -> None:
        if self.home in (0, home) and self.state not in OVER:
            self.state = state
