"""Checks of clients' messages that concern several fields, or the state of the session."""

from lingua_scheduler.services.runtime.contract.checks import Check
from lingua_scheduler.services.session_gateway.session.voice_activity import RATES
from lingua_scheduler.v1 import common_pb2, session_pb2


def checked_new(opened: session_pb2.NewSession) -> session_pb2.NewSession:
    """Checks a new session, and returns it with languages in lower case.

    Raises:
        InvalidMessageError: names every bad field.
    """
    check = Check("open.new.")
    kept = session_pb2.NewSession()
    kept.CopyFrom(opened)
    match opened.WhichOneof("languages"):
        case "direction":
            kept.direction.CopyFrom(_lower(opened.direction.src, opened.direction.tgt))
        case "conversation":
            a, b = opened.conversation.a.lower(), opened.conversation.b.lower()
            if a == b:
                check.no("conversation.b", f"{b[:40]!r} must differ from a")
            kept.conversation.CopyFrom(session_pb2.LanguageSet(a=a, b=b))
        case "room":
            kept.room.language = opened.room.language.lower()
            if opened.options.preferred_node_id:
                # All languages of all speakers would wait for one node.
                check.no("options.preferred_node_id", "must be empty in a room")
        case _:
            check.no("languages", "must be a direction, a conversation or a room")
    options = opened.options
    check.preference(options.preferred_node_id, options.strict, "options.")
    if options.pause_detection == session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY:
        _check_voice_format(check, opened.audio_format)
    check.done()
    return kept


def _check_voice_format(check: Check, audio: common_pb2.AudioFormat) -> None:
    """Checks that voice detection supports this audio."""
    asked = "with options.pause_detection VOICE_ACTIVITY"
    if audio.encoding != common_pb2.AUDIO_ENCODING_PCM_S16LE:
        check.no("audio_format.encoding", f"must be PCM_S16LE {asked}")
    if audio.sample_rate_hz not in RATES:
        rates = ", ".join(map(str, RATES))
        check.no(
            "audio_format.sample_rate_hz", f"{audio.sample_rate_hz} must be one of {rates} {asked}"
        )
    if audio.channels != 1:
        check.no("audio_format.channels", f"{audio.channels} must be 1 {asked}")


def check_open(message: session_pb2.ClientMessage) -> None:
    """Checks the first message of a stream. Raises InvalidMessageError."""
    check = Check()
    if message.WhichOneof("message") != "open":
        check.no("open", "must be the first message of a stream")
    elif message.open.WhichOneof("start") is None:
        check.no("open", "must be new or resume")
    check.done()


def check_seen(resume: session_pb2.ResumeSession, *, seen: int, created: int) -> None:
    """Checks how many results a client claims to have seen against the record of its session.

    Args:
        resume: the claim.
        seen: how many it had confirmed before; those results are gone.
        created: how many utterances it may have been told of.

    Raises:
        InvalidMessageError: the claim is lower than `seen` or higher than `created`.
    """
    if not seen <= resume.results_seen <= created:
        check = Check("open.resume.")
        told = f"{resume.results_seen} must be from {seen} (confirmed before) to {created}"
        check.no("results_seen", told)
        check.done()


def _lower(src: str, tgt: str) -> common_pb2.LanguagePair:
    return common_pb2.LanguagePair(src=src.lower(), tgt=tgt.lower())
