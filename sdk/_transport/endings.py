"""How a stream can end. Nodes and sessions share these."""

from dataclasses import dataclass

from lingua_scheduler.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream broke, or was ended because the server is not responding.

    If `silent`, the server did not answer, and its connection is not used again: the connection to
    a frozen process does not break by itself.
    """

    why: str
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The server asked the client to connect elsewhere, after this many more seconds."""

    after: float
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The server gave an error as the reason."""

    error: common_pb2.Error


@dataclass(frozen=True, slots=True)
class Expired:
    """The server refused the token; the next one may be accepted."""

    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """The node said goodbye, or the session is closed."""


Ending = Lost | Moved | Refused | Expired | Left


@dataclass(frozen=True, slots=True)
class Close:
    """An effect: end the stream. If graceful, what is ready is still sent."""

    ending: Ending
    graceful: bool = False
