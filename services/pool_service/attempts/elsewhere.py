"""How a job is placed if its own cell has no node for it. Pure: `Placing` says what to ask next.

The job's own cell has its record and decides. Another cell has nodes and their slots. So a
slot is taken there first, for exactly one attempt, and nobody is told before the own cell has
confirmed that this attempt is the next one. Whatever fails in between, a job has no second live
attempt: the own cell confirms an attempt once, and a slot that is never confirmed becomes free by
itself.

| Asked            | Answer                          | Next                                       |
|------------------|---------------------------------|--------------------------------------------|
| own cell         | placed, or a refusal of the job | that is the answer                         |
|                  | the attempt is in another cell  | look there                                 |
|                  | the turn's node is elsewhere    | take there, on that node                   |
|                  | the preferred node is not here  | take there, on that node, cell by cell     |
|                  | no node with room               | take in the next cell                      |
|                  | no answer                       | fail                                       |
| take             | taken                           | confirm in the own cell                    |
|                  | no room, gone, no answer        | take in the next cell; none: refuse        |
| take, bound node | taken                           | confirm in the own cell                    |
|                  | full or silent, and may wait    | refuse: the turn waits                     |
|                  | not there any more              | take in the cell that it has moved to      |
|                  | cannot be used, no answer       | own cell again, without the binding        |
| take, preferred  | taken                           | confirm in the own cell                    |
|                  | full                            | own cell again, without the preference     |
|                  | not there, no answer            | take in the next cell; none: refuse        |
| confirm          | recorded, or recorded before    | that is the answer                         |
|                  | another attempt lives, or over  | give back, then that is the answer         |
|                  | another attempt in a third cell | give back, then look there                 |
|                  | the attempt is not the next one | give back, then own cell again             |
|                  | a refusal                       | give back, then that is the answer         |
|                  | no answer                       | fail: a repeated call finds it, or it ends |
| look             | has a slot                      | that is the answer                         |
|                  | gone                            | the own cell forgets it; own cell again    |
|                  | no answer                       | fail: it may live                          |
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lingua_scheduler.v1 import pool_pb2

# The reply of a script: its first part is a word.
Reply: TypeAlias = Sequence[Any]

OK = b"ok"
_ELSEWHERE = b"elsewhere"
_BOUND_ELSEWHERE = b"bound_elsewhere"
_BOUND_FULL = b"BOUND_NODE_FULL"
_UNBOUND = b"unbound"
_STALE = b"stale"
_NONE_FREE = b"ALL_CANDIDATES_FULL_OR_FAILED"
_NOT_PREFERRED = b"PREFERRED_NODE_NOT_CAPABLE"

# How often the own cell is asked anew. More than twice needs other callers for the same job.
_ROUNDS = 6

# Where allocate's reply has them; the first ten are the same in the reply of take.
_ATTEMPT, _NODE, _PATH, _CELL = 2, 5, 9, 14


@dataclass(frozen=True, slots=True)
class Taken:
    """A slot that was taken in another cell, and what that cell said."""

    cell: int
    attempt: int
    reply: Reply

    @property
    def node(self) -> bytes:
        """The node that has the slot."""
        return bytes(self.reply[_NODE])

    @property
    def path(self) -> int:
        """How the node was chosen (PlacementPath)."""
        return int(self.reply[_PATH])


@dataclass(frozen=True, slots=True)
class AskOwnCell:
    """Call allocate in the job's own cell.

    Attributes:
        unbound: what became of the turn's binding (BindingOutcome), if that is known; 0: find out.
        prefers: whether the request's preference for a node counts.
        taken: confirm this.
    """

    unbound: int = 0
    prefers: bool = True
    taken: Taken | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """Call take in another cell.

    Attributes:
        bound: only on this node, which has the turn.
        path: how the binding came about (PlacementPath).
        preferred: only on the preferred node.
    """

    cell: int
    attempt: int
    bound: bytes = b""
    path: int = 0
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Ask another cell whether an attempt has a slot."""

    cell: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Let the own cell forget that an attempt has a slot in another cell."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply, as if the own cell had a node; one part more is the node's cell."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Fail:
    """The call fails with this error: a cell that must be asked does not answer."""

    error: Exception


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Release a slot that was taken for nothing. If that fails, it becomes free by itself."""

    taken: Taken
    then: "AskOwnCell | Look | Answer"


Step: TypeAlias = AskOwnCell | Take | Look | Forget | GiveBack | Answer | Fail


class Placing:
    """One call of Allocate over several cells. Begin with `AskOwnCell()`.

    Args:
        own: the job's own cell.
        others: the other cells in the order in which they are tried.
        cell_of_node: the cell in which a node should be.
        tries: how many other cells may answer that their nodes are full.
        strict: only the preferred node will do.
        may_wait: a job of a turn waits for the turn's node, if that is only full or away.
    """

    def __init__(
        self,
        *,
        own: int,
        others: Callable[[], Sequence[int]],
        cell_of_node: Callable[[str], int],
        tries: int,
        preferred: str = "",
        strict: bool = False,
        may_wait: bool = False,
    ) -> None:
        self._own = own
        self._others = others
        self._cell_of_node = cell_of_node
        self._tries = tries
        self._preferred = preferred
        self._strict = strict
        self._may_wait = may_wait
        self._rounds = 0
        # As last asked; a repeated call to the own cell keeps what was found out.
        self._asked = AskOwnCell()
        # The next attempt, what became of the binding, and what the refusals so far counted.
        self._attempt = 0
        self._binding = 0
        self._refused: Reply = ()
        self._tally: Counter[bytes] = Counter()
        self._left: Iterator[int] = iter(())
        # What the own cell has told of an attempt in another cell.
        self._told: Reply = ()

    def after(self, step: Step, reply: Reply) -> Step:
        """What to do after a step was answered."""
        match step:
            case AskOwnCell(taken=None):
                self._asked = step
                return self._after_own_cell(reply)
            case AskOwnCell(taken=Taken() as taken):
                return self._after_confirm(taken, reply)
            case Take(bound=b"", preferred=False):
                return self._after_take(step, reply)
            case Take(preferred=False):
                return self._after_bound(step, reply)
            case Take():
                return self._after_preferred(step, reply)
            case Look():
                if reply[0] == OK:
                    return Answer(_merged(self._told, step.cell, reply))
                return Forget(step.attempt)
            case Forget():
                return self._again(self._asked)
            case GiveBack():
                return step.then
        raise TypeError(step)

    def away(self, step: Step, error: Exception) -> Step:
        """What to do if the cell does not answer. It may have done what it was asked to do."""
        match step:
            case Take(bound=b"", preferred=preferred):
                return self._next(preferred=preferred)
            case Take(bound=bound):
                if self._may_wait:
                    return Answer([_BOUND_FULL, bound, b"silent"])
                return self._without_binding(pool_pb2.BINDING_OUTCOME_UNAVAILABLE)
            case GiveBack():
                return step.then
        return Fail(error)

    def _after_own_cell(self, reply: Reply) -> Step:
        if reply[0] == _ELSEWHERE:
            return self._look(reply)
        if reply[0] == _BOUND_ELSEWHERE:
            _, node, cell, path, attempt = reply
            where = int(cell) if cell else self._cell_of_node(node.decode())
            if where == self._own:
                return self._without_binding(pool_pb2.BINDING_OUTCOME_UNAVAILABLE)
            return Take(where, attempt, bound=node, path=path)
        if len(reply) < 2 or not isinstance(reply[1], list):
            return Answer(reply)
        self._attempt, self._binding = reply[1]
        self._refused = [reply[0], *reply[2:]]
        if reply[0] == _NOT_PREFERRED:
            first = self._cell_of_node(self._preferred)
            others = self._others()
            self._left = iter(sorted(others, key=lambda cell: cell != first))
            return self._next(preferred=True)
        if self._strict:
            return Answer(self._refused)
        self._tally.clear()
        self._count(self._refused)
        self._left = iter(self._others())
        return self._next(preferred=False)

    def _next(self, *, preferred: bool) -> Step:
        """The next cell in which a slot may be taken; if there is none, the refusal."""
        cell = next(self._left, None) if preferred or self._tries > 0 else None
        if cell is not None:
            return Take(cell, self._attempt, preferred=preferred)
        if preferred:
            return Answer(self._refused)
        flat = [part for counted in self._tally.items() for part in counted]
        return Answer([self._refused[0], *flat])

    def _after_take(self, step: Take, reply: Reply) -> Step:
        if reply[0] == OK:
            return self._confirm(step, self._binding, reply)
        if reply[0] == _NONE_FREE:
            self._tries -= 1
            self._refused = reply
        self._count(reply)
        return self._next(preferred=False)

    def _after_bound(self, step: Take, reply: Reply) -> Step:
        if reply[0] == OK:
            return self._confirm(step, pool_pb2.BINDING_OUTCOME_HIT, reply)
        if reply[0] == _BOUND_FULL:
            return Answer(reply)
        found = reply[1] if reply[0] == _UNBOUND else pool_pb2.BINDING_OUTCOME_UNAVAILABLE
        moved_to = self._cell_of_node(step.bound.decode())
        if found != pool_pb2.BINDING_OUTCOME_UNAVAILABLE or moved_to in (step.cell, self._own):
            return self._without_binding(found)
        return replace(step, cell=moved_to)

    def _after_preferred(self, step: Take, reply: Reply) -> Step:
        if reply[0] == OK:
            return self._confirm(step, self._binding, reply)
        if reply[0] != _NONE_FREE:
            return self._next(preferred=True)
        if self._strict:
            return Answer(reply)
        return self._again(replace(self._asked, unbound=self._binding, prefers=False))

    def _confirm(self, step: Take, binding: int, reply: Reply) -> Step:
        taken = Taken(step.cell, step.attempt, reply)
        return AskOwnCell(unbound=binding, prefers=self._asked.prefers, taken=taken)

    def _after_confirm(self, taken: Taken, reply: Reply) -> Step:
        is_this = tuple(reply[_ATTEMPT : _NODE + 1 : 3]) == (taken.attempt, taken.node)
        if reply[0] == OK and is_this and not reply[1]:
            return Answer(_merged(reply, taken.cell, taken.reply))
        if reply[0] == _ELSEWHERE:
            if is_this and int(reply[_CELL]) == taken.cell:
                return Answer(_merged(reply, taken.cell, taken.reply))
            return GiveBack(taken, self._look(reply))
        if reply[0] == _STALE:
            return GiveBack(taken, self._again(AskOwnCell()))
        return GiveBack(taken, Answer(reply))

    def _look(self, reply: Reply) -> Look:
        self._told = reply
        return Look(int(reply[_CELL]), reply[_ATTEMPT])

    def _without_binding(self, outcome: int) -> AskOwnCell | Answer:
        return self._again(replace(self._asked, unbound=outcome))

    def _again(self, step: AskOwnCell) -> AskOwnCell | Answer:
        """Asks the own cell once more, but not for ever."""
        self._rounds += 1
        if self._rounds > _ROUNDS:
            return Answer([_NONE_FREE, b"gone", 1])
        return step

    def _count(self, refused: Reply) -> None:
        for why, times in zip(refused[1::2], refused[2::2], strict=True):
            self._tally[why] += times


def _merged(in_own: Reply, cell: int, there: Reply) -> Reply:
    """The own cell's reply, with what only the cell of the node knows: the lease and the node."""
    return [OK, *in_own[1:4], there[4], *there[5:9], *in_own[9:_CELL], cell]
