"""tools/set-up makes an environment, leaves a good one alone, and rebuilds one that is not.

The environment is real. It gets one small package, from a folder, so that no test needs a network.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "set-up"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
# A build backend that has one wheel.
BACKEND = """
import shutil

def build_editable(folder, config_settings=None, metadata_directory=None):
    shutil.copy("wheels/project-1.0-py3-none-any.whl", folder)
    return "project-1.0-py3-none-any.whl"
"""


class Checkout:
    """A folder with the script, a project and a lock of one package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / ".venv"
        (folder / "tools").mkdir(parents=True)
        shutil.copy(SCRIPT, folder / "tools")
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (folder / "backend.py").write_text(BACKEND)
        (folder / "wheels").mkdir()
        self._wheel("project", "1.0")
        self.lock("1.0")

    def lock(self, version: str) -> None:
        """Makes this version of a package the only thing that is locked."""
        digest = hashlib.sha256(self._wheel("small", version).read_bytes()).hexdigest()
        (self.folder / "all.lock").write_text(f"small=={version} --hash=sha256:{digest}\n")

    def _wheel(self, name: str, version: str) -> Path:
        wheel, info = f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": f"VERSION = '{version}'\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(self.folder / "wheels" / wheel, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return self.folder / "wheels" / wheel

    def set_up(self, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Runs the script there, with settings of pip or PYTHON."""
        env = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.folder / "wheels"),
            **settings,
        }
        command = ["tools/set-up", *options, ".venv/.ready", "all.lock"]
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=100
        )

    def installed(self) -> str:
        """The version of the package, as the environment's Python sees it."""
        program = "import project, small; print(small.VERSION)"
        command = [self.venv / "bin" / "python", "-c", program]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One with a good environment; a test that damages it has it rebuilt."""
    made = Checkout(tmp_path_factory.mktemp("set-up") / "checkout")
    ran = made.set_up()
    assert ran.returncode == 0, ran.stderr
    assert made.installed() == "1.0"
    return made


def test_a_good_environment_is_left_alone(checkout: Checkout) -> None:
    assert checkout.set_up("--check").returncode == 0
    ran = checkout.set_up(PYTHON="/no/such/python")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def lose_python(checkout: Checkout) -> None:
    for each in (checkout.venv / "bin").glob("python*"):
        each.unlink()
        each.symlink_to("/no/such/python")


def grow_old(checkout: Checkout) -> None:
    python = checkout.venv / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho 3.10\nexit 1\n")
    python.chmod(0o755)


def interrupt(checkout: Checkout) -> None:
    (checkout.venv / ".unfinished").touch()


def half_make(checkout: Checkout) -> None:
    (checkout.venv / ".origin").unlink()


def copy_from_elsewhere(checkout: Checkout) -> None:
    origin = checkout.venv / ".origin"
    origin.write_text(origin.read_text().replace(str(checkout.folder), "/else/where"))


def update_python(checkout: Checkout) -> None:
    (checkout.venv / ".origin").write_text(f"3.10 {checkout.venv}\n")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lose_python, "its Python is gone"),
        (grow_old, "its Python is too old: 3.10"),
        (interrupt, "an installation was interrupted"),
        (half_make, "it is half-made, or was made by another tool"),
        (copy_from_elsewhere, "it is from another folder or Python"),
        (update_python, "it is from another folder or Python"),
    ],
    ids=lambda given: given.__name__ if callable(given) else None,
)
def test_it_sees_that_an_environment_is_no_good(
    checkout: Checkout, damage: Callable[[Checkout], None], why: str
) -> None:
    kept = checkout.folder / "kept"
    shutil.copytree(checkout.venv / "bin", kept, symlinks=True)
    origin = (checkout.venv / ".origin").read_text()
    damage(checkout)
    ran = checkout.set_up("--check")
    assert (ran.returncode, ran.stdout.strip()) == (1, why)
    shutil.rmtree(checkout.venv / "bin")
    kept.rename(checkout.venv / "bin")
    (checkout.venv / ".origin").write_text(origin)
    (checkout.venv / ".unfinished").unlink(missing_ok=True)
    assert checkout.set_up("--check").returncode == 0


def test_an_environment_that_is_no_good_is_rebuilt(checkout: Checkout) -> None:
    lose_python(checkout)
    ran = checkout.set_up()
    assert ran.returncode == 0, ran.stderr
    assert "Rebuilding .venv: its Python is gone." in ran.stderr
    assert checkout.installed() == "1.0"
    assert checkout.set_up("--check").returncode == 0


def test_no_network_is_said_in_these_words_and_the_environment_stays_good(
    checkout: Checkout,
) -> None:
    before = (checkout.folder / "all.lock").read_text()
    checkout.lock("1.1")
    # Nobody listens on port 9.
    index = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    ran = checkout.set_up(**index, PIP_RETRIES="1")
    assert ran.returncode == 1
    assert "No network: pip could not reach the package index" in ran.stderr
    assert "pip config set global.proxy" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert checkout.set_up("--check").stdout.strip() == "there are packages to install"
    (checkout.folder / "all.lock").write_text(before)


def test_a_changed_lock_is_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.lock("2.0")
    ran = checkout.set_up()
    assert ran.returncode == 0, ran.stderr
    assert "Rebuilding" not in ran.stderr
    assert checkout.installed() == "2.0"


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/no/such/python", "there is no /no/such/python"),
        ("./old-python", "./old-python is 3.10"),
    ],
)
def test_without_a_python_that_is_new_enough_it_says_so(
    tmp_path: Path, python: str, why: str
) -> None:
    checkout = Checkout(tmp_path / "checkout")
    old = checkout.folder / "old-python"
    old.write_text("#!/bin/sh\necho 3.10\nexit 1\n")
    old.chmod(0o755)
    ran = checkout.set_up(PYTHON=python)
    assert ran.returncode == 1
    assert "needs Python 3.11 or newer" in ran.stderr
    assert why in ran.stderr
    assert not checkout.venv.exists()
