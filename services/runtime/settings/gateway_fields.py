"""Settings of the session gateway."""

from pydantic import BaseModel

from lingua_scheduler.services.runtime.settings.field_types import HOUR_MS, whole


class GatewayFields(BaseModel):
    """How speech is cut into utterances, and how results are delivered."""

    pause_ms: int = whole(3000, 100, 600_000, "ms without audio after which an utterance ends")
    voice_pause_ms: int = whole(
        800,
        100,
        600_000,
        "ms without voice after which an utterance ends, in sessions with voice detection",
    )
    max_duration_ms: int = whole(10_000, 500, 600_000, "ms of audio after which an utterance ends")
    max_length_bytes: int = whole(
        512_000, 1024, 1_966_080, "bytes of audio after which an utterance ends"
    )
    hangover_manual_ms: int = whole(
        200, 0, 10_000, "ms in which late audio still joins an utterance that the app ended"
    )
    hangover_auto_ms: int = whole(
        150, 0, 10_000, "ms in which late audio still joins an utterance that a limit ended"
    )
    padding_manual_ms: int = whole(
        200, 0, 10_000, "ms of silence added to an utterance that the app ended"
    )
    padding_auto_ms: int = whole(
        150, 0, 10_000, "ms of silence added to an utterance that a limit ended"
    )
    short_merge_ms: int = whole(
        400,
        0,
        10_000,
        "ms below which a fragment that a pause ended joins the next utterance",
    )
    short_wait_ms: int = whole(
        10_000, 0, 600_000, "ms that such a fragment waits for the next utterance"
    )
    result_deadline_ms: int = whole(
        30_000, 100, HOUR_MS, "ms from the end of an utterance after which its result is missing"
    )
    redis_outage_max_ms: int = whole(
        300_000,
        0,
        24 * HOUR_MS,
        "ms without Redis that do not count towards result_deadline_ms",
    )
    result_queue_max: int = whole(
        200, 1, 100_000, "results of a session that are kept until the client has seen them"
    )
    session_utterances_max: int = whole(
        16, 1, 100_000, "utterances of a session under way; further audio is not read"
    )
    session_idle_ms: int = whole(
        1_800_000,
        1000,
        24 * HOUR_MS,
        "ms without a message of the client after which a session is closed",
    )
    held_audio_max_bytes: int = whole(
        1_500_000,
        0,
        2 * 1024 * 1024,
        "bytes of audio kept for an unfinished sentence, in case its node is lost",
    )
    held_audio_total_bytes: int = whole(
        256 * 1024 * 1024, 0, 1 << 40, "bytes of such audio of all sessions of a gateway"
    )
    resume_within_ms: int = whole(
        300_000, 1000, 24 * HOUR_MS, "ms within which a disconnected session can be resumed"
    )
