"""Results in the order of their utterances. No I/O, no clock."""

from typing import Generic, TypeVar

Outcome = TypeVar("Outcome")


class ResultQueue(Generic[Outcome]):
    """Takes outcomes in any order, and gives them out in that of the indexes.

    Promises: each index comes out once, none is left out, and whatever has come is out when all
    before it are. An outcome for an index that has one, or that is out, changes nothing.

    Args:
        first: the index that comes out first.
    """

    def __init__(self, first: int = 0) -> None:
        self.next_out = first
        """The index that comes out next."""
        self.next_in = first
        """The index that will be expected next."""
        # Of those that have no outcome: how long they have.
        self._deadlines: dict[int, float] = {}
        self.outcomes: dict[int, Outcome] = {}
        """What has come and is not out."""

    def __len__(self) -> int:
        """Indexes that are expected and not out."""
        return self.next_in - self.next_out

    def expect(self, deadline_ms: float) -> int:
        """One more utterance, which has until then; returns its index."""
        index = self.next_in
        self.next_in += 1
        self._deadlines[index] = deadline_ms
        return index

    def put(self, index: int, outcome: Outcome) -> bool:
        """What became of an utterance. False: it is known already, or was never expected."""
        if self._deadlines.pop(index, None) is None:
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

    def overdue(self, now: float) -> list[int]:
        """Indexes without an outcome whose time is over, in order."""
        return [index for index, deadline_ms in self._deadlines.items() if deadline_ms <= now]

    @property
    def next_deadline_ms(self) -> float | None:
        """The first deadline of an index that has no outcome."""
        return min(self._deadlines.values(), default=None)
