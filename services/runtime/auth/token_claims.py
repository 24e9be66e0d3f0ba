"""Makes a principal from the claims of a token or the URI of a certificate. Pure."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lingua_scheduler.services.runtime.auth.principals import Principal, Role
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2

# Difference allowed between the clocks of two machines.
LEEWAY_S = 10

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OWNER = re.compile(r"[A-Za-z0-9_-]{1,127}")
_MAX_NAME = 256
# The year 9999. Later times are mistakes, and too large for timers.
_MAX_TIME_S = 253_402_300_799
# The largest limits. Speech is counted in milliseconds, in 32 bits.
MAX_LIMITS = {
    "sessions": 10_000_000,
    "jobs": 10_000_000,
    "audio_s_per_minute": 4_000_000,
    "rooms": 1_000_000,
}
# Those that a token or a certificate can state. Members have tokens of their room.
_ROLES = [role for role in Role if role is not Role.MEMBER]


class BadClaimsError(ValueError):
    """The claims are not valid. The message names the claim and quotes nothing of the token."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What every token must name, and the limits of tenants whose tokens have none."""

    audience: str
    issuer: str
    quotas: Mapping[str, int]

    @classmethod
    def of(cls, settings: Settings) -> "ClaimRules":
        """The rules of the settings."""
        return cls(
            audience=settings.auth_audience,
            issuer=settings.auth_issuer,
            quotas={name: getattr(settings, f"quota_{name}") for name in MAX_LIMITS},
        )


def principal_of(claims: Mapping[str, Any], rules: ClaimRules, now_s: float) -> Principal:
    """The principal that these claims name; the caller has checked the signature.

    Raises:
        BadClaimsError: the claims are not valid now, or not for this scheduler.
    """
    expires_s = _check_times(claims, now_s)
    _check_audience(claims.get("aud"), rules.audience)
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise BadClaimsError(f"its issuer (iss) is not {rules.issuer!r}")
    name = claims.get("sub", "")
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        raise BadClaimsError(f"its sub must be text of at most {_MAX_NAME} characters")
    said = claims.get("role")
    if said is None:
        raise BadClaimsError(f"it has no role; expected one of {', '.join(_ROLES)}")
    if said not in _ROLES:
        raise BadClaimsError(f"its role must be one of {', '.join(_ROLES)}")
    role, tenant, node_id, owner, limits = Role(said), "", "", "", None
    if role is Role.CLIENT:
        tenant = _id(claims, "tenant")
        limits = _limits(claims.get("limits"), rules.quotas)
    elif role is Role.NODE:
        if ("node_id" in claims) == ("owner" in claims):
            raise BadClaimsError("a token of role node needs either a node_id or an owner")
        if "node_id" in claims:
            node_id = _id(claims, "node_id")
        else:
            owner = _owner(claims["owner"])
    return Principal(
        role=role,
        name=name,
        tenant=tenant,
        node_id=node_id,
        owner=owner,
        limits=limits,
        expires_s=expires_s,
    )


def principal_of_uri(uri: str) -> Principal | None:
    """The principal that the URI of a certificate names; None if its scheme is not `lingua`.

    Raises:
        BadClaimsError: the scheme is `lingua`, but the rest is malformed.
    """
    scheme, colon, rest = uri.partition(":")
    if scheme.lower() != "lingua" or not colon:
        return None
    kind, _, name = rest.partition("/")
    if kind == "owner" and _OWNER.fullmatch(name):
        return Principal(role=Role.NODE, name=uri, owner=name)
    if kind not in _ROLES or not _ID.fullmatch(name):
        raise BadClaimsError(
            f"the URI {uri[:200]!r} in the certificate must be lingua:service/NAME, "
            "lingua:operator/NAME, lingua:viewer/NAME, lingua:client/TENANT, lingua:node/NODE-ID "
            "or lingua:owner/OWNER"
        )
    role = Role(kind)
    return Principal(
        role=role,
        name=uri,
        tenant=name if role is Role.CLIENT else "",
        node_id=name if role is Role.NODE else "",
    )


def _check_times(claims: Mapping[str, Any], now_s: float) -> float:
    """Returns when the token expires, including the leeway."""
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise BadClaimsError("it has no exp (time of expiry)")
    if now_s >= expires_s + LEEWAY_S:
        raise BadClaimsError("it has expired; get a new one")
    for name in ("nbf", "iat"):
        from_s = _time(claims, name)
        if from_s is not None and now_s < from_s - LEEWAY_S:
            ahead = math.ceil(from_s - now_s)
            raise BadClaimsError(f"it is not valid yet ({name} is {ahead} s ahead)")
    return expires_s + LEEWAY_S


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= _MAX_TIME_S:
        raise BadClaimsError(f"its {name} must be a time in seconds since 1970")
    return float(value)


def _check_audience(said: Any, audience: str) -> None:
    named = said if isinstance(said, list) else [said]
    if audience not in named:
        raise BadClaimsError(f"its audience (aud) is not {audience!r}")


def _id(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if value is None:
        raise BadClaimsError(f"a token of role {claims['role']} needs a {name}")
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BadClaimsError(f"its {name} must be 1 to 128 characters of A-Z a-z 0-9 . _ -")
    return value


def _owner(value: Any) -> str:
    if not isinstance(value, str) or not _OWNER.fullmatch(value):
        raise BadClaimsError(
            "its owner must be 1 to 127 characters of A-Z a-z 0-9 _ - (no dot, because a dot ends "
            "the owner's name in node ids)"
        )
    return value


def _limits(said: Any, quotas: Mapping[str, int]) -> common_pb2.TenantLimits | None:
    if said is None:
        return None
    if not isinstance(said, dict) or not set(said) <= set(MAX_LIMITS):
        raise BadClaimsError(f"its limits must be an object of {', '.join(MAX_LIMITS)}")
    for name, value in said.items():
        if not isinstance(value, int) or not _is_number(value) or value < 0:
            raise BadClaimsError(f"its limits.{name} must be a whole number (0: no limit)")
        if value > MAX_LIMITS[name]:
            raise BadClaimsError(f"its limits.{name} must be at most {MAX_LIMITS[name]}")
    # The settings apply to the limits that the token does not name.
    limits = {name: min(quotas[name], most) for name, most in MAX_LIMITS.items()} | said
    return common_pb2.TenantLimits(
        sessions=limits["sessions"],
        jobs=limits["jobs"],
        audio_ms_per_minute=limits["audio_s_per_minute"] * 1000,
        rooms=limits["rooms"],
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
