"""Checks of what nodes send on their streams."""

import asyncio
from collections.abc import AsyncIterator

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import caller
from lingua_scheduler.v1 import dispatcher_pb2

# A connection that says nothing at first is nobody's.
_HELLO_WITHIN_S = 5.0
_HELLO = "events[0].hello"


async def first_message(
    messages: AsyncIterator[dispatcher_pb2.NodeMessage],
) -> dispatcher_pb2.NodeMessage:
    """A stream's first message, which begins with Hello.

    Raises:
        InvalidMessageError: it does not, or does not come at once.
        PermissionDeniedError: the caller may not be the node that it says it is.
    """
    try:
        first = await asyncio.wait_for(anext(messages), _HELLO_WITHIN_S)
    except (StopAsyncIteration, TimeoutError):
        raise _no_hello("must come first, and at once") from None
    if not first.events or first.events[0].WhichOneof("event") != "hello":
        raise _no_hello("must come first")
    _check_identity(first.events[0].hello.node_id)
    return first


def _no_hello(problem: str) -> errors.InvalidMessageError:
    return errors.InvalidMessageError(f"{_HELLO}: {problem}", fields=[(_HELLO, problem)])


def _check_identity(node_id: str) -> None:
    """Nobody takes the id of another's node. Raises PermissionDeniedError."""
    who = caller()
    if who is None or who.may_be_node(node_id):
        return
    allowed = repr(who.node_id) if who.node_id else f"one that begins with {who.owner + '.'!r}"
    problem = f"this caller may not be node {node_id[:128]!r}; its id must be {allowed}"
    field = f"{_HELLO}.node_id"
    raise errors.PermissionDeniedError(f"{field}: {problem}", fields=[(field, problem)])
