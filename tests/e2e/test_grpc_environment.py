"""`lingua` sets up gRPC before it loads it; a service also works with gRPC's own defaults."""

import json
import os
import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

LOAD = """
import json, os, sys
from lingua_scheduler.cli.app import app
assert "grpc" not in sys.modules
app.get_command(None, sys.argv[1])
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("GRPC_")}))
"""
OFF = "-event_engine_client,-event_engine_listener"


def environment(**variables: str) -> dict[str, str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GRPC_")}
    return {**environ, **variables}


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        ("serve", {}, {"GRPC_EXPERIMENTS": OFF}),
        ("serve", {"GRPC_EXPERIMENTS": "theirs"}, {"GRPC_EXPERIMENTS": "theirs"}),
        ("nodes", {}, {"GRPC_VERBOSITY": "NONE"}),
        ("nodes", {"GRPC_VERBOSITY": "debug"}, {"GRPC_VERBOSITY": "debug"}),
    ],
)
def test_variables_are_set_before_grpc_is_loaded_unless_they_are_given(
    command: str, given: dict[str, str], expected: dict[str, str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOAD, command],
        env=environment(**given),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ended.stdout) == expected


@pytest.mark.parametrize("experiments", [OFF, "event_engine_client,event_engine_listener", "-gone"])
def test_a_service_serves_with_the_event_engine_and_without_it(
    redis_url: str, prefix: str, experiments: str
) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "lingua_scheduler.cli",
            "serve",
            "pool",
            "--announce",
            "--until-eof",
        ],
        env=environment(
            GRPC_EXPERIMENTS=experiments,
            LINGUA_REDIS_URL=redis_url,
            LINGUA_REDIS_PREFIX=prefix,
            LINGUA_POOL_LISTEN="127.0.0.1:0",
            LINGUA_POOL_METRICS_LISTEN="",
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = json.loads(process.stdout.readline())["address"]
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        process.stdin.close()
        process.stdout.close()
        assert process.wait(60) == 0
