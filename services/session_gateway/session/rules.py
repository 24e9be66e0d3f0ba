"""The limits and durations of a session."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lingua_scheduler.services.runtime.settings.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """Each is the setting of the same name; durations are in ms."""

    pause_ms: float
    voice_pause_ms: float
    max_duration_ms: float
    max_length_bytes: int
    hangover_manual_ms: float
    hangover_auto_ms: float
    padding_manual_ms: int
    padding_auto_ms: int
    short_merge_ms: float
    short_wait_ms: float
    result_deadline_ms: float
    redis_outage_max_ms: float
    result_queue_max: int
    session_utterances_max: int
    session_idle_ms: float
    held_audio_max_bytes: int

    @classmethod
    def from_settings(cls, settings: Settings) -> SessionRules:
        """Takes the rules from the settings."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})
