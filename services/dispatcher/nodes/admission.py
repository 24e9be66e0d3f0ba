"""How a node gets in: its Hello, the checks of it, and its registration with the pool service."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable

from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes, node_message
from lingua_scheduler.services.dispatcher.nodes.stream import NodeStream, attempt_key
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import caller, node_owner
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# A connection that does not say Hello within this time is closed.
_HELLO_WITHIN_S = 5.0
_HELLO = "events[0].hello"
# What may wait for a node that reads slowly. An assignment carries up to 2 MiB of audio. A node
# that lets more than this pile up is disconnected, and its jobs go elsewhere.
MAX_EVENTS = 1000
MAX_BYTES = 32 * 1024 * 1024

_log = logging.getLogger(__name__)


async def first_message(
    messages: AsyncIterator[dispatcher_pb2.NodeMessage],
) -> dispatcher_pb2.NodeMessage:
    """Returns the first message of a stream, which begins with Hello.

    Raises:
        InvalidMessageError: it does not, or is late.
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
    """Raises PermissionDeniedError if the caller may not use this id."""
    who = caller()
    if who is None or who.may_be_node(node_id):
        return
    allowed = repr(who.node_id) if who.node_id else f"one that begins with {who.owner + '.'!r}"
    problem = f"this caller may not be node {node_id[:128]!r}; its id must be {allowed}"
    field = f"{_HELLO}.node_id"
    raise errors.PermissionDeniedError(f"{field}: {problem}", fields=[(field, problem)])


class Admission:
    """Registers nodes with the pool service and welcomes them.

    Args:
        address: returns where other dispatchers reach this one.
        nodes: nodes are added there.
        on_room: called with the names of pools that a node serves when a slot on it may be free.
        on_connected: called when a node is connected, with its placement and the attempts that it
            says it still has.
        unwanted: of the attempts that a node says it has, returns those that it should drop.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        pool: PoolClient,
        address: Callable[[], str],
        nodes: ConnectedNodes,
        on_room: Callable[[frozenset[str]], None],
        on_connected: Callable[[pool_pb2.Placement, Iterable[common_pb2.AttemptRef]], None],
        unwanted: Callable[[Iterable[common_pb2.AttemptRef]], Iterable[common_pb2.AttemptRef]],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._address = address
        self._nodes = nodes
        self._on_room = on_room
        self._on_connected = on_connected
        self._unwanted = unwanted

    async def admit(self, hello: dispatcher_pb2.Hello) -> NodeStream:
        """Adds a node that has said Hello.

        Raises:
            LinguaError: this dispatcher is draining, Hello breaks a limit, or the pool service
                refuses the node.
        """
        if self._nodes.draining:
            raise errors.DrainingError("this dispatcher is draining; connect elsewhere")
        limits.check(hello)
        stream = self._new_stream(hello)
        with self._nodes.admitting(stream.node_id):
            registered = await self._pool.register_node(self._registration(stream))
            stream.epoch, stream.cell = registered.epoch, registered.cell
            stream.runs(hello.running)
            stream.load = hello.load
            refused = await self._not_renewed(stream) if hello.running else []
            stream.serves = frozenset(Capabilities.of(hello.capabilities).pools())
            self._nodes.add(stream)
        placement = pool_pb2.Placement(
            node_id=stream.node_id,
            node_epoch=stream.epoch,
            owner_instance=self._settings.instance_id,
            owner_address=self._address(),
            cell=stream.cell,
        )
        self._welcome(stream, registered.pools, refused)
        self._on_connected(placement, [*hello.running, *hello.unconfirmed])
        self._on_room(stream.serves)
        return stream

    async def register_again(self, stream: NodeStream) -> None:
        """Registers a node that the pool service has forgotten."""
        try:
            answer = await self._pool.register_node(self._registration(stream))
        except errors.LinguaError as error:
            facts = {"node_id": stream.node_id, "reason": str(error)}
            _log.warning("node not registered again", extra=facts)
            if isinstance(error, errors.NodeIdConflictError):
                self._nodes.end(stream, error)
            return
        stream.epoch, stream.cell = answer.epoch, answer.cell
        self._on_room(stream.serves)

    def _new_stream(self, hello: dispatcher_pb2.Hello) -> NodeStream:
        return NodeStream(
            hello=hello,
            stream_id=secrets.token_hex(8),
            heard_ms=now_ms(),
            outbox=Outbox(
                max_events=MAX_EVENTS,
                max_bytes=MAX_BYTES,
                max_take_bytes=batch_bytes(self._settings.max_message_bytes),
            ),
            serves=frozenset(),
            assigned={},
            owner=node_owner(),
        )

    def _registration(self, stream: NodeStream) -> pool_pb2.RegisterNodeRequest:
        return stream.registration(instance_id=self._settings.instance_id, address=self._address())

    async def _not_renewed(self, stream: NodeStream) -> list[common_pb2.AttemptRef]:
        """Of the attempts that a node says it runs, returns those that have no slot.

        The node has to stop them. The pool is asked before the node can be given anything, because
        an attempt without a slot would be one too many.
        """
        request = pool_pb2.HeartbeatRequest(beats=[stream.beat()])
        try:
            answer = await self._pool.heartbeat(request)
        except errors.LinguaError as error:
            facts = {"node_id": stream.node_id, "reason": str(error)}
            _log.warning("running attempts of a node not renewed", extra=facts)
            return []
        refused = pool_pb2.BeatProblem.KIND_NOT_RENEWED
        return [
            each for found in answer.problems if found.kind == refused for each in found.attempts
        ]

    def _welcome(
        self, stream: NodeStream, pools: int, refused: list[common_pb2.AttemptRef]
    ) -> None:
        hello = stream.hello
        welcome = dispatcher_pb2.Welcome(
            epoch=stream.epoch,
            instance_id=self._settings.instance_id,
            heartbeat_interval_ms=self._settings.node_heartbeat_ms,
            max_message_bytes=self._settings.max_message_bytes,
            silence_ms=self._settings.peer_silence_ms,
            pools=pools,
            cancelled=[*self._unwanted([*hello.running, *hello.unconfirmed]), *refused],
        )
        for attempt in welcome.cancelled:
            stream.drop(attempt_key(attempt))
        self._nodes.send(stream, node_message(welcome=welcome))
        if self._nodes.draining:  # since the node was added
            self._nodes.send_elsewhere(stream)
        _log.info("node connected", extra={"node_id": stream.node_id, "pools": pools})
        if not pools:
            facts = {"node_id": stream.node_id, "reason": "its languages do not fit together"}
            _log.warning("node is in no pool", extra=facts)
