"""Packets that get lost.

Really, where the machine allows it: the program runs in a network namespace of its own, in which
there is nothing but loopback, and there the kernel drops packets at random. Elsewhere the proxy
makes what loss looks like to the two ends of a TCP connection: stalls, until it is sent again.
"""

import fcntl
import os
import random
import socket
import struct
import subprocess
import sys
from functools import cache

from tests.robustness.history import Lost

HOW_TO = (
    "for real loss, install Debian's packages util-linux (unshare) and iptables, and run as root or"
    " where everybody may make user namespaces"
)
# Root needs no user namespace, and keeps its rights to files of others without one.
_WAYS = (("--net",), ("--user", "--map-root-user", "--net"))
_OUTSIDE = "TEST_NETWORK_OUTSIDE"
_ASK_S = 10.0
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
# Linux' shortest time until a packet is sent again; it doubles each time.
_AGAIN_S = 0.2


def enter() -> str:
    """Starts this program anew in a network of its own; returns why not, or "" if it is there.

    To be called before anything is started. What is made there ends with the program.
    """
    if is_own():
        _bring_up_loopback()
        return ""
    # For an ordinary user: where iptables is, and a lock that it may open instead of the machine's.
    os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    os.environ["XTABLES_LOCKFILE"] = os.devnull
    why = ""
    for way in _WAYS:
        why = _refusal(way)
        if not why:
            os.environ[_OUTSIDE] = _network()
            os.execvp("unshare", ["unshare", *way, sys.executable, *sys.orig_argv[1:]])
    return why


@cache
def is_own() -> bool:
    """Whether this process is in a network that `enter` has made."""
    return os.environ.get(_OUTSIDE) not in (None, _network())


def _network() -> str:
    return os.readlink("/proc/self/ns/net")


def _refusal(way: tuple[str, ...]) -> str:
    """Tries it in a process that ends at once."""
    rule = _rules(1, 0.5)[1]
    try:
        done = subprocess.run(
            ["unshare", *way, "iptables", "-A", *rule],
            capture_output=True,
            text=True,
            timeout=_ASK_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().splitlines() or [f"unshare ended with {done.returncode}"]
    return said[0] if done.returncode else ""


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _rules(port: int, rate: float) -> tuple[list[str], list[str]]:
    """One that counts all packets of a port, in both directions, and one that drops some of them.

    At the input: a sender is told what is dropped at its own output.
    """
    counts = ["INPUT", "-w", "-p", "tcp", "-m", "multiport", "--ports", str(port)]
    at_random = ["-m", "statistic", "--mode", "random", "--probability", str(rate)]
    return counts, [*counts, *at_random, "-j", "DROP"]


def _iptables(*words: str) -> str:
    assert is_own(), "no rule is made in a network that is not our own"
    done = subprocess.run(["iptables", *words], capture_output=True, text=True, timeout=_ASK_S)
    assert done.returncode == 0, f"iptables {' '.join(words)}: {done.stderr}"
    return done.stdout


class DroppedPackets:
    """The kernel drops packets from and to a port, from now until the end."""

    stall_s = 0.0

    def __init__(self, port: int, rate: float) -> None:
        self._port = port
        self._rules = _rules(port, rate)
        for rule in self._rules:
            _iptables("-A", *rule)

    def end(self) -> Lost:
        """No more; returns what there was."""
        lines = _iptables("-w", "-nvxL", "INPUT").splitlines()
        ours = [line for line in lines if f"multiport ports {self._port} " in f"{line} "]
        for rule in self._rules:
            _iptables("-D", *rule)
        seen, dropped = (int(line.split()[0]) for line in ours)
        return Lost("packets", dropped, seen)


class StalledPieces:
    """The proxy keeps pieces of a stream back for as long as TCP would need to send them again."""

    def __init__(self, port: int, rate: float) -> None:
        self._rng = random.Random(port)
        self._rate = rate
        self._lost = Lost("pieces", 0, 0)

    @property
    def stall_s(self) -> float:
        """How long the next piece is kept back."""
        self._lost.of += 1
        stall, again = 0.0, _AGAIN_S
        while self._rng.random() < self._rate:
            stall, again = stall + again, 2 * again
        self._lost.lost += stall > 0
        return stall

    def end(self) -> Lost:
        """Returns what there was."""
        return self._lost
