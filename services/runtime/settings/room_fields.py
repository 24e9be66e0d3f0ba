"""Settings of rooms."""

from pydantic import BaseModel

from lingua_scheduler.services.runtime.settings.field_types import HOUR_MS, whole


class RoomFields(BaseModel):
    """Limits of rooms, and what is kept of them. A room may have lower limits of its own."""

    room_members_max: int = whole(2000, 2, 1_000_000, "members of a room, speakers and listeners")
    room_speakers_max: int = whole(8, 1, 10_000, "speakers of a room at the same time")
    room_languages_max: int = whole(
        16, 1, 1000, "distinct languages of a room that are listened to at the same time"
    )
    room_replay_captions: int = whole(
        10, 0, 1000, "captions that somebody who joins a room gets first"
    )
    room_captions_max: int = whole(
        200, 1, 100_000, "captions that are kept for each language of a room"
    )
    room_speech_ms: int = whole(
        30_000, 1000, HOUR_MS, "ms that speech is kept for listeners who reconnect"
    )
    room_resume_ms: int = whole(
        15_000,
        0,
        HOUR_MS,
        "ms that a listener whose stream has broken is still translated for",
    )
    room_lease_ms: int = whole(
        15_000, 1000, HOUR_MS, "ms without a sign of life after which a gateway's members are gone"
    )
    room_idle_ms: int = whole(
        HOUR_MS, 1000, 24 * HOUR_MS, "ms after which a room without members is deleted"
    )
