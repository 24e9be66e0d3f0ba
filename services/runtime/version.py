"""The version of this software."""

from functools import cache
from importlib import metadata

PACKAGE = "lingua-scheduler"


@cache
def version() -> str:
    """The version of the installed package, such as "0.2.0"."""
    return metadata.version(PACKAGE)
