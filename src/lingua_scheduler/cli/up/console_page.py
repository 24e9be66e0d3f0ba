"""The address of the operators' console of a scheduler on this machine."""

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler


def console_url(scheduler: LocalScheduler) -> str:
    """Where people on this machine open the console; empty if it does not run."""
    address = scheduler.console.address if scheduler.console is not None else ""
    scheme = "https" if scheduler.settings.tls_cert_file else "http"
    return f"{scheme}://{address}/" if address else ""


def console_words(scheduler: LocalScheduler) -> list[str]:
    """The address and what to know about it, one line each; none if it does not run."""
    url = console_url(scheduler)
    if not url:
        return []
    lines = [f"Console {url}"]
    if scheduler.settings.auth == "on":
        lines.append("       It asks for a token. To get one: lingua token operator")
    return lines
