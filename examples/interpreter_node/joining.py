"""Joins files that the registries have only in pieces."""

import shutil
import tempfile
from pathlib import Path

from interpreter_node.checksums import BadDownloadError, check
from interpreter_node.parts import Whole


def pieces_are_there(whole: Whole, folder: Path) -> bool:
    """Whether it can be joined now."""
    return all((folder / name).is_file() for name in whole.pieces)


def join(whole: Whole, folder: Path) -> None:
    """Join the pieces and remove them. The whole file appears atomically.

    Raises:
        BadDownloadError: the whole file has another checksum. The pieces are removed as well, so
            the next download starts clean.
    """
    pieces = [folder / name for name in whole.pieces]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".joining-") as place:
        target = Path(place) / "whole"
        with target.open("wb") as into:
            for piece in pieces:
                with piece.open("rb") as file:
                    shutil.copyfileobj(file, into)
        try:
            check(target, whole.sha256, whole.name)
        except BadDownloadError:
            _remove(pieces)
            raise
        target.replace(folder / whole.name)
    _remove(pieces)


def _remove(pieces: list[Path]) -> None:
    for piece in pieces:
        piece.unlink()
