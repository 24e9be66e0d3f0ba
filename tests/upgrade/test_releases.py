"""Which release is the last one, in clones of all kinds."""

import subprocess
from pathlib import Path

import pytest

from tests.support.nursery import ROOT
from tests.upgrade.mutations import CHANGES, Change
from tests.upgrade.releases import NoReleaseError, git, last_release

NAME = ("-c", "user.name=Ana", "-c", "user.email=ana@localhost")
QUIET = ("-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, and no release."""
    made = tmp_path / "made"
    subprocess.run(["git", "init", "--quiet", str(made)], check=True)
    commit(made, "Begin")
    return made


def commit(repository: Path, subject: str) -> str:
    words = ("commit", "--quiet", "--allow-empty", "--message", subject)
    git(repository, *NAME, *QUIET, *words)
    return git(repository, "rev-parse", "HEAD")


def test_it_is_the_highest_tag_below_head(repository: Path) -> None:
    first = commit(repository, "Ninth")
    git(repository, "tag", "v0.9.0")
    last = commit(repository, "Tenth")
    git(repository, *NAME, *QUIET, "tag", "--annotate", "--message", "ten", "v0.10.0")
    commit(repository, "Release 0.11.0")
    assert last_release(repository) == last
    git(repository, "checkout", "--quiet", first)
    assert last_release(repository) == first


def test_without_tags_it_is_the_newest_commit_with_the_subject_of_a_release(
    repository: Path,
) -> None:
    commit(repository, "Release 0.2.0")
    last = commit(repository, "Release 0.3.0")
    commit(repository, "Release 0.4.0 soon")
    assert last_release(repository) == last


def test_without_a_release_it_says_how_to_get_one(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(NoReleaseError, match="UPGRADE_FROM"):
        last_release(repository)
    commit(repository, "Release 0.2.0")
    commit(repository, "Go on")
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow)]
    subprocess.run(clone, check=True, capture_output=True)
    with pytest.raises(NoReleaseError, match="git fetch --unshallow --tags"):
        last_release(shallow)
    with pytest.raises(NoReleaseError, match="no clone"):
        last_release(tmp_path)


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.what)
def test_a_change_fits_its_source(change: Change) -> None:
    """One that does not would be noticed only by the next long run."""
    for file, old, _ in change.edits:
        assert old in (ROOT / file).read_text()
