"""`make release` refuses what should not be released. tools/try-install builds what it builds.

And tools/set-version writes the version wherever it is.
"""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the files that a release needs, of version 1.2.3, committed."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "release").write_bytes((ROOT / "tools" / "release").read_bytes())
    (tmp_path / "tools" / "release").chmod(0o755)
    # In place of the build: the real one fetches packages.
    dist = tmp_path / "tools" / "make-dist"
    dist.write_text('#!/bin/sh\nmkdir "$1" && echo built >"$1/SHA256SUMS"\n')
    dist.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / ".gitignore").write_text("dist\n")
    changes = "# Changelog\n\n## [1.2.3] - 2026-01-02\n\n- Rain.\n\n## [1.2.2]\n\n- Sun.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "Ana")
    git(tmp_path, "config", "user.email", "ana@localhost")
    git(tmp_path, "config", "tag.gpgSign", "false")
    commit(tmp_path, "Release 1.2.3")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", "--all")
    git(folder, "-c", "commit.gpgSign=false", "commit", "--quiet", "--message", subject)


def release(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["tools/release"], cwd=folder, capture_output=True, text=True)


def test_it_builds_and_tags_with_the_text_of_the_changelog(clone: Path) -> None:
    done = release(clone)
    assert done.returncode == 0, done.stderr
    assert (clone / "dist" / "SHA256SUMS").read_text() == "built\n"
    tagged = git(clone, "tag", "--list", "--format=%(contents)", "v1.2.3")
    assert tagged.split() == ["Lingua", "Scheduler", "1.2.3", "-", "Rain."]


def test_what_is_not_committed_is_not_released(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text("changed")
    refused(clone, "not committed")


def test_a_version_without_changes_is_not_released(clone: Path) -> None:
    (clone / "pyproject.toml").write_text('[project]\nversion = "1.2.4"\n')
    commit(clone, "Release 1.2.4")
    refused(clone, "CHANGELOG.md says nothing about 1.2.4")


def test_a_version_under_development_is_not_released(clone: Path) -> None:
    (clone / "pyproject.toml").write_text('[project]\nversion = "1.3.0.dev0"\n')
    commit(clone, "Release 1.3.0.dev0")
    refused(clone, "1.3.0.dev0 in pyproject.toml is no version of a release")


def test_a_commit_with_another_subject_is_not_released(clone: Path) -> None:
    (clone / "README.md").write_text("More.")
    commit(clone, "Say more")
    refused(clone, "the subject of the last commit is not 'Release 1.2.3'")


def test_a_version_is_released_once(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")
    refused(clone, "v1.2.3 is tagged already")


def refused(clone: Path, why: str) -> None:
    before = git(clone, "tag", "--list")
    done = release(clone)
    assert done.returncode == 1
    assert why in done.stderr
    assert git(clone, "tag", "--list") == before
    assert not (clone / "dist").exists()


def test_a_version_is_written_wherever_the_old_one_is_and_nowhere_else(clone: Path) -> None:
    (clone / "tools" / "set-version").write_bytes((ROOT / "tools" / "set-version").read_bytes())
    (clone / "tools" / "set-version").chmod(0o755)
    chart = "version: 1.2.3\nappVersion: {}\n"
    image = "ARG VERSION={0}\n# lingua-scheduler:{0} serve\nnewTag: {0}\nredis:1.2.3\n"
    (clone / "Chart.yaml").write_text(chart.format("1.2.3"))
    (clone / "Dockerfile").write_text(image.format("1.2.3"))
    (clone / "other").write_text("lingua-scheduler:1.2.30\n")
    (clone / "sdk" / "js").mkdir(parents=True)
    manifest, lock = (clone / "sdk" / "js" / name for name in ("package.json", "package-lock.json"))
    own = '{{\n  "name": "client",\n  "version": "{}",\n'
    locked = own + '  "packages": {{\n    "": {{\n      "name": "client",\n      "version": "{}",\n'
    others = "\n" * 3 + '      "version": "1.2.3",\n'
    manifest.write_text(own.format("1.2.3"))
    lock.write_text(locked.format("1.2.3", "1.2.3") + others)
    commit(clone, "Add files")
    for version, of_npm in (("1.3.0.dev0", "1.3.0-dev.0"), ("1.3.0", "1.3.0")):
        subprocess.run(["tools/set-version", version], cwd=clone, check=True)
        assert f'version = "{version}"' in (clone / "pyproject.toml").read_text()
        assert (clone / "Chart.yaml").read_text() == chart.format(version)
        assert (clone / "Dockerfile").read_text() == image.format(version)
        assert (clone / "other").read_text() == "lingua-scheduler:1.2.30\n"
        assert manifest.read_text() == own.format(of_npm)
        assert lock.read_text() == locked.format(of_npm, of_npm) + others


@pytest.mark.parametrize("wrong", ["", "1.2", "v1.2.3", "1.2.3-rc1", "1.2.3/e"])
def test_what_is_no_version_is_written_nowhere(wrong: str) -> None:
    tool = ROOT / "tools" / "set-version"
    done = subprocess.run([tool, wrong], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"'{wrong}' is no version" in done.stderr
