"""Finds the last release, and makes an environment that has it installed.

The release is the highest tag `v*` below HEAD. In a clone without tags it is the newest commit with
the subject `Release X.Y.Z` (docs/releasing.md). UPGRADE_FROM names another commit, or a wheel.

An environment has the release's wheel, and borrows all other packages from the one of the tests. It
is kept in .venv/releases, by commit, so that it is made once.
"""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.nursery import ROOT, Nursery

KEPT = Path(sys.prefix) / "releases"
_SUBJECT = re.compile(r"Release \d+\.\d+\.\d+")


class NoReleaseError(Exception):
    """There is no release to upgrade from; the message says how to get one."""


class UnknownReleaseError(Exception):
    """UPGRADE_FROM names nothing that is here."""


@dataclass(frozen=True)
class Release:
    """An installed version.

    Attributes:
        name: "old" or "new".
        python: the interpreter that imports it.
        tree: the folder whose `tests` fit it.
        version: such as "0.2.0".
    """

    name: str
    python: str
    tree: Path
    version: str

    @property
    def nursery(self) -> Nursery:
        """Forks processes of this version."""
        return _nursery(self.python, self.tree)


@cache
def _nursery(python: str, tree: Path) -> Nursery:
    return Nursery(python, tree)


def last_release(repository: Path = ROOT) -> str:
    """The commit to upgrade from. Raises NoReleaseError."""
    if not (repository / ".git").exists():
        raise NoReleaseError("this is no clone: set UPGRADE_FROM to the wheel of a release")
    tags = git(repository, "tag", "--merged", "HEAD", "--list", "v[0-9]*", "--sort=-v:refname")
    if tags:
        return git(repository, "rev-parse", f"{tags.split()[0]}^{{commit}}")
    for line in git(repository, "log", "--format=%H %s").splitlines():
        commit, _, subject = line.partition(" ")
        if _SUBJECT.fullmatch(subject):
            return commit
    if git(repository, "rev-parse", "--is-shallow-repository") == "true":
        raise NoReleaseError("this clone is shallow: git fetch --unshallow --tags")
    raise NoReleaseError(
        "HEAD has no tag v* and no commit 'Release X.Y.Z' below it: set UPGRADE_FROM to a commit"
    )


def old_release() -> Release:
    """The release to upgrade from, installed. Raises NoReleaseError, UnknownReleaseError."""
    wanted = os.environ.get("UPGRADE_FROM", "")
    if not wanted:
        return installed(last_release())
    if wanted.endswith(".whl"):
        wheel = Path(wanted).resolve()
        if not wheel.is_file():
            raise UnknownReleaseError(f"UPGRADE_FROM={wanted}: there is no such file")
        return installed(hashlib.sha256(wheel.read_bytes()).hexdigest(), wheel)
    found = git(ROOT, "rev-list", "--max-count=1", "--ignore-missing", wanted, "--")
    if not found:
        raise UnknownReleaseError(f"UPGRADE_FROM={wanted}: this clone has no such commit or tag")
    return installed(found)


def new_release(tree: Path = ROOT) -> Release:
    """The working tree, as it is installed for the tests; or a copy of it, built and installed."""
    if tree == ROOT:
        return Release("new", sys.executable, ROOT, version_of(sys.executable))
    folder = Path(tempfile.mkdtemp(prefix="release-", dir=tree.parent))
    return _described("new", _install(folder, _wheel(tree, folder)), tree)


def installed(identity: str, wheel: Path | None = None) -> Release:
    """A commit, or a wheel, in an environment of its own."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    kept = KEPT / f"{identity[:16]}-{here}"
    if not kept.exists():
        KEPT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=KEPT) as folder:
            making = Path(folder) / "made"
            making.mkdir()
            if wheel is None:
                _extract(identity, making / "tree")
                wheel = _wheel(making / "tree", making)
            _install(making, wheel)
            try:
                making.rename(kept)
            except OSError:
                # Another process was faster.
                assert kept.exists()
    # Test programs use private parts of the SDK, so each release has those of its own tests.
    tree = kept / "tree"
    return _described("old", kept, tree if (tree / "tests" / "upgrade").is_dir() else ROOT)


def version_of(python: str) -> str:
    """The version that an environment has."""
    code = "from importlib.metadata import version; print(version('lingua-scheduler'))"
    return _run(python, "-c", code)


def _described(name: str, folder: Path, tree: Path) -> Release:
    python = str(folder / "env" / "bin" / "python")
    where = _run(python, "-c", "import lingua_scheduler; print(lingua_scheduler.__file__)")
    assert Path(where).is_relative_to(folder), f"{where} is not the release in {folder}"
    return Release(name, python, tree, version_of(python))


def _extract(commit: str, tree: Path) -> None:
    archive = tree.with_suffix(".tar")
    _run("git", "-C", str(ROOT), "archive", "--output", str(archive), commit)
    with tarfile.open(archive) as tar:
        tar.extractall(tree, filter="data")
    archive.unlink()


def _wheel(tree: Path, folder: Path) -> Path:
    build = ["-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    _run(sys.executable, *build, "--outdir", str(folder), str(tree))
    (wheel,) = folder.glob("*.whl")
    return wheel


def _install(folder: Path, wheel: Path) -> Path:
    env = folder / "env"
    _run(sys.executable, "-m", "venv", "--without-pip", str(env))
    python = str(env / "bin" / "python")
    pip = ["-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    _run(sys.executable, *pip, "--no-deps", "--no-index", str(wheel))
    # A path from a .pth file comes last, and the .pth files in it do not count: the release hides
    # the working tree, which is installed there by such a file.
    (site,) = env.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def git(repository: Path, *words: str) -> str:
    """What git says about a repository."""
    return _run("git", "-C", str(repository), *words)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{said[-4000:]}"
    return done.stdout.strip()
