"""Checks of what clients and operators send."""

from lingua_scheduler.services.runtime.checks import Check
from lingua_scheduler.services.session_gateway.voice_activity import RATES
from lingua_scheduler.v1 import common_pb2, session_pb2

_MAX_PARTIAL_INTERVAL_MS = 60_000
_MAX_TOKEN_CHARS = 256
# More than any session has: a client that claims more is not to be believed.
_MAX_UTTERANCES = 2**31
# Redis scripts count to here.
_MAX_SEQ = 2**53


def checked_new(opened: session_pb2.NewSession) -> session_pb2.NewSession:
    """A new session as it is kept: languages in lower case.

    Raises:
        InvalidMessageError: names every bad field.
    """
    check = Check("open.new.")
    kept = session_pb2.NewSession()
    kept.CopyFrom(opened)
    match opened.WhichOneof("languages"):
        case "direction":
            check.pair("direction", opened.direction)
            kept.direction.CopyFrom(_lower(opened.direction.src, opened.direction.tgt))
        case "conversation":
            a, b = opened.conversation.a.lower(), opened.conversation.b.lower()
            check.language("conversation.a", opened.conversation.a)
            check.language("conversation.b", opened.conversation.b)
            if a == b:
                check.no("conversation.b", f"{b[:40]!r} must be another language than a")
            kept.conversation.CopyFrom(session_pb2.LanguageSet(a=a, b=b))
        case _:
            check.no("languages", "must be a direction or a conversation")
    check.audio_format("audio_format", opened.audio_format)
    options = opened.options
    check.preference(options.preferred_node_id, options.strict, "options.")
    check.features("options.features", options.features)
    check.number(
        "options.partial_interval_ms", options.partial_interval_ms, 0, _MAX_PARTIAL_INTERVAL_MS
    )
    check.one_of(
        "options.pause_detection",
        options.pause_detection,
        session_pb2.PauseDetection.values(),
        "GAPS or VOICE_ACTIVITY",
    )
    if options.pause_detection == session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY:
        _check_audible(check, opened.audio_format)
    check.id("tenant", opened.tenant, optional=True)
    check.done()
    return kept


def _check_audible(check: Check, audio: common_pb2.AudioFormat) -> None:
    """Voice can be found in this audio."""
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


def check_resume(resume: session_pb2.ResumeSession) -> None:
    """Checks what a client says of its session. Raises InvalidMessageError."""
    check = Check("open.resume.")
    check.id("session_id", resume.session_id)
    if not resume.resume_token:
        check.no("resume_token", "must not be empty")
    check.text("resume_token", resume.resume_token, _MAX_TOKEN_CHARS)
    check.number("results_seen", resume.results_seen, 0, _MAX_UTTERANCES)
    check.number("next_seq", resume.next_seq, 0, _MAX_SEQ)
    check.done()


def check_open(message: session_pb2.ClientMessage) -> None:
    """Checks the first message of a stream. Raises InvalidMessageError."""
    check = Check()
    if message.WhichOneof("message") != "open":
        check.no("open", "must be the first message of a stream")
    elif message.open.WhichOneof("start") is None:
        check.no("open", "must be new or resume")
    check.done()


def check_get(request: session_pb2.GetSessionRequest) -> None:
    """Checks an operator's question. Raises InvalidMessageError."""
    check = Check()
    check.id("session_id", request.session_id)
    check.done()


def check_list(request: session_pb2.ListSessionsRequest) -> None:
    """Checks a page of sessions. Raises InvalidMessageError."""
    check = Check()
    check.id("tenant", request.tenant, optional=True)
    check.number("page_size", request.page_size, 0, 1000)
    check.cursor("page_token", request.page_token)
    check.done()


def _lower(src: str, tgt: str) -> common_pb2.LanguagePair:
    return common_pb2.LanguagePair(src=src.lower(), tgt=tgt.lower())
