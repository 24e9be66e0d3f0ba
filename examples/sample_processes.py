"""The sample nodes of the conversation as processes."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from phrases import write_phrases

from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.clients.sdk_access import node_token
from lingua_scheduler.cli.options import Options
from lingua_scheduler.services.runtime.settings.settings import load_settings

# The languages of each node.
NODES = {"amber": "zh,en", "birch": "zh,en", "cedar": "en,es"}
# Time for the nodes to connect; a busy machine needs longer than an idle one.
NODES_WITHIN_S = 60.0

Nodes = dict[str, "subprocess.Popen[bytes]"]


class NodesError(Exception):
    """The sample nodes cannot be used."""


def token_option(name: str, folder: Path) -> list[str]:
    """The token of a node, in a file, if this process can sign one."""
    token = node_token(load_settings(), name)
    if not callable(token):
        return []
    file = folder / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(str(token()))
    return ["--token-file", str(file)]


def start_nodes(folder: Path) -> Nodes:
    """Start the sample nodes, which end with this process. They load, and then wait."""
    script, book = Path(__file__).with_name("sample_node.py"), folder / "phrases.json"
    write_phrases(book)
    return {
        name: subprocess.Popen(
            [
                *(sys.executable, str(script), "--id", name, "--langs", langs),
                *("--phrases", str(book), "--dispatcher", "-", "--until-eof"),
                *token_option(name, folder),
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, langs in NODES.items()
    }


def connect_nodes(nodes: Nodes, address: str) -> None:
    """Send them the address of the dispatcher."""
    for node in nodes.values():
        assert node.stdin is not None
        # If it has already ended, `await_nodes` reports that.
        with contextlib.suppress(BrokenPipeError):
            node.stdin.write(f"{address}\n".encode())
            node.stdin.flush()


def await_nodes(nodes: Nodes, address: str) -> None:
    """Return when the pool service knows all sample nodes.

    Raises:
        NodesError: one has ended, or they do not connect in time.
    """
    with PoolClient.opened(Options(addresses={"pool": address})) as pool:
        deadline = time.monotonic() + NODES_WITHIN_S
        while len(pool.list_nodes().nodes) < len(nodes):
            for name, node in nodes.items():
                if node.poll() is not None:
                    raise NodesError(f"{name} ended with exit code {node.returncode}")
            if time.monotonic() > deadline:
                raise NodesError(f"the sample nodes did not connect within {NODES_WITHIN_S:g} s")
            time.sleep(0.05)


def end_nodes(nodes: Nodes) -> None:
    """Let them finish their jobs and end. A second call does nothing."""
    for node in nodes.values():
        node.terminate()
    for node in nodes.values():
        node.wait()
        assert node.stdin is not None
        node.stdin.close()
