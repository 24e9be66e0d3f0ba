"""What a protocol asks its shell to do, and how a stream can end. Nodes and sessions share it."""

from dataclasses import dataclass

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2


@dataclass(frozen=True, slots=True)
class Start:
    """Run the handler. `run` names this execution; an attempt can have more than one."""

    run: int
    assign: dispatcher_pb2.JobAssign


@dataclass(frozen=True, slots=True)
class Stop:
    """Nobody wants what this execution would give."""

    run: int
    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream broke, or was given up because it is dead.

    `silent`: the other side did not answer, and its connection is not used again. Nothing breaks
    the connection to a frozen process.
    """

    why: str
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The other side asked to connect elsewhere, after so many more seconds."""

    after: float
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The other side said why the stream cannot go on."""

    error: common_pb2.Error


@dataclass(frozen=True, slots=True)
class Expired:
    """The token does not hold, or no longer; the next one may."""

    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """All is said and done: the node said goodbye, or the session is closed."""


Ending = Lost | Moved | Refused | Expired | Left


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream. Gracefully: what is ready is still sent."""

    ending: Ending
    graceful: bool = False


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that whoever runs this should know."""

    text: str


Effect = Start | Stop | Close | Warn
