"""The lock files agree with each other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def locked(name: str) -> set[tuple[str, str]]:
    """Names and versions; a package may have one version for each Python."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_the_lock_for_development_has_all_of_the_others(name: str) -> None:
    assert locked(name)
    assert locked(name) <= locked("requirements-dev.lock")


def test_the_interpreter_has_the_same_versions_as_the_scheduler() -> None:
    interpreter = locked("requirements-interpreter.lock")
    assert locked("requirements.lock") <= interpreter


def test_what_running_needs_has_no_tools_for_development() -> None:
    names = {name for name, _ in locked("requirements.lock")}
    assert not names & {"pytest", "ruff", "mypy", "uv", "hatchling", "grpcio-tools", "numpy"}
