"""The languages that may be used: ISO 639 codes, unless LINGUA_LANGUAGES has a list."""

import re
from collections.abc import Callable, Collection

from lingua_scheduler.services.runtime.contract.language_codes import ISO_639

DEFAULT = "iso639"
"""Stands for the default list in LINGUA_LANGUAGES."""

_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}")
# A language, optionally with a script (ISO 15924) and a region (ISO 3166 or UN M49).
_VARIANT = re.compile(r"([a-z]{2,3})(?:-[a-z]{4})?(?:-(?:[a-z]{2}|[0-9]{3}))?")
# ISO 639 reserves qaa to qtz for local use.
_LOCAL = re.compile(r"q[a-t][a-z]")

# Codes that are remembered as allowed, in the spelling of the caller.
_REMEMBERED = 4096
# Most codes that an error lists.
_LISTED = 20


def parse_languages(setting: str) -> frozenset[str]:
    """The entries of LINGUA_LANGUAGES, in lower case. Raises ValueError if one is not a code."""
    entries = frozenset(entry.strip().lower() for entry in setting.split(",") if entry.strip())
    if any(entry != DEFAULT and not _TAG.fullmatch(entry) for entry in entries):
        raise ValueError
    return entries


def is_iso_639(code: str) -> bool:
    """Whether a lower-case code is in ISO 639, alone or with a script or a region."""
    parts = _VARIANT.fullmatch(code)
    return parts is not None and (parts[1] in ISO_639 or _LOCAL.fullmatch(parts[1]) is not None)


class _Remembered(dict[str, bool]):
    """Remembers the codes that are allowed."""

    def __init__(self, judge: Callable[[str], bool]) -> None:
        self._judge = judge

    def __missing__(self, code: str) -> bool:
        if not self._judge(code):
            return False
        if len(self) >= _REMEMBERED:
            self.clear()
        self[code] = True
        return True


class Languages:
    """The languages that may be used."""

    def __init__(self) -> None:
        self._allowed: Collection[str] = frozenset((DEFAULT,))
        self._remembered = _Remembered(self._judge)
        self.allows: Callable[[str], bool] = self._remembered.__getitem__
        """Whether a code is allowed, in upper or lower case."""

    def allow(self, entries: Collection[str]) -> None:
        """Replaces the list, see `parse_languages`; empty for the default list."""
        self._allowed = entries or frozenset((DEFAULT,))
        self._remembered.clear()

    def expected(self) -> str:
        """The allowed languages, for errors."""
        codes = sorted(set(self._allowed) - {DEFAULT})
        listed = ", ".join(codes[:_LISTED])
        if len(codes) > _LISTED:
            listed += f" (and {len(codes) - _LISTED} more)"
        if DEFAULT not in self._allowed:
            return f"one of the languages allowed here: {listed}"
        iso = "an ISO 639 language code such as 'en', 'pt-br' or 'zh-hant'"
        return f"{iso}, or one of: {listed}" if codes else iso

    def _judge(self, code: str) -> bool:
        if not _TAG.fullmatch(code):
            return False
        code = code.lower()
        return code in self._allowed or (DEFAULT in self._allowed and is_iso_639(code))


LANGUAGES = Languages()
"""The languages of this process. `run_services` sets them."""
