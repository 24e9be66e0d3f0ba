"""The address of the talk page of a scheduler on this machine."""

import ipaddress
import socket
from dataclasses import dataclass

from lingua_scheduler.cli.clients.sdk_access import LOCAL_TENANT, PAGE_TOKEN_S, page_token
from lingua_scheduler.cli.up.listening import reachable
from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.services.runtime.addresses import join_address, split_address

# Reserved for documentation. Nothing is sent there: see `_lan_host`.
_ELSEWHERE = ("192.0.2.1", 9)


@dataclass(frozen=True, slots=True)
class TalkPage:
    """Where people open the page.

    Attributes:
        url: for a browser on this machine, with a token if one is needed and could be signed.
        lan_url: for other machines; empty if they cannot reach it.
        token_s: lifetime of the token; 0 if the URL has none.
        needs_token: whether the page asks for a token.
    """

    url: str
    lan_url: str
    token_s: int
    needs_token: bool

    @property
    def words(self) -> list[str]:
        """The address and what to know about it, one line each."""
        lines = [f"Talk   {self.url}"]
        if self.lan_url:
            lines.append(f"       on other devices {self.lan_url}")
            if self.lan_url.startswith("http:"):
                lines.append(
                    "       Without TLS, browsers there refuse the microphone: docs/web.md."
                )
        if self.token_s:
            lines.append(f"       Its token is valid for {self.token_s // 3600} h. To get another:")
            lines.append(f"       lingua token client --tenant {LOCAL_TENANT}")
        elif self.needs_token:
            lines.append("       The page asks for a token: see 'lingua token client'.")
        return lines


def talk_page(scheduler: LocalScheduler) -> TalkPage | None:
    """The page of the first gateway; None if it serves none.

    Raises:
        SettingsError: the secret cannot be read.
    """
    settings = scheduler.settings
    web = next((each.web for each in scheduler.services if each.service == "gateway"), "")
    if not web or not settings.talk_page:
        return None
    scheme = "https" if settings.tls_cert_file else "http"
    token = page_token(settings)
    end = f"/#token={token}" if token else "/"
    lan_host = _lan_host(web)
    lan = join_address(lan_host, split_address(web)[1]) if lan_host else ""
    return TalkPage(
        url=f"{scheme}://{reachable(web)}{end}",
        lan_url=f"{scheme}://{lan}{end}" if lan else "",
        token_s=PAGE_TOKEN_S if token else 0,
        needs_token=settings.auth == "on",
    )


def _lan_host(address: str) -> str:
    """This machine's address in its network, if it listens on all addresses; otherwise ""."""
    if not _is_wildcard(split_address(address)[0]):
        return ""
    # Connecting a datagram socket only looks up the route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            found = str(probe.getsockname()[0])
        except OSError:
            return ""
    return "" if ipaddress.ip_address(found).is_loopback else found


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
