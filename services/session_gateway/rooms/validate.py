"""Checks of listeners' messages that concern several fields."""

from lingua_scheduler.services.runtime.contract.checks import Check
from lingua_scheduler.v1 import rooms_pb2


def first_join(message: rooms_pb2.ListenerMessage | None) -> rooms_pb2.JoinRoom:
    """The first message of a stream. Raises InvalidMessageError."""
    check = Check()
    if message is None or message.WhichOneof("message") != "join":
        check.no("join", "must be the first message of a stream")
    elif message.join.HasField("position") and not message.join.member_id:
        check.no("join.member_id", "must be set to resume at a position")
    check.done()
    assert message is not None
    return message.join


def checked_listening(asked: rooms_pb2.Listening, path: str) -> rooms_pb2.Listening:
    """Checks what a listener wants, and returns it with the language in lower case.

    Raises:
        InvalidMessageError: it wants nothing.
    """
    check = Check(path)
    if not (asked.captions or asked.speech or asked.original_audio):
        check.no("captions", "one of captions, speech and original_audio must be true")
    check.done()
    return rooms_pb2.Listening(
        language=asked.language.lower(),
        captions=asked.captions,
        speech=asked.speech,
        original_audio=asked.original_audio,
    )
