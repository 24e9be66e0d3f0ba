"""Files and folders that only their owner can read, whatever the umask is."""

import os
import secrets
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
        file.write(content)


def write_over(path: Path, content: bytes) -> None:
    """Write or replace a file atomically: readers see either the old or the new content.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        write_new(new, content)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Create a folder; an existing one is not changed.

    Raises:
        OSError: it cannot be created.
    """
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
