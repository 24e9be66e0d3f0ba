"""What a handler is, and what it may give."""

import inspect
import pickle
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Translated

Handler = Callable[..., Any]
Item = Partial | Translated | Held | NoSpeech

_ITEMS = (Partial, Translated, Held, NoSpeech)


class Kind(Enum):
    """How a handler runs."""

    ASYNC_GENERATOR = auto()
    COROUTINE = auto()
    # A plain function or generator: it blocks, so it runs in a thread or a process.
    BLOCKING = auto()


def kind_of(handler: Handler) -> Kind:
    """Raises TypeError where it cannot be called with a job."""
    if not callable(handler):
        raise TypeError(f"handler: {handler!r} is not callable")
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        raise TypeError(f"handler: {handler!r} must take one argument, the job") from None
    except ValueError:
        pass  # some callables of C have no signature to look at
    function = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    for each in (handler, function):
        if inspect.isasyncgenfunction(each):
            return Kind.ASYNC_GENERATOR
        if inspect.iscoroutinefunction(each):
            return Kind.COROUTINE
    return Kind.BLOCKING


def check_picklable(handler: Handler) -> None:
    """Raises TypeError where another process could not find the handler."""
    try:
        pickle.dumps(handler)
    except Exception as error:
        raise TypeError(
            f"handler: workers='processes' needs a function at the top of a module ({error})"
        ) from error


def checked(item: object) -> Item:
    """Raises TypeError where a handler has given something else than it may."""
    if not isinstance(item, _ITEMS):
        raise TypeError(
            f"a handler gives Partial, Translated, Held or NoSpeech, not {type(item).__name__}"
        )
    return item
