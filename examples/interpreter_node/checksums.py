"""Verifies files by their SHA-256 sums."""

import hashlib
from pathlib import Path


class BadDownloadError(Exception):
    """A download is not as expected."""


def check(path: Path, sha256: str, name: str = "") -> None:
    """Raise BadDownloadError if the file has another checksum."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise BadDownloadError(
            f"{name or path.name} has the checksum {found}, but {sha256} is expected:"
            " it is not used"
        )
