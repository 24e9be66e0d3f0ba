"""What a protocol asks its shell to do, and how a stream can end. Nodes and sessions share it."""

from dataclasses import dataclass

from lingua_scheduler.v1 import common_pb2


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
