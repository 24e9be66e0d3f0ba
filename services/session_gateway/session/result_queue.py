"""Results in the order of their utterances. No I/O, no clock."""

from typing import Generic, TypeVar

from lingua_scheduler.services.session_gateway.session.deadlines import Deadlines

Outcome = TypeVar("Outcome")


class ResultQueue(Generic[Outcome]):
    """Takes outcomes in any order, and gives them out in that of the indexes.

    Promises: each index comes out once, none is left out, and whatever has come is out when all
    before it are. An outcome for an index that has one, or that is out, changes nothing.

    Args:
        first: the index that comes out first.
        stop_max_ms: how long the clock of the deadlines may be stopped for an index.
    """

    def __init__(self, first: int = 0, *, stop_max_ms: float = 0.0) -> None:
        self.next_out = first
        """The index that comes out next."""
        self.next_in = first
        """The index that will be expected next."""
        self.deadlines = Deadlines(stop_max_ms)
        """Of those that have no outcome."""
        self.outcomes: dict[int, Outcome] = {}
        """What has come and is not out."""

    def __len__(self) -> int:
        """Indexes that are expected and not out."""
        return self.next_in - self.next_out

    def expect(self, deadline_ms: float, now: float = 0.0) -> int:
        """One more utterance, which has until then; returns its index."""
        index = self.next_in
        self.next_in += 1
        self.deadlines.add(index, deadline_ms, now)
        return index

    def put(self, index: int, outcome: Outcome) -> bool:
        """What became of an utterance. False: it is known already, or was never expected."""
        if not self.deadlines.remove(index):
            return False
        self.outcomes[index] = outcome
        return True

    def take(self) -> list[tuple[int, Outcome]]:
        """What may come out now, in order."""
        taken: list[tuple[int, Outcome]] = []
        while self.next_out in self.outcomes:
            taken.append((self.next_out, self.outcomes.pop(self.next_out)))
            self.next_out += 1
        return taken
