"""Converts messages of the rooms' contract. No I/O, no clock.

A newer server may send enum values that this version does not know. Each function says what it
returns for them.
"""

from collections.abc import Iterable

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.room.events import (
    LanguageInfo,
    Listening,
    ListeningChanged,
    Member,
    NotSaid,
    RoomInfo,
    RoomRole,
    RoomStatus,
    Said,
    SpeakerInfo,
    SpeakPolicy,
)
from lingua_scheduler.sdk.session.protocol.wire import kind_from, known_format, texts_from
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, rooms_pb2

NOT_KEPT = "NOT_KEPT"


def listening_message(listening: Listening) -> rooms_pb2.Listening:
    """Returns what a listener receives as a message."""
    return rooms_pb2.Listening(
        language=listening.language,
        captions=listening.captions,
        speech=listening.speech,
        original_audio=listening.original_audio,
    )


def listening_from(message: rooms_pb2.Listening) -> Listening:
    """Returns what a listener receives."""
    return Listening(
        language=message.language,
        captions=message.captions,
        speech=message.speech,
        original_audio=message.original_audio,
    )


def said_from(message: rooms_pb2.RoomResult) -> Said:
    """Returns an utterance."""
    return Said(
        room_index=message.room_index,
        speaker=message.speaker,
        session_id=message.session_id,
        language=message.language,
        spoken_language=message.spoken_language,
        kind=kind_from(message.kind),
        texts=texts_from(message.texts),
        speech=message.speech,
        speech_format=_format(message.speech_format, message.HasField("speech_format")),
        original_audio=message.original_audio,
        original_format=_format(message.original_format, message.HasField("original_format")),
        joined=tuple(message.joined_indexes),
        lost=tuple(message.lost_indexes),
        turn_broken=message.turn_broken,
        replayed=message.replayed,
        cut_at_ms=message.cut_at_ms,
        audio_ms=message.audio_ms,
        published_ms=message.published_ms,
    )


def not_said_from(message: rooms_pb2.RoomMissing) -> NotSaid:
    """Returns one missing utterance, or several."""
    why = message.why
    unknown = why.reason == common_pb2.ERROR_REASON_UNSPECIFIED
    return NotSaid(
        room_index=message.room_index,
        until_index=max(message.room_index + 1, message.until_index),
        language=message.language,
        # No reason of the contract says that something is no longer kept.
        reason=NOT_KEPT if unknown and message.until_index else reason_name(why.reason),
        message=why.message,
        speaker=message.speaker,
        session_id=message.session_id,
        spoken_language=message.spoken_language,
        lost=tuple(message.lost_indexes),
        replayed=message.replayed,
    )


def changed_from(message: rooms_pb2.ListeningChanged) -> ListeningChanged:
    """Returns a change of what the listener receives."""
    return ListeningChanged(listening=listening_from(message.listening), position=message.position)


def status_from(message: rooms_pb2.RoomStatus) -> RoomStatus:
    """Returns who is in the room."""
    return RoomStatus(
        listeners=message.listeners,
        languages=_languages(message.languages),
        speakers=_speakers(message.speakers),
    )


def room_from(message: rooms_pb2.Room) -> RoomInfo:
    """Returns a room. A policy that this version does not know becomes INVITED."""
    options = message.options
    anyone = options.speak == rooms_pb2.SPEAK_POLICY_ANYONE
    return RoomInfo(
        room_id=message.room_id,
        tenant=message.tenant,
        name=options.name,
        allowed_languages=tuple(options.languages),
        speak=SpeakPolicy.ANYONE if anyone else SpeakPolicy.INVITED,
        max_members=options.max_members,
        max_speakers=options.max_speakers,
        max_languages=options.max_languages,
        created_ms=message.created_ms,
        next_index=message.next_index,
        listeners=message.listeners,
        speakers=_speakers(message.speakers),
        languages=_languages(message.languages),
        gateway_instances=tuple(message.gateway_instances),
    )


def member_from(message: rooms_pb2.Member) -> Member:
    """Returns a member. A role that this version does not know becomes LISTENER."""
    speaks = message.role == rooms_pb2.ROOM_ROLE_SPEAKER
    return Member(
        name=message.name,
        role=RoomRole.SPEAKER if speaks else RoomRole.LISTENER,
        language=message.language,
        listening=listening_from(message.listening) if message.HasField("listening") else None,
        joined_ms=message.joined_ms,
        gateway_instance=message.gateway_instance,
    )


def _speakers(messages: Iterable[rooms_pb2.RoomSpeakerInfo]) -> tuple[SpeakerInfo, ...]:
    return tuple(
        SpeakerInfo(
            session_id=each.session_id,
            name=each.name,
            language=each.language,
            joined_ms=each.joined_ms,
        )
        for each in messages
    )


def _languages(messages: Iterable[rooms_pb2.RoomLanguage]) -> tuple[LanguageInfo, ...]:
    return tuple(
        LanguageInfo(
            language=each.language,
            listeners=each.listeners,
            speech_listeners=each.speech_listeners,
            waiting=each.waiting,
            oldest_waiting_ms=each.oldest_waiting_ms,
        )
        for each in messages
    )


def _format(message: common_pb2.AudioFormat, is_set: bool) -> AudioFormat | None:
    return known_format(message) if is_set else None
