"""Interpreter nodes as processes, for the conversation and the benchmark."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lingua_scheduler.cli.clients.sdk_access import node_token
from lingua_scheduler.services.runtime.settings.settings import load_settings

LINGUA = [sys.executable, "-m", "lingua_scheduler.cli"]
# Time for the nodes to load their models and connect; a busy machine needs longer.
WITHIN_S = 120.0

# Engines that need few packages and small models.
SMALL_ENGINES = ("--asr", "moonshine", "--mt", "apertium", "--tts", "espeak")

Nodes = list["subprocess.Popen[bytes]"]


def start_nodes(
    names: Sequence[str], dispatcher: str, *options: str, tokens: Path | None = None
) -> Nodes:
    """Start the nodes; each ends with this process.

    Args:
        names: their ids.
        dispatcher: where they connect.
        options: of all of them.
        tokens: a private folder for their tokens, if this process can sign some.
    """
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "interpreter_node", "--id", name),
                *("--dispatcher", dispatcher, "--until-eof", *options),
                *(_token_option(name, tokens) if tokens else ()),
            ],
            env=environ,
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name in names
    ]


def _token_option(name: str, folder: Path) -> list[str]:
    token = node_token(load_settings(), name)
    if not callable(token):
        return []
    file = folder / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(str(token()))
    return ["--token-file", str(file)]


def await_nodes(nodes: Nodes, environ: Mapping[str, str]) -> None:
    """Return when the scheduler knows all of them; raises RuntimeError if they do not connect."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        listed = subprocess.run(
            [*LINGUA, "nodes", "list", "--json"], env=dict(environ), capture_output=True, text=True
        )
        known = json.loads(listed.stdout)["nodes"] if listed.returncode == 0 else []
        if len(known) >= len(nodes):
            return
        if time.monotonic() > deadline or any(node.poll() is not None for node in nodes):
            raise RuntimeError(
                f"the nodes did not connect within {WITHIN_S:g} s; 'PYTHONPATH=examples"
                f" {sys.executable} -m interpreter_node' says why"
            )
        time.sleep(0.3)


def end_nodes(nodes: Nodes) -> None:
    """Let them finish their jobs and end."""
    for node in nodes:
        node.terminate()
    for node in nodes:
        node.wait()
        assert node.stdin is not None
        node.stdin.close()
