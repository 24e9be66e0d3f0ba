"""Packet loss: really, where the machine allows it, and stalls of the proxy elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness import loss
from tests.support.nursery import ROOT

COMMAND = [sys.executable, "-m", "tests.robustness", "--rounds", "1", "--people", "6"]
FAULTS = "loss: client and gateway + loss: node and dispatcher"


def test_a_round_on_lossy_links_breaks_no_promise(tmp_path: Path) -> None:
    """As a command, since only a program that just began can go into a network of its own."""
    words = ["--store", "aof", "--seed", "7", "--faults", FAULTS, "--out", str(tmp_path)]
    done = subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, timeout=100)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    [(what, lost)] = report["rows"][0]["lost"].items()
    really = "packet loss: real" in report["about"]
    assert what == ("packets" if really else "pieces")
    assert lost["lost"] > 0


def test_where_a_network_of_its_own_is_refused_it_is_said_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refuses = tmp_path / "unshare"
    refuses.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XTABLES_LOCKFILE", "")
    assert loss.enter() == "unshare failed: Operation not permitted"
    assert not loss.is_own()


def test_a_rule_is_never_made_in_the_network_of_the_machine() -> None:
    with pytest.raises(AssertionError, match="not our own"):
        loss.DroppedPackets(1, 0.1)


def test_stalls_of_the_proxy_are_times_after_which_tcp_sends_again() -> None:
    stalls = loss.StalledPieces(port=1, rate=0.3)
    waited = [round(stalls.stall_s, 1) for _ in range(1000)]
    assert {0.0, 0.2, 0.6, 1.4} <= set(waited)
    lost = stalls.end()
    assert (lost.lost, lost.of) == (sum(map(bool, waited)), 1000)
    assert 200 < lost.lost < 400
