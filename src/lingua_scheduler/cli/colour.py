"""Whether output may have colours, and whether lines may be rewritten in place.

Imports nothing of `cli`, because every start of `lingua` needs this module.
"""

import os
import sys
from typing import TextIO


def colour_wanted() -> bool | None:
    """False if the environment forbids colours; None leaves it to click: only on a terminal."""
    return False if os.environ.get("NO_COLOR") or is_dumb() else None


def is_dumb() -> bool:
    """Whether the terminal says that it can do nothing but print."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def can_rewrite(stream: TextIO | None = None) -> bool:
    """Whether a person looks at the stream (by default stdout), and lines can be rewritten."""
    return (stream or sys.stdout).isatty() and not is_dumb()
