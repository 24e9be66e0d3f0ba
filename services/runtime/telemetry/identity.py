"""Which service runs: a process may host several.

Each service runs in a context of its own (`contextvars`), which all its tasks, timers and calls
inherit. So log lines and spans of code that the services share name the service that ran it.
"""

from contextvars import ContextVar
from typing import NamedTuple


class Identity(NamedTuple):
    """Names of a service and of its instance."""

    service: str
    instance: str


_current: ContextVar[Identity] = ContextVar("lingua_identity")


def set_identity(identity: Identity) -> None:
    """Names the service of the current context."""
    _current.set(identity)


def identity_or(process: Identity) -> Identity:
    """The service of the current context; outside of any, the process as a whole."""
    return _current.get(process)
