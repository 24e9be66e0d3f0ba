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

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
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
            instead[f"LINGUA_{component.upper()}_ADDRESS"] = f"127.0.0.1:{pod.ports[component]}"
        yield started


# What is not the matter here: who may call.
OPEN = {
    "LINGUA_AUTH": "off",
    "LINGUA_LISTEN_WITHOUT_AUTH": "yes",
    **{f"LINGUA_TLS_{each}": "" for each in ("CERT_FILE", "KEY_FILE", "CA_FILE", "SERVER_NAME")},
}


@pytest.fixture
def whole(small: Manifests, own_redis: EmbeddedRedis) -> Iterator[PodProcess]:
    """A pod with all services; it may not be ready yet."""
    with PodProcess(small, "gateway", instead={"LINGUA_REDIS_URL": own_redis.url, **OPEN}) as pod:
        yield pod


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


@pytest.mark.usefixtures("no_redis_yet")
def test_a_pod_with_all_services_is_ready_if_and_only_if_all_of_them_serve(
    whole: PodProcess, own_redis: EmbeddedRedis
) -> None:
    whole.becomes("startupProbe", passing=True)
    assert whole.passes("livenessProbe")
    assert not whole.passes("readinessProbe")
    assert whole.serving() == [False] * 3
    own_redis.restart()
    whole.becomes("readinessProbe", passing=True)
    assert whole.serving() == [True] * 3
    own_redis.kill()
    whole.becomes("readinessProbe", passing=False)
    assert whole.serving() == [False] * 3
    assert whole.passes("livenessProbe")
    own_redis.restart()
    whole.becomes("readinessProbe", passing=True)
    whole.process.send_signal(signal.SIGTERM)
    assert whole.process.wait(whole.ends_within_s) == 0


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
def test_the_health_check_of_the_image_says_whether_its_services_serve(
    pods: list[PodProcess], whole: PodProcess, own_redis: EmbeddedRedis
) -> None:
    def check(pod: PodProcess, pid: int) -> tuple[int, list[str]]:
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
        return ran.returncode, [line.rpartition(" ")[2] for line in ran.stdout.splitlines()]

    pool = pods[0]
    for pod, services in ((pool, 1), (whole, 3)):
        pod.becomes("readinessProbe", passing=True)
        assert check(pod, pod.process.pid) == (0, ["SERVING"] * services)
    own_redis.kill()
    for pod, services in ((pool, 1), (whole, 3)):
        pod.becomes("readinessProbe", passing=False)
        assert check(pod, pod.process.pid) == (1, ["NOT_SERVING"] * services)
    # A container may run any other command, of which there is no health.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert check(pool, other.pid) == (0, [])
        other.communicate(b"\n")
