"""How the fields of all groups of settings are declared."""

from typing import Any, Literal

from pydantic import Field

HOUR_MS = 3_600_000

OffOrOn = Literal["off", "on"]


def field(default: object, description: str, allowed: str, **constraints: Any) -> Any:
    """A setting.

    Args:
        default: of the stable profile.
        description: its meaning and unit, as `lingua config` prints it.
        allowed: what a bad value is told.
        constraints: those of pydantic's Field.
    """
    return Field(
        default=default,
        description=description,
        json_schema_extra={"allowed": allowed},
        **constraints,
    )


def whole(default: int, low: int, high: int, description: str) -> Any:
    """A setting that is a whole number from `low` to `high`."""
    allowed = f"must be a whole number from {low} to {high}"
    return field(default, description, allowed, ge=low, le=high)


def lower(value: object) -> object:
    """Accepts names in any case, with spaces around."""
    return value.strip().lower() if isinstance(value, str) else value
