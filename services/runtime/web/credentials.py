"""Who makes an HTTP request, as the guard asks for it."""

from collections.abc import Iterable, Mapping
from typing import Any

from lingua_scheduler.services.runtime.auth.guard import AUTHORIZATION


class WebCredentials:
    """What a request says about its caller.

    Args:
        token: as in the header `Authorization`, with its scheme; None if there is none.
        certificate: of the caller, as `ssl` describes it; None if there is none.
    """

    def __init__(self, token: str | None, certificate: Mapping[str, Any] | None) -> None:
        self._token = token
        names = (certificate or {}).get("subjectAltName", ())
        self._uris = [value.encode() for kind, value in names if kind == "URI"]

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The token as gRPC clients send it."""
        return ((AUTHORIZATION, self._token),) if self._token is not None else ()

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The certificate as gRPC describes it."""
        return {"peer_uri": self._uris} if self._uris else {}
