"""A node program as a process of its own, which records what happens to it and takes orders."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.process import Process
from tests.support.records import Diary, Record, read_records

LISTENING = "tests.support.listening_node"
"""The program of a node that hears words in audio."""


class NodeProcess(Process):
    """A node. It can be killed, started again, and told to misbehave.

    Args:
        node_id: names the node.
        program: a module whose `main` runs the node as its environment says, see `NodeOptions`.
        dispatchers: addresses, with commas between them; may be set later, before the start.
        options: of the program, such as `slots`.
    """

    def __init__(
        self,
        node_id: str,
        *,
        program: str = LISTENING,
        dispatchers: str = "",
        **options: str | int,
    ) -> None:
        super().__init__(node_id)
        self.node_id = node_id
        self.dispatchers = dispatchers
        self._program = program
        self._options = options

    def start(self) -> None:
        """Starts the process; it is not connected yet."""
        self._starts_at = len(self.told("connected"))
        options = {
            "id": self.node_id,
            "dispatchers": self.dispatchers,
            "records": self.file("records"),
            "orders": self.file("orders"),
            **self._options,
        }
        given = {f"NODE_{name.upper()}": str(value) for name, value in options.items()}
        code = f"import {self._program} as program; program.main()"
        self.fork(code, env={**os.environ, **given})

    def wait_ready(self) -> None:
        """Returns when a dispatcher has welcomed the node since its last start."""
        self.wait_for(lambda: len(self.told("connected")) > self._starts_at, "connected")

    def order(self, **orders: int) -> None:
        """From now on the node follows these orders, and none that it was given before."""
        new = self.file("orders.new")
        new.write_text(json.dumps(orders))
        new.rename(self.file("orders"))

    def told(self, *what: str) -> list[Record]:
        """Its records over all starts: all of them, or only of these kinds."""
        records = read_records(self.file("records"))
        return [each for each in records if not what or each["what"] in what]

    @property
    def running(self) -> int:
        """Jobs that the node has started and not finished since its last start."""
        told = [each["what"] for each in self.told("began", "started", "finished")]
        told = told[len(told) - told[::-1].index("began") :]
        return told.count("started") - told.count("finished")


class NodeOptions:
    """What a node program reads from its environment."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self.node_id = environ["NODE_ID"]
        self.dispatchers = environ["NODE_DISPATCHERS"]
        self.diary = Diary(Path(environ["NODE_RECORDS"]), Path(environ["NODE_ORDERS"]))

    def text(self, name: str, default: str) -> str:
        """An option of the program."""
        return self._environ.get(f"NODE_{name.upper()}", default)

    def number(self, name: str, default: int) -> int:
        """An option that is a whole number."""
        return int(self.text(name, str(default)))
