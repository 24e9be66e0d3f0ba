"""Runs one node until a signal: `python -m interpreter_node --help`."""

import logging
import os
import signal
import sys
import threading
import time

from interpreter_node.choice import load
from interpreter_node.engines import MissingPartError
from interpreter_node.node import interpreter_node
from interpreter_node.settings import read_settings


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Run the node; returns exit code 1 if a part is missing."""
    settings = read_settings(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if settings.until_eof:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    started = time.monotonic()
    try:
        engines = load(settings)
    except MissingPartError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    logging.info(
        "node %s: hears %s, loaded in %.1f s",
        settings.node_id,
        ", ".join(engines.heard),
        time.monotonic() - started,
    )
    interpreter_node(settings, engines).run(settings.dispatcher)
    return 0


if __name__ == "__main__":
    sys.exit(main())
