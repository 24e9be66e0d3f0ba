"""What a node's protocol asks its shell to do."""

from collections.abc import Mapping
from dataclasses import dataclass

from lingua_scheduler.sdk._transport.endings import Close
from lingua_scheduler.v1 import dispatcher_pb2


@dataclass(frozen=True, slots=True)
class Start:
    """Run the handler. `run` names this execution; an attempt can have more than one."""

    run: int
    assign: dispatcher_pb2.JobAssign


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel this execution: its result is no longer wanted."""

    run: int
    why: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a warning for whoever runs the node."""

    event: str
    fields: Mapping[str, str | int]


NodeEffect = Start | Stop | Close | Warn
