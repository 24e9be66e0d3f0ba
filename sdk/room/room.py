"""A room as app developers see it."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from lingua_scheduler.sdk._transport.channels import Channels
from lingua_scheduler.sdk._transport.tls import Tls
from lingua_scheduler.sdk._transport.tokens import Token, TokenSource
from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.room.calls import CALL_S, RoomCalls
from lingua_scheduler.sdk.room.events import Member, RoomInfo, RoomRole, SpeakPolicy
from lingua_scheduler.sdk.room.link import OnStatus
from lingua_scheduler.sdk.room.listener import Listener
from lingua_scheduler.sdk.room.options import (
    MAX_MEMBER_NAME,
    check_token,
    checked_listening,
    room_request,
    token_request,
)
from lingua_scheduler.sdk.room.protocol.wire import member_from, room_from
from lingua_scheduler.sdk.session.options import PauseDetection, RoomSpeaker
from lingua_scheduler.sdk.session.session import Session
from lingua_scheduler.sdk.validate import check_id, check_number, check_text
from lingua_scheduler.v1 import rooms_pb2

# The largest page that a gateway sends.
_PAGE = 1000


class Room:
    """A room: some speak, many listen, each in the language of their choice.

        room = await Room.create("127.0.0.1:7730", name="All hands")
        token = await room.join_token("listener")

        room = Room("127.0.0.1:7730", room_id=room_id, token=token)
        async with room.listen(language="es") as listener:
            async for heard in listener:
                ...

    The object holds no connection of its own while nothing is called; with `async with room:`, or
    with `channels`, calls, speakers and listeners share connections.

    Args:
        addresses: of equivalent gateways: "host:port", "a:1,b:2" or a list of these.
        room_id: the room.
        token: a token of the room: the host's, a speaker's or a listener's.
        caller_token: the app's own token, if it has one; as for `Session`. By default, the token of
            the room is also what identifies the caller.
        tls: None for plain text.
        metadata: key-value pairs that are sent with each call and connection.
        channels: shared with other rooms and sessions of this event loop; excludes `tls`.
        timeout: how many seconds to look for a gateway that answers a call.

    Attributes:
        room_id: the room.

    Raises:
        ValueError: names the argument and what is allowed.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        room_id: str,
        token: str,
        caller_token: Token | None = None,
        tls: Tls | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        channels: Channels | None = None,
        timeout: float = CALL_S,
    ) -> None:
        self.room_id = check_id("room_id", room_id)
        self._token = check_token("token", token)
        # What identifies the caller, if auth is on.
        self._bearer = self._token if caller_token is None else caller_token
        self._calls = RoomCalls(
            addresses,
            token=self._bearer,
            tls=tls,
            metadata=metadata,
            channels=channels,
            timeout=timeout,
        )
        self._is_host = False

    @classmethod
    async def create(
        cls,
        addresses: str | Sequence[str],
        *,
        name: str = "",
        languages: Sequence[str] = (),
        speak: SpeakPolicy | str = SpeakPolicy.INVITED,
        max_members: int = 0,
        max_speakers: int = 0,
        max_languages: int = 0,
        tenant: str = "",
        token: Token | None = None,
        tls: Tls | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        channels: Channels | None = None,
        timeout: float = CALL_S,
    ) -> Self:
        """Creates a room. Keep its `host_token`: whoever has it can invite others and close it.

        A room that nobody is in is deleted after a while (an hour by default).

        Args:
            addresses: of equivalent gateways.
            name: for people.
            languages: that members may speak and listen to; empty: any.
            speak: "invited": only holders of a speaker's token and the host may speak; "anyone":
                holders of any token of the room.
            max_members: speakers and listeners together; 0: as many as the gateway allows, which
                no limit can exceed.
            max_speakers: speakers at the same time; 0: as above.
            max_languages: distinct languages that are listened to at the same time; 0: as above.
            tenant: the tenant of the room, if the deployment has tenants.
            token: the app's own token, if auth is on; as for `Session`.
            tls: None for plain text.
            metadata: as for `Room`.
            channels: as for `Room`.
            timeout: how many seconds to look for a gateway that answers.

        Raises:
            ValueError: names the argument and what is allowed.
            RoomRefusedError: the gateway refuses the room, and a retry cannot help.
            RoomUnavailableError: no gateway answered in time, or the tenant has as many rooms as it
                may have (QUOTA_EXCEEDED).
        """
        request = room_request(
            name=name,
            languages=languages,
            speak=speak,
            max_members=max_members,
            max_speakers=max_speakers,
            max_languages=max_languages,
            tenant=tenant,
        )
        calls = RoomCalls(
            addresses,
            token=token,
            tls=tls,
            metadata=metadata,
            channels=channels,
            timeout=timeout,
        )
        made: rooms_pb2.CreateRoomResponse = await calls.call(lambda s: s.CreateRoom, request)
        room = cls(
            addresses,
            room_id=made.room.room_id,
            token=made.host_token,
            caller_token=token,
            tls=tls,
            metadata=metadata,
            channels=channels,
            timeout=timeout,
        )
        room._is_host = True
        return room

    async def __aenter__(self) -> Self:
        """Keeps connections until the end of the block."""
        await self._calls.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the connections. The room stays open: `close` closes it."""
        await self._calls.__aexit__(kind, error, traceback)

    @property
    def host_token(self) -> str:
        """The host's token, if this object created the room; otherwise ""."""
        return self._token if self._is_host else ""

    # ---- calls ----

    async def join_token(self, role: RoomRole | str, *, lifetime_s: float = 0) -> str:
        """Returns a token with which others can join. Only the host's token may do that.

        Args:
            role: "listener", or "speaker", who may also listen.
            lifetime_s: how many seconds it is valid, at most 30 days; 0: a day.

        Raises:
            ValueError: names the argument and what is allowed.
            RoomRefusedError: ROOM_NOT_FOUND, or PERMISSION_DENIED: this is not the host's token.
            RoomUnavailableError: no gateway answered in time.
        """
        request = token_request(
            room_id=self.room_id, host_token=self._token, role=role, lifetime_s=lifetime_s
        )
        made: rooms_pb2.CreateJoinTokenResponse = await self._calls.call(
            lambda s: s.CreateJoinToken, request
        )
        return made.join_token

    async def get(self) -> RoomInfo:
        """Returns the room as it is now.

        Raises:
            RoomRefusedError: ROOM_NOT_FOUND, ROOM_CLOSED, or PERMISSION_DENIED.
            RoomUnavailableError: no gateway answered in time.
        """
        request = rooms_pb2.GetRoomRequest(room_id=self.room_id, token=self._token)
        found: rooms_pb2.GetRoomResponse = await self._calls.call(lambda s: s.GetRoom, request)
        return room_from(found.room)

    async def members(self, *, limit: int = 10_000) -> list[Member]:
        """Returns the members of the room. Needs a speaker's token, or the host's.

        Args:
            limit: the most members to return.

        Raises:
            RoomRefusedError: ROOM_NOT_FOUND, ROOM_CLOSED, or PERMISSION_DENIED.
            RoomUnavailableError: no gateway answered in time.
        """
        check_number("limit", limit, 1, 1_000_000)
        members: list[Member] = []
        request = rooms_pb2.ListMembersRequest(
            room_id=self.room_id, token=self._token, page_size=min(limit, _PAGE)
        )
        async with self._calls as calls:
            while True:
                page: rooms_pb2.ListMembersResponse = await calls.call(
                    lambda s: s.ListMembers, request
                )
                members += [member_from(each) for each in page.members]
                if len(members) >= limit or not page.next_page_token:
                    return members[:limit]
                request.page_token = page.next_page_token

    async def close(self) -> None:
        """Closes the room: its members are told, and nobody can join again.

        Only the host's token may do that. To repeat it is no error.

        Raises:
            RoomRefusedError: ROOM_NOT_FOUND, or PERMISSION_DENIED: this is not the host's token.
            RoomUnavailableError: no gateway answered in time.
        """
        request = rooms_pb2.CloseRoomRequest(room_id=self.room_id, host_token=self._token)
        await self._calls.call(lambda s: s.CloseRoom, request)

    # ---- members ----

    def speak(
        self,
        *,
        language: str,
        audio_format: AudioFormat | None = None,
        name: str = "",
        features: Mapping[str, str] | None = None,
        pause_detection: PauseDetection = PauseDetection.GAPS,
        reconnect_seconds: float | None = None,
        share_ms: int | None = None,
    ) -> Session:
        """Returns a session that speaks to the room; enter it with `async with`.

        Its `results()` yields a `Receipt` for each utterance, with the languages in which listeners
        have it, or `Missing`. To read what is said, listen. If the room is closed, the session is
        lost with the reason ROOM_CLOSED.

        Args:
            language: that is spoken.
            audio_format: of all audio that is sent; 16-bit PCM at 16 kHz by default.
            name: shown to listeners.
            features: options for nodes, such as a dialect.
            pause_detection: how the gateway detects pauses; VOICE_ACTIVITY for a microphone that
                never stops sending.
            reconnect_seconds: as for `Session`.
            share_ms: as for `Session`.

        Raises:
            ValueError: names the argument and what is allowed.
        """
        calls = self._calls
        return Session(
            calls.addresses,
            room=RoomSpeaker(
                room_id=self.room_id, join_token=self._token, language=language, name=name
            ),
            audio_format=audio_format,
            features=features,
            pause_detection=pause_detection,
            tls=calls.tls if calls.channels is None else None,
            token=self._bearer,
            metadata=calls.metadata,
            channels=calls.channels,
            reconnect_seconds=reconnect_seconds,
            share_ms=share_ms,
        )

    def listen(
        self,
        *,
        language: str,
        captions: bool = True,
        speech: bool = False,
        original_audio: bool = False,
        name: str = "",
        on_status: OnStatus | None = None,
        reconnect_seconds: float | None = None,
    ) -> Listener:
        """Returns a listener; enter it with `async with`.

        Args:
            language: to listen to.
            captions: whether to receive texts.
            speech: whether to receive translated speech; for speakers of the same language, their
                own voice.
            original_audio: whether to receive the audio of the speakers, whatever their language.
            name: for the list of members.
            on_status: called in the event loop with a `RoomStatus` after joining, and after
                changes, at most once a second. What it raises is logged.
            reconnect_seconds: how long to look for a gateway before giving up. By default 10 s for
                the first connection, and later five minutes.

        Raises:
            ValueError: names the argument and what is allowed.
        """
        if reconnect_seconds is not None:
            check_number("reconnect_seconds", reconnect_seconds, 0, 86_400)
        calls = self._calls
        return Listener(
            join=rooms_pb2.JoinRoom(
                room_id=self.room_id,
                join_token=self._token,
                name=check_text("name", name, MAX_MEMBER_NAME),
                status=on_status is not None,
            ),
            listening=checked_listening(
                language=language,
                captions=captions,
                speech=speech,
                original_audio=original_audio,
            ),
            on_status=on_status,
            addresses=calls.addresses,
            channels=calls.channels or Channels(tls=calls.tls),
            owns_channels=calls.channels is None,
            token=TokenSource(self._bearer),
            metadata=calls.metadata,
            reconnect_seconds=reconnect_seconds,
        )
