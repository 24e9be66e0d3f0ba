"""The built wheel, installed elsewhere: Lua, generated code and guard are inside it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_the_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    elsewhere = tmp_path / "elsewhere"
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
        archive.extractall(elsewhere)
    assert {name.split("-")[0] for name in top} == {"lingua_scheduler"}

    settings = {
        f"LINGUA_{service}_{what}": "127.0.0.1:0"
        for service in ("POOL", "DISPATCHER", "GATEWAY")
        for what in ("LISTEN", "METRICS_LISTEN")
    }
    settings["LINGUA_GATEWAY_WEB_LISTEN"] = "127.0.0.1:0"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, **settings, "PYTHONPATH": str(elsewhere)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert Path(told["file"]).is_relative_to(elsewhere)
    assert told["services"] == ["pool", "dispatcher", "gateway"]


PROGRAM = """
import json
import lingua_scheduler
from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
with LocalScheduler() as scheduler:
    services = [each.name for each in scheduler.services]
print(json.dumps({"file": lingua_scheduler.__file__, "services": services}))
"""
