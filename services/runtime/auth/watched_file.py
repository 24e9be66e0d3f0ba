"""A file of keys or tokens, which is reloaded if it changes."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from lingua_scheduler.services.runtime.errors import SettingsError

# Least time between two checks of the file.
_CHECK_EVERY_S = 1.0

Content = TypeVar("Content")

_log = logging.getLogger(__name__)


class WatchedFile(Generic[Content]):
    """The content of a file. If a change cannot be read, it is logged and the old content stays.

    Args:
        path: the file. Links are followed, so that whole folders can be swapped.
        variable: the environment variable that names it, for error messages.
        parse: parses the bytes; raises ValueError that says what is wrong.

    Raises:
        SettingsError: the file cannot be read at the start.
    """

    def __init__(self, *, path: str, variable: str, parse: Callable[[bytes], Content]) -> None:
        self._path = Path(path).expanduser()
        self._variable = variable
        self._parse = parse
        self.version = 0
        """Incremented with every change."""
        self._seen = self._look()
        self._looked_at = time.monotonic()
        try:
            self._content = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(self._words(error)) from None

    def get(self) -> Content:
        """The content, at most a second old."""
        now = time.monotonic()
        if now - self._looked_at >= _CHECK_EVERY_S:
            self._looked_at = now
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._read_again()
        return self._content

    def _read_again(self) -> None:
        try:
            self._content = self._read()
        except (OSError, ValueError) as error:
            _log.error("file reload failed", extra={"reason": self._words(error)})
            return
        self.version += 1
        facts = {"variable": self._variable, "path": str(self._path)}
        _log.info("file reloaded", extra=facts)

    def _read(self) -> Content:
        return self._parse(self._path.read_bytes())

    def _look(self) -> tuple[int, int, int] | None:
        """Differs if the file has changed; None if it does not exist."""
        try:
            stat = os.stat(self._path)
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _words(self, error: OSError | ValueError) -> str:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"{self._variable}={str(self._path)!r}: {problem}"
