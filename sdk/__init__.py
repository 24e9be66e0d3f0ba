"""The SDK: a node for node owners, sessions and rooms for app developers, in ten lines each.

    from lingua_scheduler.sdk import Job, Node, Translated

    node = Node(node_id="gpu-1", asr=["en"], semantic=["en"], tts=["es"], slots=2)

    @node.handler
    async def translate(job: Job):
        yield Translated(source="hello", translated="hola")

    node.run("127.0.0.1:7720")

    from lingua_scheduler.sdk import Session

    async with Session("127.0.0.1:7730", src="en", tgt="es") as session:
        await session.send_file("hello.wav")
        await session.close()
        async for result in session.results():
            ...

    from lingua_scheduler.sdk import Room

    room = Room("127.0.0.1:7730", room_id=room_id, token=join_token)
    async with room.listen(language="es") as listener:
        async for heard in listener:
            ...

`node/`, `session/` and `room/` each have a pure protocol and a shell that runs it over streams.
They share `_transport/` and the modules beside this one. A speaker in a room is a session, so
`room/` imports `session/`; otherwise they never import each other. Of this project the SDK
imports only the contracts (`v1`) and the two modules that it shares with the services (`silence`
and `statuses`), so a node or an app needs no service's code. Services must not import the SDK.
"""

from lingua_scheduler.sdk._transport.channels import Channels
from lingua_scheduler.sdk._transport.tls import Tls
from lingua_scheduler.sdk._transport.tokens import Token
from lingua_scheduler.sdk.audio import AudioFormat, Encoding, opus_packets
from lingua_scheduler.sdk.errors import (
    HeldAudioMissingError,
    HeldTooLargeError,
    JobError,
    ListenerLostError,
    NodeRefusedError,
    RoomError,
    RoomRefusedError,
    RoomUnavailableError,
    SdkError,
    SessionError,
    SessionLostError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk.node.held_audio import HeldAudio, Turn
from lingua_scheduler.sdk.node.job import Job
from lingua_scheduler.sdk.node.node import Health, Node
from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Timing, Translated
from lingua_scheduler.sdk.room.events import (
    Heard,
    LanguageInfo,
    Listening,
    ListeningChanged,
    Member,
    NotSaid,
    Rejoined,
    RoomEvent,
    RoomInfo,
    RoomRole,
    RoomStatus,
    Said,
    SpeakerInfo,
    SpeakPolicy,
)
from lingua_scheduler.sdk.room.listener import Listener
from lingua_scheduler.sdk.room.protocol.state import ListenerCounts
from lingua_scheduler.sdk.room.room import Room
from lingua_scheduler.sdk.session.events import (
    Accepted,
    Event,
    Finalized,
    LanguageMissing,
    Limits,
    Missing,
    Outcome,
    PartialText,
    Problem,
    Receipt,
    Reconnecting,
    Result,
    ResultKind,
    ResultTimings,
    Resumed,
    Retrying,
    Texts,
)
from lingua_scheduler.sdk.session.files import wav_format
from lingua_scheduler.sdk.session.options import PauseDetection
from lingua_scheduler.sdk.session.protocol.state import Counts, Unacknowledged
from lingua_scheduler.sdk.session.session import Session
from lingua_scheduler.sdk.types import Pair, Reason, Stage

__all__ = [
    "Accepted",
    "AudioFormat",
    "Channels",
    "Counts",
    "Encoding",
    "Event",
    "Finalized",
    "Health",
    "Heard",
    "Held",
    "HeldAudio",
    "HeldAudioMissingError",
    "HeldTooLargeError",
    "Job",
    "JobError",
    "LanguageInfo",
    "LanguageMissing",
    "Limits",
    "Listener",
    "ListenerCounts",
    "ListenerLostError",
    "Listening",
    "ListeningChanged",
    "Member",
    "Missing",
    "NoSpeech",
    "Node",
    "NodeRefusedError",
    "NotSaid",
    "Outcome",
    "Pair",
    "Partial",
    "PartialText",
    "PauseDetection",
    "Problem",
    "Reason",
    "Receipt",
    "Reconnecting",
    "Rejoined",
    "Result",
    "ResultKind",
    "ResultTimings",
    "Resumed",
    "Retrying",
    "Room",
    "RoomError",
    "RoomEvent",
    "RoomInfo",
    "RoomRefusedError",
    "RoomRole",
    "RoomStatus",
    "RoomUnavailableError",
    "Said",
    "SdkError",
    "Session",
    "SessionError",
    "SessionLostError",
    "SessionRefusedError",
    "SessionUnavailableError",
    "SpeakPolicy",
    "SpeakerInfo",
    "Stage",
    "Texts",
    "Timing",
    "Tls",
    "Token",
    "Translated",
    "Turn",
    "Unacknowledged",
    "opus_packets",
    "wav_format",
]
