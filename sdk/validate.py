"""Checks of arguments that nodes, sessions and rooms share, by the rules of the contract."""

import re

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")


def check_id(name: str, value: object) -> str:
    """Returns the id. Raises ValueError if it is not 1 to 128 safe characters."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(f"{name}: {value!r} must be 1 to 128 characters of A-Z a-z 0-9 . _ -")
    return value


def check_language(name: str, value: object) -> str:
    """Returns the language code. Raises ValueError if it is malformed."""
    if not isinstance(value, str) or not _LANGUAGE.fullmatch(value):
        raise ValueError(f"{name}: {value!r} must be a language code such as 'en' or 'zh-hant'")
    return value


def check_text(name: str, value: object, most: int) -> str:
    """Returns the text. Raises ValueError if it is no text, or too long."""
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{name}: must be text of at most {most} characters")
    return value


def check_number(name: str, value: object, least: float, most: float) -> None:
    """Raises ValueError if the value is not a number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name}: {value!r} must be a number from {least:g} to {most:g}")
