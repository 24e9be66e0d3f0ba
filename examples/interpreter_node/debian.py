"""Installs Apertium's programs, which are a Debian package."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from interpreter_node.apertium import INSTALL, is_installed
from interpreter_node.engines import MissingPartError

CONSENT = "INSTALL_DEBIAN_PACKAGES"
_TOLD = "GPL; 4 MB to fetch, or 15 with the libraries that it needs"


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


def get_apertium(
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    run: Callable[[Sequence[str]], int] = _run,
    is_there: Callable[[], bool] = is_installed,
) -> None:
    """Install it if that was requested and needs no password.

    Raises:
        MissingPartError: it is not installed; the message has the command.
    """
    if is_there():
        return
    missing = MissingPartError(
        f"Apertium (translates; {_TOLD}) is not installed",
        f"{INSTALL} (as root, on Debian or Ubuntu; or {CONSENT}=yes, and it is done for you)",
    )
    if environ.get(CONSENT) != "yes" or shutil.which("apt-get") is None:
        raise missing
    # -n: never ask for a password.
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    say(f"Installing Apertium ({_TOLD}): {' '.join([*prefix, INSTALL])}")
    command = [*prefix, *INSTALL.split(), "--yes", "--quiet"]
    if run(command):
        run([*prefix, "apt-get", "update", "--quiet"])
        run(command)
    if not is_there():
        raise missing
