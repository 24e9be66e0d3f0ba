"""A listener in a room as app developers see it."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from lingua_scheduler.sdk._transport.channels import Channels
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.errors import RoomRefusedError, RoomUnavailableError
from lingua_scheduler.sdk.room.events import Heard, Listening, RoomEvent, RoomInfo
from lingua_scheduler.sdk.room.inbox import Inbox
from lingua_scheduler.sdk.room.link import ListenerLink, OnStatus
from lingua_scheduler.sdk.room.options import checked_listening
from lingua_scheduler.sdk.room.protocol.machine import ListenerProtocol
from lingua_scheduler.sdk.room.protocol.state import ListenerCounts
from lingua_scheduler.sdk.session.protocol.wire import fields_of
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, rooms_pb2


class Listener:
    """Receives what is said in a room, in one language. `Room.listen` makes it.

        async with room.listen(language="es") as listener:
            async for heard in listener:
                if isinstance(heard, Said):
                    print(f"{heard.speaker}: {heard.text}")

    An async context manager, and an async iterator of `Said` and `NotSaid`: each utterance of the
    language once, in the order of the room. First come the last captions from before, with
    `replayed` set. The iteration ends when the room is closed or left.

    It reconnects by itself, to the next address if there are several, and continues where it was.
    Entering joins the room; leaving the block leaves it. All methods belong to the event loop in
    which it was entered.

    Args:
        join: who joins which room.
        listening: what it receives at first.
        on_status: called with each `RoomStatus`; None: none is sent.
        addresses: of equivalent gateways.
        channels: connections to them.
        owns_channels: whether to close them at the end.
        token: asked before every connection.
        metadata: sent with each connection, beside the token.
        reconnect_seconds: as for `Room.listen`.
    """

    def __init__(
        self,
        *,
        join: rooms_pb2.JoinRoom,
        listening: Listening,
        on_status: OnStatus | None,
        addresses: Sequence[str],
        channels: Channels,
        owns_channels: bool,
        token: TokenSource,
        metadata: Sequence[tuple[str, str]],
        reconnect_seconds: float | None,
    ) -> None:
        self._protocol = ListenerProtocol(
            join=join, listening=listening, reconnect_seconds=reconnect_seconds
        )
        self._state = self._protocol.state
        self._inbox = Inbox()
        self._on_status = on_status
        self._addresses = addresses
        self._channels = channels
        self._owns_channels = owns_channels
        self._token = token
        self._metadata = metadata
        self._link: ListenerLink | None = None
        self._one_at_a_time = asyncio.Lock()

    # ---- joining and leaving ----

    async def __aenter__(self) -> Self:
        """Joins the room.

        Raises:
            RoomRefusedError: the gateway does not let the listener in, and a retry cannot help:
                ROOM_NOT_FOUND, ROOM_CLOSED, ROOM_FULL, PERMISSION_DENIED and others.
            RoomUnavailableError: no gateway let it in in time.
        """
        if self._link is not None:
            raise RuntimeError("a listener joins once; call Room.listen again")
        self._link = ListenerLink(
            protocol=self._protocol,
            inbox=self._inbox,
            on_status=self._on_status,
            addresses=self._addresses,
            channels=self._channels,
            token=self._token,
            metadata=self._metadata,
            rng=random.Random(),
        )
        try:
            await self._link.until(lambda: self._state.chain.started)
        except BaseException:
            await self._drop(self._link)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leaves the room, also if the block was left by an exception."""
        link = self._joined_link
        try:
            await link.leave()
        finally:
            await self._drop(link)

    async def leave(self) -> None:
        """Leaves the room. What has arrived can still be read, and then the iteration ends.

        Returns when the gateway knows, or after about a second if it does not answer: then it
        finds out by itself. Does nothing if the listener has left, or the room is closed.
        """
        await self._joined_link.leave()

    async def _drop(self, link: ListenerLink) -> None:
        """Leaves no task and no connection behind."""
        await link.abort()
        if self._owns_channels:
            await self._channels.close()

    # ---- receiving ----

    def __aiter__(self) -> AsyncIterator[Heard]:
        """What is said, from where the last iteration stopped, until the room is closed or left.

        Utterances wait until they are read, up to 64 MiB. If the app reads too slowly, it gets a
        `NotSaid` with the reason NOT_READ in place of the oldest ones.

        Raises:
            ListenerLostError: after the last utterance, if the listener could not continue.
        """
        self._inbox.heard.is_read = True
        return self._inbox.heard.read()

    def events(self) -> AsyncIterator[RoomEvent]:
        """The same, and everything else that happens: see `RoomEvent`.

        If only one of this and the iteration is read, the other keeps just its newest events.

        Raises:
            ListenerLostError: after the last event, if the listener could not continue.
        """
        self._inbox.events.is_read = True
        return self._inbox.events.read()

    async def change(
        self,
        *,
        language: str | None = None,
        captions: bool | None = None,
        speech: bool | None = None,
        original_audio: bool | None = None,
    ) -> None:
        """Listens to something else from the next utterance on.

        Utterances that were said before still arrive in the previous language. Also works while
        there is no connection: then it waits for one.

        Args:
            language: what to listen to; this and all others stay as they are if they are None.
            captions: whether to receive texts.
            speech: whether to receive speech.
            original_audio: whether to receive the audio of the speakers.

        Raises:
            ValueError: names the argument and what is allowed.
            RoomRefusedError: the room does not allow it, for example ROOM_FULL if it has as many
                languages as it may have. Everything stays as it was.
            RoomUnavailableError: the gateway cannot do it now. Everything stays as it was.
            ListenerLostError: the listener could not continue.
        """
        link = self._joined_link
        async with self._one_at_a_time:
            now = self._state.wanted
            self._protocol.change(
                checked_listening(
                    language=now.language if language is None else language,
                    captions=now.captions if captions is None else captions,
                    speech=now.speech if speech is None else speech,
                    original_audio=(
                        now.original_audio if original_audio is None else original_audio
                    ),
                )
            )
            link.wake()
            await link.until(lambda: self._state.is_settled)
            error = self._state.change_error
        if error is not None:
            raise _refusal(error)

    @property
    def _joined_link(self) -> ListenerLink:
        if self._link is None:
            raise RuntimeError("the listener is not in the room: use `async with room.listen(...)`")
        return self._link

    # ---- properties ----

    @property
    def listening(self) -> Listening:
        """What the listener receives, as the server has confirmed it."""
        return self._state.confirmed

    @property
    def member_id(self) -> str:
        """The listener's id in the room; empty until it has joined."""
        return self._state.member_id

    @property
    def room(self) -> RoomInfo:
        """The room as it was when the listener last joined it."""
        if self._state.room is None:
            raise RuntimeError("the listener is not in the room: use `async with room.listen(...)`")
        return self._state.room

    @property
    def position(self) -> int:
        """The first room index that has not arrived."""
        return self._state.chain.position

    @property
    def connected(self) -> bool:
        """Whether the listener is in the room at a gateway now."""
        return self._protocol.joined

    @property
    def room_closed(self) -> bool:
        """Whether the room was closed."""
        return self._state.room_closed

    @property
    def counts(self) -> ListenerCounts:
        """Totals of the listener so far."""
        return self._state.counts


def _refusal(error: common_pb2.Error) -> RoomRefusedError | RoomUnavailableError:
    reason = reason_name(error.reason)
    if error.reason == common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN:
        after = error.retry_after_ms / 1000
        return RoomUnavailableError(reason, error.message, retry_after=after)
    return RoomRefusedError(reason, error.message, fields_of(error))
