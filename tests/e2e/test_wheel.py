"""The built wheel, installed elsewhere: Lua, generated code, guard and talk page are inside it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

from lingua_scheduler.services.session_gateway.web.talk_page import page_files
from tests.support.page_references import load_page

CHECKOUT = Path(__file__).parents[2]
PAGE = "lingua_scheduler/services/session_gateway/web/page"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "elsewhere")
    return folder / "elsewhere"


def started(elsewhere: Path) -> subprocess.Popen[str]:
    """Starts everything from the wheel. It says where it is, and runs until its input ends."""
    settings = {
        f"LINGUA_{service}_{what}": "127.0.0.1:0"
        for service in ("POOL", "DISPATCHER", "GATEWAY")
        for what in ("LISTEN", "METRICS_LISTEN")
    }
    settings["LINGUA_GATEWAY_WEB_LISTEN"] = "127.0.0.1:0"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=elsewhere.parent,
        env={**os.environ, **settings, "PYTHONPATH": str(elsewhere)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fetch(address: str) -> tuple[str, str]:
    with urlopen(address, timeout=30) as response:
        return response.headers["Content-Type"], response.read().decode()


def test_the_wheel_works_without_the_checkout_and_serves_the_whole_talk_page(
    elsewhere: Path,
) -> None:
    top = {path.name.split("-")[0] for path in elsewhere.iterdir()}
    assert top == {"lingua_scheduler"}
    with started(elsewhere) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line:
            told = json.loads(line)
            loaded = load_page(f"http://{told['web']}/", fetch)
            for path in page_files():
                fetch(f"http://{told['web']}{path}")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert Path(told["file"]).is_relative_to(elsewhere)
    assert told["services"] == ["pool", "dispatcher", "gateway"]
    assert loaded <= set(page_files())


def test_an_installation_without_the_files_of_the_page_does_not_start_and_says_why(
    elsewhere: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(elsewhere, tmp_path / "broken")
    shutil.rmtree(broken / PAGE)
    with started(broken) as process:
        said, errors = process.communicate(timeout=60)
    assert process.returncode != 0, said
    assert "the files of the talk page cannot be read" in errors
    assert "LINGUA_TALK_PAGE=no" in errors


PROGRAM = """
import json
import sys
import lingua_scheduler
from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
with LocalScheduler(on_log=lambda *line: print(*line, file=sys.stderr)) as scheduler:
    services = {each.name: each.web for each in scheduler.services}
    told = {
        "file": lingua_scheduler.__file__,
        "services": list(services),
        "web": services["gateway"],
    }
    print(json.dumps(told), flush=True)
    sys.stdin.read()
"""
