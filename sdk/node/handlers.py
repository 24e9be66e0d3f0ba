"""What a handler is, and what it may return."""

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
    # A plain function or generator. It may block, so it runs in a thread or a process.
    BLOCKING = auto()


def kind_of(handler: Handler) -> Kind:
    """Returns how the handler runs. Raises TypeError if it cannot be called with a job."""
    if not callable(handler):
        raise TypeError(f"handler: {handler!r} is not callable")
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        raise TypeError(f"handler: {handler!r} must take one argument, the job") from None
    except ValueError:
        pass  # some callables written in C have no signature
    function = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    for each in (handler, function):
        if inspect.isasyncgenfunction(each):
            return Kind.ASYNC_GENERATOR
        if inspect.iscoroutinefunction(each):
            return Kind.COROUTINE
    return Kind.BLOCKING


def check_picklable(handler: Handler) -> None:
    """Raises TypeError if another process cannot import the handler."""
    try:
        pickle.dumps(handler)
    except Exception as error:
        raise TypeError(
            f"handler: workers='processes' needs a function at the top level of a module ({error})"
        ) from error


def checked(item: object) -> Item:
    """Returns what a handler yielded or returned. Raises TypeError if it is of another type."""
    if not isinstance(item, _ITEMS):
        raise TypeError(
            f"a handler must return Partial, Translated, Held or NoSpeech,"
            f" not {type(item).__name__}"
        )
    return item
