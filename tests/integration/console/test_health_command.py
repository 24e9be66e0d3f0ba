"""`lingua health --pid` of a console: what the health check of its container runs."""

import subprocess

from tests.support.commands import LINGUA
from tests.support.ports import free_port
from tests.support.process import START_S, CommandProcess, environment


def test_it_says_whether_the_console_serves() -> None:
    environ = environment(
        console_listen=f"127.0.0.1:{free_port()}",
        console_metrics_listen="",
        console_health_listen=f"127.0.0.1:{free_port()}",
    )
    with CommandProcess("console", [*LINGUA, "serve", "console"], env=environ) as console:

        def check(**instead: str) -> list[str]:
            command = [*LINGUA, "health", "--pid", str(console.process.pid)]
            ran = subprocess.run(
                command, env={**environ, **instead}, capture_output=True, text=True, timeout=START_S
            )
            return [str(ran.returncode), *ran.stdout.split()[::2]]

        serves = ["0", "console", "SERVING"]
        console.wait_for(lambda: check() == serves, "serving", START_S)
        assert check(LINGUA_CONSOLE_HEALTH_LISTEN="") == serves
        assert check(http_proxy="http://127.0.0.1:1") == serves
        nobody = check(LINGUA_CONSOLE_HEALTH_LISTEN="127.0.0.1:1")
        assert nobody[:3] == ["3", "console", "UNAVAILABLE:"]
