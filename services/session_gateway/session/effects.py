"""What a session's core asks of its shell."""

from dataclasses import dataclass, field

from lingua_scheduler.services.session_gateway.session.alarms import ClearTimer, SetTimer
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the client: a message of one event or more, with at most one result."""

    message: session_pb2.ServerMessage


@dataclass(frozen=True, slots=True)
class Record:
    """Write cuts down; answer with on_recorded, on_record_failed or on_lost."""

    cuts: tuple[session_record_pb2.Cut, ...]
    # Cuts below this index are not needed any more, and chunks below this seq are safe.
    first_index: int
    acked_seq: int
    seen: int
    results: int
    missing: int
    last_chunk_ms: float


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit an utterance's job, or attach to it where a dispatcher has its audio."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Nobody waits for this job any more."""

    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The client has this job's result; it had waited here for those before it."""

    job_id: str
    held_back_ms: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Leave:
    """The session leaves this gateway: results of these jobs are for its next one."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gate:
    """Read the client's messages, or do not for now."""

    is_open: bool


@dataclass(frozen=True, slots=True)
class End:
    """The stream ends.

    Attributes:
        why: where it cannot go on; None: all is done.
        forget: the session is over, and its record may go.
    """

    why: common_pb2.Error | None
    forget: bool


Effect = Send | Record | Submit | CancelJob | Taken | Leave | Gate | End | SetTimer | ClearTimer
