"""Each probe means what it should: asked of real services, started as the manifests say."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded import EmbeddedRedis
from tests.k8s.manifests import COMPONENTS, ROOT, Manifests
from tests.k8s.pod_process import WITHIN_S, PodProcess

DOCKERFILE = (ROOT / "Dockerfile").read_text()

# As the Dockerfile has it, but for the process.
HEALTHCHECK = json.loads(re.findall(r"HEALTHCHECK .*\\\n +CMD (.*)", DOCKERFILE)[0])


@pytest.fixture
def pods(dev: Manifests, own_redis: EmbeddedRedis) -> Iterator[list[PodProcess]]:
    """One of each service; they may not be ready yet."""
    instead = {"LINGUA_REDIS_URL": own_redis.url}
    with ExitStack() as stack:
        started: list[PodProcess] = []
        for component in COMPONENTS:
            pod = PodProcess(dev, component, instead=instead)
            started.append(stack.enter_context(pod))
            instead[f"LINGUA_{component.upper()}_ADDRESS"] = f"127.0.0.1:{pod.port}"
        yield started


@pytest.fixture
def no_redis_yet(own_redis: EmbeddedRedis) -> None:
    """It is away when the pods start."""
    own_redis.kill()


@pytest.mark.usefixtures("no_redis_yet")
def test_a_pod_without_redis_has_started_and_lives_but_is_not_ready(
    pods: list[PodProcess], own_redis: EmbeddedRedis
) -> None:
    for pod in pods:
        pod.becomes("startupProbe", passing=True)
        assert pod.passes("livenessProbe")
        assert not pod.passes("readinessProbe")
    own_redis.restart()
    for pod in pods:
        pod.becomes("readinessProbe", passing=True)
    own_redis.kill()
    for pod in pods:
        pod.becomes("readinessProbe", passing=False)
        assert pod.passes("livenessProbe")


def test_a_pod_that_is_told_to_end_is_gone_before_it_would_be_killed(
    pods: list[PodProcess],
) -> None:
    for pod in pods:
        pod.becomes("readinessProbe", passing=True)
    for pod in pods:
        pod.process.send_signal(signal.SIGTERM)
    for pod in pods:
        assert pod.process.wait(pod.ends_within_s) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="it runs in a container")
def test_the_health_check_of_the_image_says_whether_its_service_serves(
    pods: list[PodProcess], own_redis: EmbeddedRedis
) -> None:
    def check(pod: PodProcess, pid: int) -> tuple[int, str]:
        lingua, *arguments = HEALTHCHECK
        arguments[arguments.index("--pid") + 1] = str(pid)
        ran = subprocess.run(
            [Path(sys.executable).with_name(lingua), *arguments],
            env=pod.environ,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert not ran.stderr
        return ran.returncode, ran.stdout.rpartition(" ")[2].strip()

    pool = pods[0]
    pool.becomes("readinessProbe", passing=True)
    assert check(pool, pool.process.pid) == (0, "SERVING")
    own_redis.kill()
    pool.becomes("readinessProbe", passing=False)
    assert check(pool, pool.process.pid) == (1, "NOT_SERVING")
    # A container may run any other command, of which there is no health.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert check(pool, other.pid) == (0, "")
        other.communicate(b"\n")
