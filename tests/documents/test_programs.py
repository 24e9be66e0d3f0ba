"""Every Python block of the documents runs as printed, beside a real scheduler.

Three things are put in place of what is printed: addresses, since the test's scheduler has free
ports; the folder /etc/lingua; and names that the text leaves to the reader (`SUPPLIED`). Functions
that a block only defines are called (`DRIVERS`). With TLS, programs build their objects and do not
connect; tests/unit/sdk/test_docs.py has peers with TLS for them.
"""

import ast
import builtins
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from tests.support.commands import LINGUA, WITHIN_S, environment

from .blocks import ROOT, Block, blocks, blocks_of

SUPPLIED = {
    "recognise": """
async def recognise(audio, language):
    return f"{len(audio)} bytes of {language}"
""",
    "translate_text": """
async def translate_text(text, language):
    return f"{text}, in {language}"
""",
    "ask_your_login_server": """
async def ask_your_login_server():
    return "token"
""",
}
DRIVERS = {
    "talk": """
async def microphone():
    yield "ana", bytes(16000)
    yield "ben", bytes(16000)

asyncio.run(talk(microphone()))
""",
    "session_of_a_user": "session_of_a_user('token')",
    "session_of_this_service": "session_of_this_service()",
    "long_session": "long_session()",
}

NODES = [block for block in blocks("python") if "node.run(" in block.code]
OTHERS = [block for block in blocks("python") if block not in NODES]


def missing_names(code: str) -> set[str]:
    """Names that a program uses and never makes."""
    tree = ast.parse(code)
    used, made = set(), set(dir(builtins))
    for each in ast.walk(tree):
        match each:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.MatchAs(name=str(name)):
                made.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                made.add(name)
            case ast.alias():
                made.add(each.asname or each.name.split(".")[0])
    return used - made


def to_run(block: Block, scheduler: LocalScheduler) -> str:
    """The block with addresses that answer, what its reader supplies, and who calls it."""
    code = block.code
    for port, service in (("7720", "dispatcher"), ("7730", "gateway")):
        code = re.sub(rf'"[^"\s]*:{port}"', repr(scheduler.addresses(service)), code)
    supplied = "".join(SUPPLIED[name] for name in sorted(missing_names(code)))
    defined = re.findall(r"^(?:async )?def (\w+)", code, re.MULTILINE)
    drivers = "".join(f"\n{DRIVERS[name]}\n" for name in defined if name in DRIVERS)
    return supplied + code + drivers


def is_driven(block: Block) -> bool:
    """Whether anything of it runs: it does something itself, or all that it defines is called."""
    body = ast.parse(block.code).body
    functions = [
        each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return not functions or isinstance(body[-1], ast.Expr) or any(f in DRIVERS for f in functions)


@contextmanager
def scheduler_of_its_own() -> Iterator[LocalScheduler]:
    # The documents are about a scheduler as it comes, but for its ports.
    with LocalScheduler(environ=environment(LINGUA_LOG_LEVEL="error")) as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def without_nodes() -> Iterator[LocalScheduler]:
    """A scheduler for nodes that come and go."""
    with scheduler_of_its_own() as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def with_nodes() -> Iterator[LocalScheduler]:
    """A scheduler with simulated nodes."""
    with scheduler_of_its_own() as scheduler:
        command = [*LINGUA, "sim-nodes", "--count", "2"]
        nodes = subprocess.Popen(command, env=environment(**exported(scheduler)))
        try:
            await_nodes(scheduler, 2)
            yield scheduler
        finally:
            nodes.terminate()
            nodes.wait(WITHIN_S)


def exported(scheduler: LocalScheduler) -> dict[str, str]:
    services = ("pool", "dispatcher", "gateway")
    return {f"LINGUA_{each.upper()}_ADDRESS": scheduler.addresses(each) for each in services}


def lingua(scheduler: LocalScheduler, *args: str, cwd: Path | None = None) -> str:
    ended = subprocess.run(
        [*LINGUA, *args],
        cwd=cwd,
        env=environment(**exported(scheduler)),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def await_nodes(
    scheduler: LocalScheduler, count: int, running: "subprocess.Popen[str] | None" = None
) -> None:
    """Returns when so many nodes are ready; fails if the process that they are of has ended."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        nodes = json.loads(lingua(scheduler, "nodes", "list", "--health", "ready", "--json"))[
            "nodes"
        ]
        if len(nodes) == count:
            return
        assert time.monotonic() < deadline, nodes
        assert running is None or running.poll() is None, "the node has ended"
        time.sleep(0.1)


def say_hello(folder: Path) -> Path:
    """The file that the examples speak."""
    path = folder / "hello.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(16000))
    return path


def make_files(scheduler: LocalScheduler, folder: Path) -> None:
    """Certificates and tokens, under all names that the documents have for them."""
    lingua(scheduler, "certs", "init", "certs", cwd=folder)
    (folder / "ca.pem").write_bytes((folder / "certs" / "ca.crt").read_bytes())
    for name in ("token", "client.token", "node.token"):
        (folder / name).write_text("token")


@contextmanager
def program(code: str, folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """It runs; what still does at the end is killed."""
    (folder / "program.py").write_text(code)
    running = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def node_of(block: Block, scheduler: LocalScheduler, folder: Path) -> Iterator[str]:
    """The node of a block, connected; its id. Ctrl-C ends it well."""
    (node_id,) = re.findall(r'node_id="([^"]+)"', block.code)
    folder.mkdir()
    await_nodes(scheduler, 0)
    with program(to_run(block, scheduler), folder) as running:
        try:
            await_nodes(scheduler, 1, running)
            yield node_id
        except BaseException:
            running.kill()
            print(running.communicate())
            raise
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=WITHIN_S)
        assert running.returncode == 0, err
    with contextlib.suppress(AssertionError):
        lingua(scheduler, "nodes", "remove", node_id, "--yes")


@pytest.mark.parametrize("block", NODES, ids=str)
def test_the_nodes_of_the_documents_translate(
    block: Block, without_nodes: LocalScheduler, tmp_path: Path
) -> None:
    target = "es" if '"es"' in block.code else "zh"
    say_hello(tmp_path)
    with node_of(block, without_nodes, tmp_path / "node") as node_id:
        spoken = ("speak", "hello.wav", "--from", "en", "--to", target, "--fast", "--json")
        told = json.loads(lingua(without_nodes, *spoken, cwd=tmp_path))
    (result,) = told["results"]
    assert result["node_id"] == node_id
    assert result["texts"]["translated"].startswith("16000 bytes of en")


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_node_and_app_of_the_readme_work_together(
    page: str, without_nodes: LocalScheduler, tmp_path: Path
) -> None:
    node, app = (block for block in blocks_of(ROOT / page) if block.language == "python")
    say_hello(tmp_path)
    code = to_run(app, without_nodes)
    with node_of(node, without_nodes, tmp_path / "node"), program(code, tmp_path) as running:
        out, err = running.communicate(timeout=WITHIN_S)
    assert (running.returncode, err) == (0, "")
    assert out == "16000 bytes of en\n"


@pytest.mark.parametrize("block", OTHERS, ids=str)
def test_the_other_programs_of_the_documents_run_to_their_end(
    block: Block, with_nodes: LocalScheduler, tmp_path: Path
) -> None:
    assert is_driven(block), "nothing of it runs: DRIVERS says who calls its functions"
    say_hello(tmp_path)
    if "Tls(" in block.code:
        make_files(with_nodes, tmp_path)
    code = to_run(block, with_nodes).replace("/etc/lingua", str(tmp_path))
    with program(code, tmp_path) as running:
        _, err = running.communicate(timeout=WITHIN_S)
    assert (running.returncode, err) == (0, "")
