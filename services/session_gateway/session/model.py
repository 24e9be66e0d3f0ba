"""What a session's core is made of: its phases, its past, and what becomes of an index."""

from dataclasses import dataclass, field
from enum import Enum, auto

from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_record_pb2


class Phase(Enum):
    """Where a session is; see the table of session_core."""

    OPEN = auto()
    # The client has closed it: what is left is delivered.
    CLOSING = auto()
    # All is delivered, and the client knows that it was all.
    CLOSED = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class Past:
    """What was before this gateway had the session.

    Attributes:
        next_index: the index that the next utterance will have.
        seen: how many results the client has seen.
        next_seq: the first chunk that is not safe. The client still has it.
        missing: how many of those that were seen were missing.
        cuts: those that are not forgotten, in order.
    """

    next_index: int = 0
    seen: int = 0
    next_seq: int = 0
    missing: int = 0
    cuts: tuple[session_record_pb2.Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of an index: a result, or a reason why there is none."""

    direction: Direction
    utterance: Utterance | None
    end: dispatcher_pb2.JobDelivered | common_pb2.Error
    # Earlier indexes whose held audio is lost with it.
    lost: list[int] = field(default_factory=list)
