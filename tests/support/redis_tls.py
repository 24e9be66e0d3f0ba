"""Redis servers with TLS: a server that is built with it, and a certificate for this machine."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.binary import ServerBinary, packaged_server
from tests.support.ports import free_port
from tests.support.redis_servers import HOST


@dataclass(frozen=True)
class Certificate:
    """A certificate for localhost, which is its own authority, and its key."""

    file: Path
    key: Path

    @property
    def query(self) -> str:
        """The part of a URL that makes a client trust it."""
        return f"?ssl_ca_certs={self.file}"

    @property
    def options(self) -> dict[str, str]:
        """Options of a server that shows it, also to other servers."""
        return {
            "tls-cert-file": str(self.file),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.file),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }

    def arguments(self, tls_port: int) -> tuple[str, ...]:
        """Arguments of a server that listens with TLS on one more port."""
        pairs = {**self.options, "tls-port": str(tls_port)}.items()
        return tuple(word for name, value in pairs for word in (f"--{name}", value))


def make_certificate(folder: Path) -> Certificate:
    """Makes a certificate; skips the test if there is nothing to make it with."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on the PATH to make a certificate with")
    certificate = Certificate(folder / "cert.pem", folder / "key.pem")
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:localhost,IP:{HOST}"]
    made += ["-keyout", str(certificate.key), "-out", str(certificate.file)]
    subprocess.run(made, check=True, capture_output=True)
    return certificate


def server_with_tls(folder: Path) -> ServerBinary:
    """A server that is built with TLS; skips the test if this machine has none.

    Debian's package redis-tools has one that is a server if it is called redis-server. Unlike the
    package redis-server, it puts none on the PATH, which would be the embedded Redis of all other
    tests, and starts none.

    Args:
        folder: for a link with that name.
    """
    found = [packaged_server(), *map(shutil.which, ("redis-server", "valkey-server"))]
    if tool := shutil.which("redis-check-rdb"):
        link = folder / "redis-server"
        link.symlink_to(tool)
        found.append(link)
    for each in found:
        if each is not None and _has_tls(each):
            return ServerBinary(path=Path(each), origin="tests")
    pytest.skip("no Redis server that is built with TLS: apt-get install redis-tools")


def _has_tls(server: str | Path) -> bool:
    """Whether it misses a certificate, rather than TLS."""
    command = [str(server), "--port", "0", "--tls-port", str(free_port())]
    command += ["--tls-cert-file", "/nowhere", "--tls-key-file", "/nowhere"]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return b"Failed to configure TLS" in tried.stdout + tried.stderr
