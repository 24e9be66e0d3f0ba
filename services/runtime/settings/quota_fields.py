"""Settings of what one tenant, or one owner of nodes, may use."""

from pydantic import BaseModel

from lingua_scheduler.services.runtime.settings.field_types import whole

# One gateway process carries about 1000 people who speak all the time (docs/performance.md). A
# tenant gets a fifth of that: enough for most, and no tenant fills a gateway by itself.
_SESSIONS_OF_A_TENANT = 200
# One job per session: people take turns, and a node translates an utterance faster than the next
# one is spoken.
_JOBS_OF_A_TENANT = _SESSIONS_OF_A_TENANT
# As much as these sessions can say without a pause. Only speech that is sent faster than people
# speak exceeds the limit.
_AUDIO_S_PER_MINUTE_OF_A_TENANT = 60 * _SESSIONS_OF_A_TENANT
# A room with one speaker and four languages has as many jobs as four sessions.
_ROOMS_OF_A_TENANT = _SESSIONS_OF_A_TENANT // 4


class QuotaFields(BaseModel):
    """Limits of one tenant, unless its token has others; 0 means no limit.

    Callers without a tenant share the limits of one tenant. See also WITHOUT_AUTH.
    """

    quota_sessions: int = whole(
        _SESSIONS_OF_A_TENANT,
        0,
        10_000_000,
        "concurrent sessions per tenant (0: no limit, the default if auth is off)",
    )
    quota_jobs: int = whole(
        _JOBS_OF_A_TENANT,
        0,
        10_000_000,
        "jobs in flight per tenant (0: no limit, the default if auth is off)",
    )
    quota_audio_s_per_minute: int = whole(
        _AUDIO_S_PER_MINUTE_OF_A_TENANT,
        0,
        4_000_000,
        "seconds of speech per tenant and minute (0: no limit, the default if auth is off)",
    )
    quota_rooms: int = whole(
        _ROOMS_OF_A_TENANT,
        0,
        1_000_000,
        "rooms per tenant (0: no limit, the default if auth is off)",
    )


# Defaults if auth is off. Callers then choose their tenant themselves, so a limit per tenant
# protects nobody; it would only stop the one user of a laptop.
WITHOUT_AUTH: dict[str, int] = dict.fromkeys(QuotaFields.model_fields, 0)


class OwnerFields(BaseModel):
    """Limits of one owner of nodes, if their tokens name an owner; 0: no limit."""

    owner_nodes: int = whole(100, 0, 1_000_000, "connected nodes per owner (0: no limit)")
    owner_slots: int = whole(
        1000, 0, 100_000_000, "slots of all nodes of one owner together (0: no limit)"
    )
