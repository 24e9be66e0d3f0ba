"""Checks the parameters of a request, and names those that are wrong."""

import re
from collections.abc import Collection, Mapping

from lingua_scheduler.services.runtime.contract.text_formats import ID, shown
from lingua_scheduler.services.runtime.errors import InvalidMessageError

DEFAULT_LIMIT, MAX_LIMIT = 50, 200
MAX_OFFSET = 1_000_000
MAX_SEARCH_CHARS = 128
# The latest time that a message of the contract may have.
MAX_TIME_MS = 2**53
_NUMBER = re.compile(r"[0-9]{1,17}")
_ID = re.compile(ID)
_LANGUAGE = re.compile(r"[A-Za-z0-9-]{1,35}|\*")
_PRINTABLE = "must be printable text"


class Query:
    """Reads parameters one by one; `done` raises if any of them, or another one, is wrong.

    Args:
        given: names and values.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._left = dict(given)
        self._problems: list[tuple[str, str]] = []

    def done(self) -> None:
        """Raises InvalidMessageError if a parameter is wrong or unknown."""
        for name in list(self._left)[:10]:
            self._wrong(name[:MAX_SEARCH_CHARS], "is not a parameter of this document")
        if self._problems:
            field, problem = self._problems[0]
            raise InvalidMessageError(f"{field} {problem}", fields=self._problems)

    def text(self, name: str) -> str:
        """Text to search for; "" if it is not given."""
        value = self._left.pop(name, "").strip()
        if len(value) > MAX_SEARCH_CHARS:
            self._wrong(name, f"must have at most {MAX_SEARCH_CHARS} characters")
        elif not value.isprintable():
            self._wrong(name, _PRINTABLE)
        return value

    def id(self, name: str) -> str:
        """An id; "" if it is not given."""
        value = self._left.pop(name, "")
        return self.required_id(name, value) if value else ""

    def required_id(self, name: str, value: str) -> str:
        """An id that is given otherwise, as in the path."""
        if not _ID.fullmatch(value):
            self._wrong(name, f"{shown(value)} must be 1 to 128 characters of A-Z a-z 0-9 . _ -")
        return value

    def language(self, name: str) -> str:
        """A language code in lower case; "" if it is not given."""
        value = self._left.pop(name, "")
        if value and not _LANGUAGE.fullmatch(value):
            self._wrong(name, f"{shown(value)} must be a language code such as en or zh-hant")
        return value.lower()

    def choice(self, name: str, allowed: Collection[str], default: str = "") -> str:
        """One of these values."""
        value = self._left.pop(name, "") or default
        if value and value not in allowed:
            self._wrong(name, f"{shown(value)} must be one of {', '.join(allowed)}")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        """1 or 0."""
        return self.choice(name, ("0", "1"), "1" if default else "0") == "1"

    def number(self, name: str, low: int, high: int, default: int) -> int:
        """A whole number."""
        value = self._left.pop(name, "")
        if not value:
            return default
        if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
            self._wrong(name, f"{shown(value)} must be a number from {low} to {high}")
            return default
        return int(value)

    def time(self, name: str) -> int:
        """A time in ms; 0 if it is not given."""
        return self.number(name, 0, MAX_TIME_MS, 0)

    def offset(self) -> int:
        """Where the page begins."""
        return self.number("offset", 0, MAX_OFFSET, 0)

    def limit(self) -> int:
        """The most rows of the page."""
        return self.number("limit", 1, MAX_LIMIT, DEFAULT_LIMIT)

    def _wrong(self, name: str, problem: str) -> None:
        self._problems.append((name, problem))
