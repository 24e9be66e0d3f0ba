"""Checks, before anything is spoken, whether a node serves a direction."""

from dataclasses import replace

from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.options import Options
from lingua_scheduler.services.runtime.settings.settings import Settings

# The note is optional, so it must not delay the speech for long.
_WITHIN_S = 1.0


def no_node_note(options: Options, settings: Settings, *, src: str, tgt: str, speech: bool) -> str:
    """A note that no node serves the direction and what to do about it; "" if one does.

    Also "" if the pool service is unreachable or refuses clients. The first utterance will show it
    then.
    """
    if not _is_one_scheduler(options, settings):
        return ""
    short = replace(options, timeout_s=min(options.timeout_s, _WITHIN_S))
    try:
        with PoolClient.opened(short) as pool:
            if pool.has_node_for(src, tgt, speech=speech):
                return ""
    except Failure:
        return ""
    return (
        f"No node can translate {src}->{tgt} now; the speech waits for one. 'lingua pools' shows "
        f"what nodes serve; 'lingua sim-nodes --langs {src},{tgt}' starts simulated ones"
    )


def _is_one_scheduler(options: Options, settings: Settings) -> bool:
    """Whether the addresses of gateway and pool service are likely to belong together."""

    def origin(service: str) -> str:
        if service in options.addresses:
            return "option"
        is_default = settings.origin(f"{service}_address") == "default"
        return "default" if is_default else "set"

    return origin("gateway") == origin("pool")
