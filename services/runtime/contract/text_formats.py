"""Formats of ids, language codes and other texts (limits.proto: TextFormat)."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from lingua_scheduler.services.runtime.contract.languages import LANGUAGES
from lingua_scheduler.v1 import limits_pb2

ID = r"[A-Za-z0-9._-]{1,128}"
_PAGE_TOKEN = re.compile(r"[0-9]{1,20}")


def _is_page_token(text: str) -> bool:
    """Whether a text is a 64-bit number, as cursors of Redis are."""
    return _PAGE_TOKEN.fullmatch(text) is not None and int(text) < 2**64


@dataclass(frozen=True, kw_only=True)
class Format:
    """A text format.

    Attributes:
        fits: whether a text has the format.
        fits_or_empty: whether a text has the format or is empty.
        expected: describes the format, for errors.
    """

    fits: Callable[[str], object]
    fits_or_empty: Callable[[str], object]
    expected: Callable[[], str]


def _matching(pattern: str, expected: str) -> Format:
    # Bound methods of patterns cost half as much as a function around them.
    return Format(
        fits=re.compile(pattern).fullmatch,
        fits_or_empty=re.compile(f"(?:{pattern})?").fullmatch,
        expected=lambda: expected,
    )


def _language_or_any(text: str) -> bool:
    return text == "*" or LANGUAGES.allows(text)


TEXT_FORMATS: dict[limits_pb2.TextFormat.ValueType, Format] = {
    limits_pb2.TEXT_FORMAT_ID: _matching(ID, "1 to 128 characters of A-Z a-z 0-9 . _ -"),
    limits_pb2.TEXT_FORMAT_LANGUAGE: Format(
        fits=LANGUAGES.allows,
        fits_or_empty=lambda text: not text or LANGUAGES.allows(text),
        expected=LANGUAGES.expected,
    ),
    limits_pb2.TEXT_FORMAT_LANGUAGE_OR_ANY: Format(
        fits=_language_or_any,
        fits_or_empty=lambda text: not text or _language_or_any(text),
        expected=lambda: f"{LANGUAGES.expected()}, or '*'",
    ),
    limits_pb2.TEXT_FORMAT_PAGE_TOKEN: Format(
        fits=_is_page_token,
        fits_or_empty=lambda text: not text or _is_page_token(text),
        expected=lambda: "taken from an earlier response",
    ),
    limits_pb2.TEXT_FORMAT_CAUSE: _matching("[A-Z0-9_]{1,64}", "1 to 64 characters of A-Z 0-9 _"),
    limits_pb2.TEXT_FORMAT_JOB_TYPE: _matching(
        "[a-z0-9_]{1,32}", "1 to 32 characters of a-z 0-9 _"
    ),
}


def shown(value: str) -> str:
    """A value for an error message, truncated."""
    return repr(value if len(value) <= 40 else value[:40] + "...")
