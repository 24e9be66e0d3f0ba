"""The Redis that `lingua up` starts is for its own user alone."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def scheduler(**settings: str) -> LocalScheduler:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
    return LocalScheduler(environ={**environ, **settings})


@pytest.mark.usefixtures("open_umask")
def test_it_listens_on_no_port_and_only_its_user_can_open_its_socket(tmp_path: Path) -> None:
    up = scheduler(LINGUA_REDIS_DIR=str(tmp_path / "data"))
    try:
        up.start_redis()
        path = Path(up.redis_url.removeprefix("unix://"))
        with Redis.from_url(up.redis_url) as client:
            assert client.config_get("port")["port"] == "0"
            client.set("secret", "speech")
        assert path.stat().st_mode & OTHERS == 0
        assert path.parent.stat().st_mode & OTHERS == 0
        written = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
        assert any(each.name.endswith(".aof") for each in written)
        readable = [each for each in written if each.stat().st_mode & OTHERS]
        # The lock has nothing in it.
        assert [each.name for each in readable if each.name != "lingua.lock"] == []
    finally:
        up.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.usefixtures("open_umask")
def test_another_user_of_the_machine_cannot_connect() -> None:
    up = scheduler()
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    try:
        up.start_redis()
        path = up.redis_url.removeprefix("unix://")
        command = [sys.executable, "-I", "-S", "-c", connect, path]
        subprocess.run(command, check=True, timeout=30)
        stranger = subprocess.run(
            ["/usr/bin/env", "python3", "-I", "-S", "-c", connect, path],
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            timeout=30,
        )
        assert b"PermissionError" in stranger.stderr
    finally:
        up.stop()


def test_a_long_path_to_temporary_files_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    up = scheduler()
    try:
        up.start_redis()
        with Redis.from_url(up.redis_url) as client:
            assert client.ping()
    finally:
        up.stop()
    assert list(folder.iterdir()) == []
