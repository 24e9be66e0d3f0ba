"""Certificates for tests: a folder with an authority, as `lingua certs` makes it."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import grpc

from lingua_scheduler.cli.certificates import LOCAL_HOSTS, Authority, Wanted

HOUR = timedelta(hours=1)
EXPIRED = timedelta(seconds=-1)


class Pair:
    """A certificate and its key as files, which can be replaced."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        self.ca = folder / "ca.crt"

    def take(self, other: "Pair") -> None:
        """Puts another one in its place, as careful people do: never half of a file."""
        for ours, theirs in ((self.cert, other.cert), (self.key, other.key)):
            new = ours.with_suffix(".new")
            new.write_bytes(theirs.read_bytes())
            os.replace(new, ours)

    def credentials(self, ca: Path | None = None) -> grpc.ChannelCredentials:
        """For a caller that shows it."""
        return grpc.ssl_channel_credentials(
            (ca or self.ca).read_bytes(), self.key.read_bytes(), self.cert.read_bytes()
        )


class Certificates:
    """An authority, and what it issues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.crt"
        self._authority = Authority.made(folder)
        self._issued = 0

    def issue(
        self,
        uri: str = "lingua:service/test",
        *,
        life: timedelta = HOUR,
        hosts: Sequence[str] = LOCAL_HOSTS,
    ) -> Pair:
        """A new pair, in files of its own."""
        self._issued += 1
        name = f"issued-{self._issued}"
        self._authority.issue(Wanted(name=name, uri=uri, life=life, hosts=hosts))
        return Pair(self.folder, name)

    def caller(self, uri: str, life: timedelta = HOUR) -> Pair:
        """A pair for somebody who only calls."""
        return self.issue(uri, life=life, hosts=())

    def credentials(self) -> grpc.ChannelCredentials:
        """For a caller that shows none."""
        return grpc.ssl_channel_credentials(self.ca.read_bytes())


def server_settings(pair: Pair, *, mutual: bool = False) -> dict[str, str]:
    """Of a server with that certificate."""
    settings = {"tls_cert_file": str(pair.cert), "tls_key_file": str(pair.key)}
    return {**settings, "tls_client_ca_file": str(pair.ca)} if mutual else settings
